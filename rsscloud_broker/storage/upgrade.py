"""Makes the tables of a database, or migrates those of an older version, at the start.

The steps are in ``migrations``.
"""

from __future__ import annotations

from collections.abc import Iterable

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, make_url

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.storage import sqlite
from rsscloud_broker.storage.engine import (
    database_errors,
    for_writing,
    open_engine,
    wait_for_others,
)


class UnfitDatabase(Exception):
    """The database cannot be used by this version.  The text of the error says why."""


def migrate(url: str) -> None:
    """Migrate a database to the tables of this version.  Makes the database if it does not exist.

    Blocks until done: call it before the reactor runs.  If two processes migrate at once, the
    second waits for the first, and then has nothing left to do.

    :param url: an SQLAlchemy database URL.
    :raises UnfitDatabase: the database is newer than this code, or is in memory.
    :raises Unavailable: the database cannot be opened or changed.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == sqlite.DIALECT:
        _prepare_sqlite(url)
    engine = open_engine(url)
    try:
        with database_errors(), for_writing(engine).begin() as connection:
            wait_for_others(connection)
            upgrade(connection)
    finally:
        engine.dispose()


def _prepare_sqlite(url: str) -> None:
    parsed = make_url(url)
    check_kept(url)
    try:
        sqlite.make_parent_directory(parsed)
    except OSError as error:
        raise Unavailable(
            f"the directory for the database cannot be made: {error}. "
            "Make it, or name another directory in the configuration."
        ) from error


def check_kept(url: str) -> None:
    """Check that a database outlives this process.

    :raises UnfitDatabase: the database is in memory.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == sqlite.DIALECT and sqlite.in_memory(parsed):
        raise UnfitDatabase(
            f"the database {url!r} is in memory and would keep nothing. "
            "Name a file, such as sqlite:////var/lib/rsscloud-broker/broker.db"
        )


def upgrade(connection: Connection) -> None:
    """Run the missing migrations, in the transaction of a connection.

    :raises UnfitDatabase: the database is newer than this code.
    """
    check_known(MigrationContext.configure(connection).get_current_heads())
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def latest_revision() -> str:
    """The revision of the tables of this version."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def check_known(revisions: Iterable[str]) -> None:
    """Check that this version knows the revisions of a database.

    :raises UnfitDatabase: the database is newer than this code.
    """
    steps = ScriptDirectory.from_config(_config()).walk_revisions()
    unknown = set(revisions) - {step.revision for step in steps}
    if unknown:
        raise UnfitDatabase(
            "the database was made by a newer version of rsscloud-broker: this one does not "
            f"know its revision {', '.join(sorted(unknown))}. Install that version again, or "
            "restore a copy of the database from before the upgrade."
        )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "rsscloud_broker.storage:migrations")
    return config
