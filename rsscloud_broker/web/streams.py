"""Writes to clients however slowly they read, and counts the streams.

A `Stream` is one client that reads.  The broker writes ``PIECE`` bytes at a time, and only while
the connection has room.  A client that leaves its connection full for as long as a connection may
be idle (``idle_timeout``) is cut off: the connection itself sees to that.

`Places` counts the streams, since each holds a connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.web.server import Request
from zope.interface import implementer

#: How many bytes are written at a time.  The connection copies them into a buffer of its own, and
#: says that it is full only afterwards.
PIECE: Final = 16 * 1024


@implementer(IPushProducer)
@define(eq=False)
class Stream:
    """One client that reads.

    :ivar over: whether the connection has ended.
    """

    request: Request
    over: bool = False
    _paused: bool = False
    _waiting: Deferred[None] | None = None

    def begin(self, gone: Callable[[], None] = lambda: None) -> None:
        """Begin to stream.

        :param gone: called once when the connection has ended.
        """

        def end(result: object) -> None:
            self.stopProducing()
            gone()

        self.request.notifyFinish().addBoth(end)
        self.request.registerProducer(self, True)

    async def send(self, data: bytes) -> None:
        """Send some bytes, and wait until the connection has room for more, or has ended."""
        for start in range(0, len(data), PIECE):
            if self._paused:
                await self._wait_for_room()
            if self.over:
                return
            self.request.write(data[start : start + PIECE])
        if self._paused:
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        """Wait until the connection has room, or has ended."""
        if not self.over:
            self._waiting = Deferred()
            await self._waiting

    def cut_off(self) -> None:
        """End the connection at once."""
        if self.request.channel is not None:
            self.request.channel.forceAbortClient()

    def pauseProducing(self) -> None:
        """The connection has no room: ``send`` waits until it has."""
        self._paused = True

    def resumeProducing(self) -> None:
        self._paused = False
        self._wake_sender()

    def stopProducing(self) -> None:
        self.over = True
        self._wake_sender()

    def _wake_sender(self) -> None:
        """Wake ``send``, if it waits."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)


class Places:
    """Counts streams: in all, and by keys, such as the address or the account of a client.

    :param most: returns how many connections the broker accepts: half of them may be streams, so
        that the others get answers.
    :param most_of_each: returns how many connections one address may have.
    """

    def __init__(self, most: Callable[[], int], most_of_each: Callable[[], int]) -> None:
        self._most = most
        self._most_of_each = most_of_each
        self._taken: Counter[str] = Counter()  # streams by key
        self._all = 0  # streams

    def acquire(self, shares: Mapping[str, int]) -> bool:
        """Take a place for a stream, if there is one.

        :param shares: under which keys the stream counts, such as the client's address; each with
            the share of one address's connections that may be such streams: 10 for a tenth.
        """
        limits = {key: max(1, self._most_of_each() // share) for key, share in shares.items()}
        if self._all >= self._most() // 2 or any(self._taken[key] >= limits[key] for key in limits):
            return False
        self._all += 1
        self._taken.update(shares.keys())
        return True

    def release(self, shares: Mapping[str, int]) -> None:
        """Give back a place that `acquire` has taken."""
        self._all -= 1
        for key in shares:
            self._taken[key] -= 1
            if not self._taken[key]:
                del self._taken[key]
