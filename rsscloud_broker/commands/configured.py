"""What the commands share that read the broker's configuration: options, and error messages.

A command writes an error as one line to stderr and exits with status 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from sqlalchemy import make_url
from twisted.internet.error import CannotListenError

from rsscloud_broker import config, storage
from rsscloud_broker.commands.output import write_no_more
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.http.offers import FrontDoorsError
from rsscloud_broker.runtime import plugin_discovery

_EXPECTED = (
    CannotListenError,
    config.ConfigError,
    plugin_discovery.PluginError,
    FrontDoorsError,
    storage.BackupError,
    storage.InvalidImport,
    storage.UnfitDatabase,
    Unavailable,
    OSError,
)

config_option = click.option(
    "--config", "config_file", type=click.Path(), metavar="FILE", help="The configuration."
)
data_option = click.option("--data", metavar="DIR", help="The data directory of the broker.")


@contextmanager
def plain_errors() -> Iterator[None]:
    """Show the errors that a command expects as one line, without a traceback."""
    try:
        yield
    except BrokenPipeError:  # the reader, such as "head", has closed the pipe
        write_no_more()
    except _EXPECTED as error:
        raise click.ClickException(str(error)) from error


def settings_of(config_file: str | None, data: str | None) -> config.Config:
    """The configuration that ``--config`` and ``--data`` name.

    :raises ConfigError: the configuration is invalid.
    """
    settings = config.load(config_file)
    return config.override(settings, "the command line", data=data) if data else settings


def existing_database(config_file: str | None, data: str | None) -> str:
    """The URL of the broker's database, after migrating its schema to this version's.

    :raises click.ClickException: there is no database.
    """
    url = settings_of(config_file, data).database_url
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").is_file():
        raise click.ClickException(
            f"{parsed.database} does not exist; name the broker's data with --config or --data"
        )
    storage.migrate(url)
    return url
