"""The commands that look after a broker: backup, export, import, nodes, restore, sweep, topic.

They use the broker's configuration and database directly, and may do so while the broker runs.
"""

from __future__ import annotations

import json
import shlex
from functools import partial
from pathlib import Path
from typing import IO

import click

from rsscloud_broker import storage
from rsscloud_broker.commands.configured import ConfiguredBroker, with_broker_options
from rsscloud_broker.composition.apps import installed_tables
from rsscloud_broker.config import Config
from rsscloud_broker.config.validators import check_database
from rsscloud_broker.core.sweeper import IDLE_TOPIC_SECONDS
from rsscloud_broker.runtime import plugin_building, plugin_discovery
from rsscloud_broker.runtime.data_lock import hold
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.wire import node_states, topic_status
from rsscloud_broker.wire.links import HUB_PATHS


@click.command()
@with_broker_options
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def backup(broker: ConfiguredBroker, file: Path) -> None:
    """Save all that a broker has stored to FILE, which must not exist; it may run meanwhile.

    FILE has the database, with all secrets in it, the change lists and archives, and files of
    applications.  It does not have the configuration.
    """
    settings = broker.settings()
    database = _sqlite_file(settings, f"pg_dump --format=custom --file={file}")
    if not database.is_file():
        raise click.ClickException(
            f"{database} does not exist; name the broker's data with --config or --data"
        )
    size = storage.save_backup(database, Path(settings.data), file)
    click.echo(f"{file}: {size:,} bytes")


@click.command()
@with_broker_options
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def restore(broker: ConfiguredBroker, file: Path) -> None:
    """Restore a FILE of backup into a data directory that has no database yet.

    Run it as the broker's user, who must be able to write the files, and start the broker then.
    """
    settings = broker.settings()
    database = _sqlite_file(settings, f"pg_restore --no-owner --exit-on-error {file}")
    if not file.exists():
        raise click.ClickException(f"{file} does not exist; name a file that backup has made")
    Path(settings.data).mkdir(mode=0o750, parents=True, exist_ok=True)
    try:
        lock = hold(settings.data)
    except BlockingIOError:
        raise click.ClickException(
            f"a broker runs with {settings.data}: stop it, or name another place with --data"
        ) from None
    with lock:
        count = storage.restore_backup(file, database, Path(settings.data))
    click.echo(f"{settings.data}: {count:,} files restored")


def _sqlite_file(settings: Config, instead: str) -> Path:
    """The file of the broker's database.

    :param instead: the command to run if the database is PostgreSQL.
    :raises click.ClickException: the database is no file.
    """
    file = storage.database_file(settings.database_url)
    if file is None:
        target, _ = storage.libpq_arguments(settings.database_url)
        options = f"--dbname={shlex.quote(target)}"
        raise click.ClickException(
            f"the database is PostgreSQL, which has its own programs for this. Run: {instead} "
            f"{options} and copy the files in {settings.data} by themselves"
        )
    return file


@click.command()
@with_broker_options
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
def export(broker: ConfiguredBroker, file: str) -> None:
    """Write topics, subscriptions and blocks to FILE, as JSON.

    Accounts, and what they store with applications, are not exported: back up the database.
    """
    with storage.open_database(broker.existing_database(), writes=False) as connection:
        left_out = storage.left_out(connection)
        written = storage.export_text(connection, storage.present_time(connection))
        if file == "-":
            for piece in written:
                click.echo(piece, nl=False)
        else:
            storage.write_file(file, written)
    if left_out:
        click.echo(
            "Not exported are accounts, what applications store for them, and the feeds of events: "
            f"the tables {', '.join(left_out)}. To keep or move that, copy the whole database.",
            err=True,
        )


@click.command("import")
@with_broker_options
@click.option(
    "--from",
    "source",
    metavar="URL",
    help="Copy everything from another database, such as sqlite:///FILE, into an empty one.",
)
@click.argument("file", type=click.File("rb"), required=False)
def import_(broker: ConfiguredBroker, source: str | None, file: IO[bytes] | None) -> None:
    """Import a file of export, or a data file of rsscloud-server.

    Subscriptions that exist already are replaced; nothing is removed.  After an interruption,
    import the same file again.

    With --from, copy a whole database instead, and into an empty one: see the manual.
    """
    if (source is None) == (file is None):
        raise click.UsageError("name either a FILE or a database with --from")
    settings = broker.settings()
    if source is not None:
        _copy_database(source, settings)
        return
    assert file is not None  # or there would be a source
    try:
        document = json.loads(file.read())
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"{file.name}: is not JSON: {error}") from error
    protocols = plugin_building.protocols(settings.notifiers, broker.config_file or "")
    hub = f"{settings.address}{HUB_PATHS[0]}"
    storage.migrate(settings.database_url)
    begin = partial(storage.open_database, settings.database_url)
    with begin() as connection:
        now = storage.present_time(connection)
    imported = storage.import_in_parts(begin, document, now, hub=hub, protocols=protocols)
    click.echo("\n".join(imported.sentences(hub)))


def _copy_database(source: str, settings: Config) -> None:
    try:
        check_database("--from", source)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    makers = plugin_discovery.discover()
    tables = installed_tables(makers.apps.values(), makers.front_doors.values())
    copied = storage.copy_database(source, settings.database_url, tables)
    for name, count in sorted(copied.rows.items()):
        click.echo(f"{name}: {count:,}")
    click.echo(f"{sum(copied.rows.values()):,} rows were copied.")
    if copied.left_out:
        click.echo(
            f"Not copied are the tables {', '.join(copied.left_out)}, which belong to nothing that "
            "is installed here.",
            err=True,
        )
    click.echo(
        "Not copied are files: the archives of pings, in DATA/public, and those of applications, "
        "in DATA/apps. Copy them if the data directory is another one."
    )


@click.command()
@with_broker_options
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def nodes(broker: ConfiguredBroker, as_json: bool) -> None:
    """Show which brokers work on a database, and what each does.

    On SQLite this is the broker that started last, until it is stopped.
    """
    with storage.open_database(broker.existing_database(), writes=False) as connection:
        found = storage.node_states(connection)
    if as_json:
        click.echo(json.dumps(node_states.to_json(found), indent=2, ensure_ascii=False))
    else:
        click.echo(node_states.to_text(found) or "No broker works on this database.")


@click.command()
@with_broker_options
def sweep(broker: ConfiguredBroker) -> None:
    """Drop expired and failing subscriptions and unused topics, as the broker does each hour."""
    url = broker.existing_database()
    with storage.open_database(url, writes=False) as connection:
        now = storage.present_time(connection)
    swept = storage.sweep_database(url, now, now - IDLE_TOPIC_SECONDS)
    click.echo(
        f"dropped subscriptions: {swept.expired} expired, {swept.failing} whose callbacks "
        "failed too often; "
        f"dropped topics: {swept.topics}"
    )


@click.command()
@with_broker_options
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.option("--revive", is_flag=True, help="First revive the topic, if it has ended.")
@click.argument("url")
def topic(broker: ConfiguredBroker, as_json: bool, revive: bool, url: str) -> None:
    """Show the status of the topic at URL: its last fetch, its next poll, what its feed says."""
    url = normal_form(url)
    with storage.open_database(broker.existing_database(), writes=revive) as connection:
        if revive and not storage.revive_topic(connection, url):
            raise click.ClickException(f"{url} has not ended, or nothing is known of it")
        (status,) = storage.topic_statuses(connection, [url])
    if status is None:
        raise click.ClickException(f"nothing is known of {url}")
    if as_json:
        click.echo(json.dumps(topic_status.to_json(status), indent=2, ensure_ascii=False))
    else:
        click.echo(topic_status.to_text(status))
