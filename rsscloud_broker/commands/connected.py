"""What the commands share that use the network: the reactor, the HTTP client and its certificates.

A command writes an error as one line to stderr and exits with status 1.  This module does not
import the database, since most commands that use the network need none.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import click
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.task import react
from twisted.web.client import HTTPConnectionPool

from rsscloud_broker.client.any_address import AnyAddress, make_agent
from rsscloud_broker.client.web import ClientError, Web
from rsscloud_broker.commands.output import write_no_more
from rsscloud_broker.util.clock import SystemClock
from rsscloud_broker.wire import cloud, text

_EXPECTED = (ClientError, CannotListenError, cloud.InvalidCloud, OSError)

_CACERT = "rsscloud_broker.cacert"


def _remember_cacert(context: click.Context, _: click.Parameter, file: str | None) -> None:
    """Keep the file that ``--cacert`` names in the context of the command, for ``outbound``."""
    context.meta[_CACERT] = file


cacert_option = click.option(
    "--cacert",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    callback=_remember_cacert,
    expose_value=False,
    help="Certificates (PEM) to trust instead of the system's.",
)


def run(work: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine with the reactor, then exit.

    :param work: the coroutine function; it takes the reactor.
    """

    async def with_plain_errors(reactor: Any) -> None:
        try:
            await work(reactor)
        except BrokenPipeError:  # the reader, such as "head", has closed the pipe
            write_no_more()
        except _EXPECTED as error:
            # The error may quote a server's answer, so it is cleaned and becomes one line.
            click.ClickException(text.clean(str(error))).show()
            raise SystemExit(1) from error

    react(lambda reactor: Deferred.fromCoroutine(with_plain_errors(reactor)))


def web_client(reactor: Any) -> Web:
    """Make the HTTP client of a command."""
    return Web(outbound(reactor))


def outbound(reactor: Any, pool: HTTPConnectionPool | None = None) -> AnyAddress:
    """Make the outbound client of a command; it trusts the certificates of ``--cacert``.

    :param pool: keeps connections for further requests; None to close each.
    """
    agent = make_agent(reactor, click.get_current_context().meta.get(_CACERT), pool)
    return AnyAddress(agent, SystemClock(reactor))
