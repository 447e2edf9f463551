"""What the commands share that read the broker's configuration: options, and error messages.

A command writes an error as one line to stderr and exits with status 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path

import click
from attrs import frozen
from sqlalchemy import make_url
from twisted.internet.error import CannotListenError

from rsscloud_broker import config, storage
from rsscloud_broker.commands.output import write_no_more
from rsscloud_broker.errors import InvalidAccount, Unavailable
from rsscloud_broker.http.offers import FrontDoorsError
from rsscloud_broker.runtime import plugin_discovery

_EXPECTED = (
    CannotListenError,
    config.ConfigError,
    plugin_discovery.PluginError,
    FrontDoorsError,
    InvalidAccount,
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


@frozen
class ConfiguredBroker:
    """The broker that ``--config`` and ``--data`` name, whether it runs or not."""

    config_file: str | None
    data: str | None

    def settings(self) -> config.Config:
        """Its configuration.

        :raises ConfigError: the configuration is invalid.
        """
        settings = config.load(self.config_file)
        if not self.data:
            return settings
        return config.override(settings, "the command line", data=self.data)

    def existing_database(self) -> str:
        """The URL of its database, after migrating the schema to this version's.

        :raises click.ClickException: there is no database.
        """
        url = self.settings().database_url
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").is_file():
            raise click.ClickException(
                f"{parsed.database} does not exist; name the broker's data with --config or --data"
            )
        storage.migrate(url)
        return url


def with_broker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the broker that ``--config`` and ``--data`` name, and plain errors."""

    @wraps(command)
    def with_broker(config_file: str | None, data: str | None, **others: object) -> None:
        with plain_errors():
            command(ConfiguredBroker(config_file, data), **others)

    return config_option(data_option(with_broker))
