"""Sends server-sent events to browsers, however slowly they read and however many there are.

A `Stream` is one browser that reads events.  The broker writes ``PIECE`` bytes at a time, until the
connection is full.  What is left waits, and once more than ``MAX_BACKLOG`` bytes wait, the broker
cuts the browser off.  It also cuts off a browser that leaves its connection full for as long as a
connection may be idle (``idle_timeout``): the connection itself sees to that.  The browser connects
again by itself, and says where it was
(https://html.spec.whatwg.org/multipage/server-sent-events.html).

`Places` counts the streams, since each holds a connection.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.internet.task import deferLater
from twisted.web.http import OK
from twisted.web.server import Request
from zope.interface import implementer

from rsscloud_broker.http.requests import client_address
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.policy.addresses import bucket_of

T = TypeVar("T")

#: Seconds after which something is sent, so that no proxy closes a silent connection.
HEARTBEAT: Final = 15.0

#: How many bytes wait for a browser that does not read, besides those in its connection's buffer
#: and those of the last call of ``send``.
MAX_BACKLOG: Final = 64 * 1024

#: How many bytes are written at a time.  The connection copies them into a buffer of its own, and
#: says that it is full only afterwards.
PIECE: Final = 16 * 1024

#: How many streams are written to in one turn of the reactor, so that nothing else waits long.
AT_ONCE: Final = 50

#: The id of an event in a request.  No table has as many rows.
EVENT_ID: Final = re.compile("[0-9]{1,18}")


@implementer(IPushProducer)
@define(eq=False)
class Stream:
    """One browser that reads events.

    :ivar over: whether the connection has ended.
    """

    request: Request
    over: bool = False
    _paused: bool = False
    _backlog: deque[memoryview] = field(factory=deque)  # not copied: many share an event
    _bytes: int = 0
    _waiting: list[Deferred[None]] = field(factory=list)

    def begin(self, comment: bytes, gone: Callable[[], None]) -> None:
        """Begin to stream.

        :param comment: a word that the browser ignores, which shows that the stream is open; empty
            for none.
        :param gone: called once when the connection has ended.
        """

        def end(result: object) -> None:
            self.stopProducing()
            gone()

        self.request.notifyFinish().addBoth(end)
        self.request.registerProducer(self, True)
        if comment:
            self.send(b": %s\n\n" % comment)

    def send(self, data: bytes) -> None:
        """Send some bytes as soon as the browser reads; cut it off if too many wait before them.

        :param data: at most ``MAX_BACKLOG`` bytes.  Whoever has more sends them in parts, and waits
            for ``drained`` between them: otherwise a browser that reads is cut off, too.
        """
        if self.over or not data:
            return
        if self._bytes > MAX_BACKLOG:
            self.cut_off()
            return
        self._backlog.append(memoryview(data))
        self._bytes += len(data)
        self._write()

    def _write(self) -> None:
        """Write what waits, until the connection is full."""
        while self._backlog and not self._paused and not self.over:
            data = self._backlog.popleft()
            piece, rest = data[:PIECE], data[PIECE:]
            if rest:
                self._backlog.appendleft(rest)
            self._bytes -= len(piece)
            self.request.write(bytes(piece))

    @property
    def is_full(self) -> bool:
        """Whether something waits until the browser reads."""
        return self._paused and not self.over

    async def drained(self) -> None:
        """Wait until the browser has read what was sent, or has gone."""
        if self.is_full:
            waiting: Deferred[None] = Deferred()
            self._waiting.append(waiting)
            await waiting

    def cut_off(self) -> None:
        """End the connection at once.  The browser connects again."""
        if self.request.channel is not None:
            self.request.channel.forceAbortClient()

    def pauseProducing(self) -> None:
        self._paused = True

    def resumeProducing(self) -> None:
        self._paused = False
        self._write()
        if not self._paused:
            self._go_on()

    def stopProducing(self) -> None:
        self.over = True
        self._backlog.clear()
        self._bytes = 0
        self._go_on()

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)


class Places:
    """Counts streams: in all, and of each address or account.

    :param most: returns how many connections the broker accepts: half of them may be streams, so
        that the others get answers.
    :param most_of_each: returns how many connections one address may have.
    :param share: the part of these, one in so many, that may be streams of one address or account.
    """

    def __init__(
        self, most: Callable[[], int], most_of_each: Callable[[], int], share: int = 10
    ) -> None:
        self._most = most
        self._most_of_each = most_of_each
        self._share = share
        self._taken: Counter[str] = Counter()
        self._all = 0

    def has_room(self, key: str) -> bool:
        """Whether one more stream of an address or an account may begin."""
        of_each = max(1, self._most_of_each() // self._share)
        return self._all < self._most() // 2 and self._taken[key] < of_each

    def take(self, key: str) -> None:
        """Count a stream that begins."""
        self._all += 1
        self._taken[key] += 1

    def leave(self, key: str) -> None:
        """Count a stream that has ended."""
        self._all -= 1
        self._taken[key] -= 1
        if not self._taken[key]:
            del self._taken[key]


def address_of(request: Request) -> str:
    """The key of a client's address in `Places`: its IPv4 address, or its IPv6 network of 64 bits,
    which one client may have to itself.
    """
    return bucket_of(client_address(request))


def set_headers(request: Request) -> None:
    """Set the headers of the answer that is a stream."""
    request.setResponseCode(OK)
    request.setHeader("content-type", "text/event-stream; charset=utf-8")
    request.setHeader("cache-control", "no-store")
    request.setHeader("x-accel-buffering", "no")  # nginx would gather the lines


def last_event_id(request: Request) -> int | None:
    """The id after which a browser goes on whose connection broke; None if it says none."""
    (sent, *_) = request.requestHeaders.getRawHeaders("last-event-id") or [""]
    return int(sent) if EVENT_ID.fullmatch(sent) else None


async def in_turns(clock: IClock, each: Callable[[T], None], items: Sequence[T]) -> None:
    """Call a function with each of some items, ``AT_ONCE`` of them in each turn of the reactor."""
    for start in range(0, len(items), AT_ONCE):
        if start:
            await deferLater(clock, 0)
        for item in items[start : start + AT_ONCE]:
            each(item)
