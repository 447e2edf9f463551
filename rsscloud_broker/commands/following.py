"""The command that follows a Simplefeed: follow.

``rsscloud_broker.simplefeed`` does the work.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click
from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure
from twisted.python.filepath import FilePath
from twisted.web.client import HTTPConnectionPool
from zope.interface import implementer

from rsscloud_broker.client import websub
from rsscloud_broker.client.web import ClientError, Web
from rsscloud_broker.commands.calling import listen_for_hubs, subscribe_at_hub, tell
from rsscloud_broker.commands.connected import cacert_option, outbound, run
from rsscloud_broker.commands.output import write_no_more
from rsscloud_broker.interfaces import IEntryHandler, IMarker, parse_directly
from rsscloud_broker.simplefeed.entries import Entry, encode_json
from rsscloud_broker.simplefeed.errors import EntryFailed, FollowError
from rsscloud_broker.simplefeed.follower import Begin, Follower
from rsscloud_broker.simplefeed.markers import FileMarker, MemoryMarker
from rsscloud_broker.simplefeed.waiting import FollowerLimits
from rsscloud_broker.util.clock import SystemClock
from rsscloud_broker.wire.web_address import fault_of


@click.command()
@click.argument("url")
@click.option("--exec", "command", metavar="CMD", help="Run CMD for each entry, as JSON on stdin.")
@click.option("--jsonl", is_flag=True, help="Print a line of JSON for each entry.  [default]")
@click.option(
    "--marker",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Remember in FILE which entry was last, and go on there at the next start.",
)
@click.option(
    "--from",
    "begin",
    type=click.Choice([each.value for each in Begin]),
    help="Where to begin without a marker (default: oldest), or if its entry is gone.",
)
@click.option("--once", is_flag=True, help="Stop when all entries that there are were handed on.")
@click.option(
    "--tries",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="How often to run CMD for an entry before giving up.",
)
@click.option(
    "--poll",
    type=click.FloatRange(0.1, 3600),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="The shortest time between two polls; else the server decides.",
)
@click.option("--push", is_flag=True, help="Subscribe at the feed's hub too, to poll at once.")
@click.option("--host", default="", help="With --push: the address to listen on.  [default: all]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="With --push: the port to listen on.  [default: any free one]",
)
@click.option("--domain", default="", help="With --push: the host name that the hub calls.")
@cacert_option
def follow(
    url: str,
    command: str | None,
    jsonl: bool,
    marker: str | None,
    begin: str | None,
    once: bool,
    tries: int,
    poll: float,
    push: bool,
    host: str,
    port: int,
    domain: str,
) -> None:
    """Hand on each entry of the Simplefeed at URL, in order, and all that come later."""
    if fault := fault_of(url):
        raise click.UsageError(f"URL {url[:100]!r} cannot be read: {fault}")
    if command is not None and jsonl:
        raise click.UsageError("give --exec or --jsonl, not both")
    if push and once:
        raise click.UsageError("--once waits for no entries, so it does not go with --push")
    if not push and (host or port or domain):
        raise click.UsageError("--host, --port and --domain need --push")

    async def work(reactor: Any) -> None:
        pool = HTTPConnectionPool(reactor)
        clock, client = SystemClock(reactor), outbound(reactor, pool)
        nobody_reads: Deferred[None] = Deferred()
        handler: IEntryHandler = (
            JsonLines(nobody_reads) if command is None else Exec(reactor, command)
        )
        position: IMarker = MemoryMarker()
        if marker is not None:
            position = FileMarker(FilePath(marker), url, deferToThread)
        follower = Follower(
            client,
            url,
            handler,
            position,
            clock,
            parse=parse_directly,
            begin=Begin(begin) if begin else None,
            tell=tell,
            limits=FollowerLimits(shortest=poll, usual=max(60.0, poll), tries=tries),
        )
        nobody_reads.addCallback(lambda _: follower.stop())
        reactor.addSystemEventTrigger("before", "shutdown", follower.stop)
        if push:
            await _subscribe_at_hub(reactor, Web(client), follower, url, host, port, domain)
        try:
            await (follower.catch_up() if once else follower.run())
        except FollowError as error:
            raise ClientError(str(error)) from error

    run(work)


async def _subscribe_at_hub(
    reactor: Any, web: Web, follower: Follower, url: str, host: str, port: int, domain: str
) -> None:
    """Subscribe to the feed at its hub: each content that it sends makes the follower read now.

    If this fails, the follower only polls.
    """
    subscriber = websub.HubSubscriber(web, reactor, lambda content: follower.hint(), tell)
    bound = listen_for_hubs(reactor, subscriber, host, port)
    try:
        hub, topic = await websub.find_hub(web, url)
        await subscribe_at_hub(subscriber, hub, topic, domain, bound)
    except ClientError as error:
        tell(f"Polling only: {error}")


@implementer(IEntryHandler)
@define(eq=False)
class JsonLines:
    """Prints entries, each as a line of JSON.

    :param nobody_reads: fired when the reader of stdout closes the pipe.
    """

    # How many entries are printed before the marker is written.
    batch = 1000

    _nobody_reads: Deferred[None]

    async def handle(self, entries: Sequence[Entry], document: str) -> None:
        """Print entries; raises ``EntryFailed`` if the reader has closed the pipe."""
        lines = b"".join(encode_json(each, document) + b"\n" for each in entries)
        try:
            sys.stdout.buffer.write(lines)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            write_no_more()
            if not self._nobody_reads.called:
                self._nobody_reads.callback(None)
            raise EntryFailed("nobody reads the output") from None


@implementer(IEntryHandler)
@define(eq=False)
class Exec:
    """Runs a command of the shell for each entry, with the entry as a line of JSON on stdin."""

    batch = 1

    _reactor: Any
    _command: str

    async def handle(self, entries: Sequence[Entry], document: str) -> None:
        """Run the command for each entry in turn; raises ``EntryFailed`` if it fails."""
        for entry in entries:
            process = _Process(encode_json(entry, document) + b"\n")
            self._reactor.spawnProcess(
                process,
                "/bin/sh",
                ["sh", "-c", self._command],
                env=os.environ,
                childFDs={0: "w", 1: 1, 2: 2},
            )
            await process.ended


class _Process(ProcessProtocol):
    """A command that runs; ``ended`` fails with ``EntryFailed`` if its exit status is not 0."""

    def __init__(self, stdin: bytes) -> None:
        self._stdin = stdin
        self.ended: Deferred[None] = Deferred()

    def connectionMade(self) -> None:
        """Give the command its standard input, all at once."""
        assert self.transport is not None
        self.transport.write(self._stdin)
        self.transport.closeStdin()

    def processEnded(self, reason: Failure) -> None:
        if reason.check(ProcessDone):
            self.ended.callback(None)
            return
        error = reason.value
        assert isinstance(error, ProcessTerminated)
        how = f"signal {error.signal}" if error.signal else f"exit status {error.exitCode}"
        self.ended.errback(EntryFailed(f"the command ended with {how}"))
