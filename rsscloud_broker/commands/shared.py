"""The parts that all commands share: the click group, common options, and error messages.

A command writes an error as one line to stderr and exits with status 1.  For a wrong command line
the exit status is 2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from sqlalchemy import make_url
from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.task import react

from rsscloud_broker import __version__, config, discovery, storage
from rsscloud_broker.client.web import ClientError, Web, trusting
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.front_doors.offers import FrontDoorsError
from rsscloud_broker.timing import SystemClock
from rsscloud_broker.wire import cloud, text

_EXPECTED = (
    ClientError,
    CannotListenError,
    cloud.InvalidCloud,
    config.ConfigError,
    discovery.PluginError,
    FrontDoorsError,
    storage.InvalidDocument,
    storage.UnfitDatabase,
    Unavailable,
    OSError,
)

config_option = click.option(
    "--config", "config_file", type=click.Path(), metavar="FILE", help="The configuration."
)
data_option = click.option("--data", metavar="DIR", help="The data directory of the broker.")

_CACERT = "rsscloud_broker.cacert"


def _remember_cacert(context: click.Context, _: click.Parameter, file: str | None) -> None:
    context.meta[_CACERT] = file


cacert_option = click.option(
    "--cacert",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    callback=_remember_cacert,
    expose_value=False,
    help="Certificates (PEM) to trust instead of the system's.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rsscloud-broker")
def main() -> None:
    """Talk to a broker, and look after one.

    To start the broker itself: twistd -n rsscloud-broker
    """


@contextmanager
def plain_errors() -> Iterator[None]:
    """Show the errors that a command expects as one line, without a traceback."""
    try:
        yield
    except BrokenPipeError:  # the reader, such as "head", has closed the pipe
        write_no_more()
    except _EXPECTED as error:
        raise click.ClickException(str(error)) from error


def run(work: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine with the reactor, then exit.

    :param work: the coroutine function; it takes the reactor.
    """

    async def with_plain_errors(reactor: Any) -> None:
        try:
            await work(reactor)
        except _EXPECTED as error:
            # The error may quote a server's answer, so it is cleaned and becomes one line.
            click.ClickException(text.clean(str(error))).show()
            raise SystemExit(1) from error

    react(lambda reactor: Deferred.fromCoroutine(with_plain_errors(reactor)))


def web_client(reactor: Any) -> Web:
    """Make the HTTP client of a command; it trusts the certificates of ``--cacert``."""
    file = click.get_current_context().meta.get(_CACERT)
    return Web(HTTPClient(trusting(reactor, file)), SystemClock(reactor))


def write_no_more() -> None:
    """Discard all further output, after the reader of stdout has closed the pipe.

    Otherwise Python would report an error at exit, when it flushes its buffer.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
