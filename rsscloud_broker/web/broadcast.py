"""Sends new events to all clients that watch a source, as server-sent events or as other lines.

A `Broadcast` asks its source for the newest position, now and then while anybody watches.  Each
client has a position of its own.  While it is not the newest one, the client gets the next page
from the source, once it has read the page before: so at most one page waits for a client, however
slowly it reads.  Sources make a page once for all clients at the same position.

A client whose connection broke connects again, and says where it was (Last-Event-ID).

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, Generic, Protocol, TypeVar

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.web.http import OK
from twisted.web.server import Request

from rsscloud_broker.errors import StoreStopped, Unavailable
from rsscloud_broker.http.answering import Answer, plain
from rsscloud_broker.http.requests import client_address
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.policy.addresses import bucket_of
from rsscloud_broker.web.streams import Places, Stream
from rsscloud_broker.wire.text import parse_number

P = TypeVar("P")
F_contra = TypeVar("F_contra", contravariant=True)

#: Seconds after which something is sent, so that no proxy closes a silent connection.
HEARTBEAT: Final = 15.0

#: How many clients are written to in one turn of the reactor, so that nothing else waits long.
AT_ONCE: Final = 50

#: How many clients are checked at the same time, whether they may still watch.  Most are due
#: together, and others read the database too.
CHECKED_AT_ONCE: Final = 5

#: A tenth of an address's connections may be streams of one kind.
ADDRESS_SHARE: Final = 10

#: The media type of server-sent events.
EVENTS: Final = "text/event-stream; charset=utf-8"


@define  # not frozen: one is made for each client
class EventPage(Generic[P]):
    """What a client gets at a time.

    :ivar data: perhaps empty.  It is in memory until all clients have read it.
    :ivar after: the position behind it.
    """

    data: bytes
    after: P


class EventSource(Protocol[P, F_contra]):
    """Where a broadcast gets its events.  ``F`` is what a client wants of them.

    Each method but ``heartbeat`` may raise ``Unavailable``; it is called again later.
    """

    def newest(self, before: P | None) -> Awaitable[P]:
        """The position behind all events.

        What most clients are going to want should be in memory then: they are served at once.

        :param before: what it returned the last time; None if nobody watched until now.
        """
        ...

    def page(self, wanted: F_contra, after: P, until: P) -> Awaitable[EventPage[P]]:
        """Events between two positions: as many as may be in memory for a client."""
        ...

    def heartbeat(self, wanted: F_contra, position: P | None) -> bytes:
        """What is sent if nothing is new.

        The bytes name the position.  Otherwise a client that connects again would ask for all
        events since the last one that it wanted, which may be very old.
        """
        ...


def id_heartbeat(wanted: object, position: int | None) -> bytes:
    """A heartbeat with the position, for positions that are ids: see ``EventSource.heartbeat``."""
    return b"id: %d\n\n" % position if position else b":\n\n"


@define(eq=False)
class Broadcast(Generic[P, F_contra]):
    """All clients that watch a source.

    :param places: counts the streams.
    :param name: what is watched, for the log and for the clients: "the event log".
    :param full: the answer to clients for whom there is no place, in a sentence.
    :param period: seconds between two looks for new events; `hint` causes one at once.
    :param may_watch: whether the client of a request may still watch; asked once a minute.
    """

    log = Logger()

    _source: EventSource[P, F_contra]
    _clock: IClock
    _places: Places
    _name: str
    _full: str
    _period: float = 0.5
    _may_watch: Callable[[Request, F_contra], Awaitable[bool]] | None = None
    _checks: DeferredSemaphore = field(
        factory=lambda: DeferredSemaphore(CHECKED_AT_ONCE), init=False
    )
    _streams: set[Stream] = field(factory=set, init=False)
    _newest: P | None = field(default=None, init=False)
    # Clients that have got all events.
    _waiting: list[Deferred[bool]] = field(factory=list, init=False)
    _pause: Deferred[None] | None = field(default=None, init=False)
    _running: bool = field(default=False, init=False)
    _hinted: bool = field(default=False, init=False)
    # Whether the source could not be read lately, and a page for a client since the last look.
    _failing: bool = field(default=False, init=False)
    _page_failed: bool = field(default=False, init=False)

    def answer(
        self,
        request: Request,
        wanted: F_contra,
        after: P | None,
        shares: Mapping[str, int],
        content_type: str = EVENTS,
    ) -> Answer | None:
        """Stream events to a client until it goes away.

        :param after: the position that it has seen; None to begin with the next event.
        :param shares: see ``Places.acquire``.
        :returns: the refusal if there is no place; None if the request is answered.
        """
        if request.channel is None:
            return None  # the client has hung up
        is_head = request.method == b"HEAD"
        if not is_head and not self._places.acquire(shares):
            return plain(503, self._full, {"retry-after": "60", "cache-control": "no-store"})
        request.setResponseCode(OK)
        request.setHeader("content-type", content_type)
        request.setHeader("cache-control", "no-store")
        request.setHeader("x-accel-buffering", "no")  # nginx would gather the lines
        if is_head:
            request.finish()
            return None
        stream = Stream(request)
        self._streams.add(stream)

        def release() -> None:
            """Forget the stream; without any the look for new events ends."""
            self._streams.discard(stream)
            self._places.release(shares)
            if not self._streams:
                self.hint()

        stream.begin(release)
        # It shows that the stream is open: clients ignore a comment, and an empty line.
        opening = b": %s\n\n" % self._name.encode() if content_type == EVENTS else b"\n"
        Deferred.fromCoroutine(self._serve(stream, wanted, after, opening))
        if not self._running:
            self._running = True
            Deferred.fromCoroutine(self._run())
        return None

    def hint(self) -> None:
        """Look for new events now, if anybody watches."""
        self._hinted = True
        if self._pause is not None:
            self._pause.cancel()

    async def _run(self) -> None:
        """Look for new events for as long as anybody watches, and wake those who wait."""
        beat_at = self._clock.seconds() + HEARTBEAT
        while self._streams:
            self._hinted = False
            before, page_failed = self._newest, self._page_failed
            self._page_failed = False
            try:
                self._newest = await self._source.newest(before)
                self._failing = page_failed
            except Unavailable as error:
                self._log_failure(error)
            except Exception:  # log a bug, and try again
                self.log.failure("Looking for what is new in {name} failed.", name=self._name)
            is_beat = self._clock.seconds() >= beat_at
            if is_beat:
                beat_at = self._clock.seconds() + HEARTBEAT
            if is_beat or page_failed or self._newest != before:  # failed pages are tried again
                self._wake(is_beat=is_beat)
            if self._streams and not self._hinted:
                self._pause = deferLater(self._clock, self._period)
                with suppress(CancelledError):
                    await self._pause
                self._pause = None
        self._running = False
        self._newest = None
        self._wake(is_beat=False)  # they have gone

    def _log_failure(self, error: Unavailable) -> None:
        """Log that the source cannot be read, once until it can be read again."""
        if not self._failing and not isinstance(error, StoreStopped):
            self.log.error(
                "{name} cannot be read for those who watch: {error}",
                name=self._name.capitalize(),
                error=error,
            )
        self._failing = True

    def _wake(self, *, is_beat: bool) -> None:
        """Wake those who wait, some in each turn of the reactor; they get ``is_beat``."""
        waiting, self._waiting = self._waiting, []

        async def wake() -> None:
            for start in range(0, len(waiting), AT_ONCE):
                if start:
                    await deferLater(self._clock, 0)
                for each in waiting[start : start + AT_ONCE]:
                    each.callback(is_beat)

        Deferred.fromCoroutine(wake())

    async def _wait_for_news(self) -> bool:
        """Wait until something may be new, or a heartbeat is due; True for a heartbeat."""
        waiting: Deferred[bool] = Deferred()
        self._waiting.append(waiting)
        return await waiting

    # --- one client

    async def _serve(
        self, stream: Stream, wanted: F_contra, after: P | None, opening: bytes
    ) -> None:
        """Send a client what it wants until it goes away; a bug ends its stream."""
        try:
            await stream.send(opening)
            await self._send_all(stream, wanted, after)
        except Exception:  # log a bug; the client connects again
            self.log.failure("A stream of {name} has ended.", name=self._name)
            stream.cut_off()

    async def _send_all(self, stream: Stream, wanted: F_contra, after: P | None) -> None:
        """Send each page that is new for a client, or heartbeats, until it goes away."""
        position = after
        checked_at = self._clock.seconds()
        while not stream.over:
            newest = self._newest
            position = newest if position is None else position
            page = None
            if newest is not None and position is not None and position != newest:
                page = await self._read_page(wanted, position, newest)
            if page is not None and page.after != position:
                position = page.after
                await stream.send(page.data)
            elif await self._wait_for_news():
                await stream.send(self._source.heartbeat(wanted, position))
            # A minute at most passes until a client that has signed out is noticed, also one that
            # reads so slowly that there is always something new for it.
            if self._clock.seconds() - checked_at > 60.0 - HEARTBEAT:
                checked_at = self._clock.seconds()
                await self._end_if_forbidden(stream, wanted)

    async def _read_page(self, wanted: F_contra, after: P, until: P) -> EventPage[P] | None:
        """Read the next page for a client; None if the source cannot be read now."""
        try:
            return await self._source.page(wanted, after, until)
        except Unavailable as error:
            self._log_failure(error)
            self._page_failed = True
            return None

    async def _end_if_forbidden(self, stream: Stream, wanted: F_contra) -> None:
        """End a stream whose client may not watch any more."""
        if self._may_watch is None:
            return
        await self._checks.acquire()
        try:
            if not (stream.over or await self._may_watch(stream.request, wanted)):
                stream.cut_off()
        except Unavailable as error:
            self._log_failure(error)  # it is checked again later
        finally:
            self._checks.release()


def address_of(request: Request) -> str:
    """The key of a client in `Places`: its IPv4 address, or its IPv6 network of 64 bits."""
    return bucket_of(client_address(request))


def last_event_id(request: Request) -> int | None:
    """The id after which a browser goes on whose connection broke; None if it says none."""
    (sent, *_) = request.requestHeaders.getRawHeaders("last-event-id") or [""]
    return parse_number(sent)
