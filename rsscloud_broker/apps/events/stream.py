"""Streams new entries to crawlers, as server-sent events or as lines of JSON.

::

    GET /events/stream                          server-sent events
    GET /events/stream.jsonl                    the same as lines of JSON
    GET /events/stream?only=pings               pings only; or changes
    GET /events/stream?after=12-345             go on after a position

A client that asks for ``application/x-ndjson`` gets lines of JSON at the first path too.  The
events are::

    id: 12-346
    data: {"position":"12-346","kind":"ping","id":"urn:uuid:...","title":"My weblog",...}

    event: gap                        entries are missing: they were removed meanwhile
    data: {"position":"12-340","kind":"gap"}

A position says how many changes and how many pings there were until then.  A client whose
connection broke goes on after the last position that it has (``Last-Event-ID``, or ``after``): the
entries are read from the logs, however long ago that was.

Each watcher gets the next lines when it has read the last ones, so that nothing waits in memory for
it.  One that reads nothing for a minute is cut off.  The lines are made once for all who watch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from attrs import define, evolve, field, frozen
from sqlalchemy import Connection
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from rsscloud_broker.apps.events.names import CHANGES, PINGS
from rsscloud_broker.errors import StoreStopped, Unavailable
from rsscloud_broker.http.answering import plain, send
from rsscloud_broker.http.requests import parameter
from rsscloud_broker.interfaces import IClock, IDatabase
from rsscloud_broker.simplefeed import json, log
from rsscloud_broker.simplefeed.entries import Entry
from rsscloud_broker.web.streams import HEARTBEAT, Places, Stream, address_of, set_headers
from rsscloud_broker.wire.negotiation import preferred
from rsscloud_broker.wire.text import clean

#: How many entries of each log are read at a time.
PAGE: Final = 200

#: How many watchers are served in one turn of the reactor.
AT_ONCE: Final = 50

LINES: Final = "application/x-ndjson"
EVENTS: Final = "text/event-stream"

_POSITION: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")
_KINDS: Final = {"": "", "pings": "ping", "changes": "change"}


@frozen
class StreamPosition:
    """How many changes and how many pings somebody has seen."""

    changes: int
    pings: int

    def __str__(self) -> str:
        return f"{self.changes}-{self.pings}"

    @classmethod
    def of(cls, text: str) -> StreamPosition | None:
        """The position that a text says; None if it says none."""
        found = _POSITION.fullmatch(text)
        return cls(int(found[1]), int(found[2])) if found else None


@frozen
class _Line:
    kind: str
    position: StreamPosition
    data: bytes


@frozen
class EntryPage:
    """Entries that follow a position, as lines.

    :ivar after: the position behind them.
    """

    lines: Sequence[_Line]
    after: StreamPosition
    _made: dict[tuple[str, bool], bytes] = field(factory=dict, init=False)

    def data(self, kind: str, *, as_lines: bool) -> bytes:
        """The bytes of the lines of a kind; of all kinds if it is empty."""
        key = kind, as_lines
        if key not in self._made:
            make = _as_line if as_lines else _as_event
            chosen = (one for one in self.lines if kind in ("", one.kind) or one.kind == "gap")
            self._made[key] = b"".join(map(make, chosen))
        return self._made[key]


def _as_line(line: _Line) -> bytes:
    return line.data + b"\n"


def _as_event(line: _Line) -> bytes:
    event = b"event: gap\n" if line.kind == "gap" else b""
    return b"%sid: %s\ndata: %s\n\n" % (event, str(line.position).encode(), line.data)


def newest(conn: Connection) -> StreamPosition:
    """The position behind all entries."""
    changes, pings = (log.find_log(conn, name) for name in (CHANGES, PINGS))
    return StreamPosition(changes.count if changes else 0, pings.count if pings else 0)


def read_page(conn: Connection, after: StreamPosition, until: StreamPosition) -> EntryPage:
    """The entries between two positions, as many as fit on a page."""
    lines: list[_Line] = []
    start = _without_gap(conn, after, until)
    if start != after:
        lines.append(_line("gap", start, b"{}"))
    changes = _entries(conn, CHANGES, start.changes, until.changes)
    pings = _entries(conn, PINGS, start.pings, until.pings)
    both = [("change", each) for each in changes] + [("ping", each) for each in pings]
    position = start
    for kind, entry in sorted(both, key=lambda each: each[1].updated):
        if kind == "change":
            position = evolve(position, changes=position.changes + 1)
        else:
            position = evolve(position, pings=position.pings + 1)
        lines.append(_line(kind, position, json.encode(entry, "")))
    return EntryPage(lines, position)


def _without_gap(conn: Connection, after: StreamPosition, until: StreamPosition) -> StreamPosition:
    """The position itself; or a later one, if entries that follow were removed; or the newest, if
    there are no such positions yet, since the database is another one.
    """
    if after.changes > until.changes or after.pings > until.pings:
        return until
    oldest = {name: log.oldest_number(conn, name) or 1 for name in (CHANGES, PINGS)}
    return StreamPosition(
        max(after.changes, oldest[CHANGES] - 1), max(after.pings, oldest[PINGS] - 1)
    )


def _entries(conn: Connection, name: str, after: int, until: int) -> list[Entry]:
    limit = min(PAGE, until - after)
    found = log.entries_after(conn, name, after, limit) if limit > 0 else []
    return [entry for _, entry in found or []]


def _line(kind: str, position: StreamPosition, data: bytes) -> _Line:
    head = b'{"position":"%s","kind":"%s"' % (str(position).encode(), kind.encode())
    return _Line(kind, position, head + (b"," if data != b"{}" else b"") + data[1:])


@define(eq=False)
class Watcher(Stream):
    """One client that reads the stream.

    :ivar kind: ``ping`` or ``change``; empty for both.
    :ivar as_lines: whether it gets lines of JSON.
    """

    kind: str = field(kw_only=True)
    as_lines: bool = field(kw_only=True)


class Watchers:
    """All who watch the stream.

    :param places: counts those who watch, by address.
    """

    log = Logger()

    def __init__(self, database: IDatabase, clock: IClock, places: Places) -> None:
        self._database = database
        self._clock = clock
        self.places = places
        self._watching: set[Watcher] = set()
        # How many reads may run at the same time.
        self._reads = DeferredSemaphore(2)
        self._pages: dict[tuple[StreamPosition, StreamPosition], EntryPage] = {}
        # Those who wait for a page that is being read.
        self._sharing: dict[tuple[StreamPosition, StreamPosition], list[Deferred[None]]] = {}
        # The position behind all entries, once it is known since somebody watches.
        self._newest: StreamPosition | None = None
        self._waiting: list[Deferred[None]] = []
        self._running = False
        self._failing = False

    def __len__(self) -> int:
        return len(self._watching)

    def add(
        self, request: Request, kind: str, after: StreamPosition | None, *, as_lines: bool
    ) -> None:
        """Stream entries to a client until it goes away.

        :param after: the position that it has seen; None to begin with the next entry.
        """
        address = address_of(request)
        self.places.take(address)
        watcher = Watcher(request, kind=kind, as_lines=as_lines)
        self._watching.add(watcher)

        def gone() -> None:
            self._watching.discard(watcher)
            self.places.leave(address)

        watcher.begin(b"" if as_lines else b"the events", gone)
        if as_lines:
            watcher.send(b"\n")  # so that the client sees that the stream is open
        Deferred.fromCoroutine(self._serve(watcher, after))
        if not self._running:
            self._running = True
            Deferred.fromCoroutine(self._run())

    # --- looking for new entries

    async def _run(self) -> None:
        """Look for new entries for as long as anybody watches, and wake those who wait."""
        while self._watching:
            try:
                self._newest = await self._database.read(newest)
                self._failing = False
            except Unavailable as error:
                self._fail(error)
            except Exception:  # log a bug, and try again
                self.log.failure("New events could not be looked up for those who watch them.")
            waiting, self._waiting = self._waiting, []
            await self._wake(waiting)
            # Seconds between two looks for new entries.
            await deferLater(self._clock, 0.5)
        self._running = False
        self._newest = None
        self._pages.clear()

    def _fail(self, error: Unavailable) -> None:
        if not self._failing and not isinstance(error, StoreStopped):
            self._failing = True
            self.log.error("The events cannot be read for those who watch: {error}", error=error)

    async def _wake(self, waiting: Sequence[Deferred[None]]) -> None:
        """Wake those who wait, some in each turn of the reactor."""
        for start in range(0, len(waiting), AT_ONCE):
            if start:
                await deferLater(self._clock, 0)
            for each in waiting[start : start + AT_ONCE]:
                each.callback(None)

    async def _look(self) -> None:
        """Wait until there was another look for new entries."""
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        await waiting

    # --- one watcher

    async def _serve(self, watcher: Watcher, after: StreamPosition | None) -> None:
        try:
            await self._stream(watcher, after)
        except Exception:  # log a bug; the client comes again
            self.log.failure("The stream of events to a client has ended.")
            watcher.cut_off()

    async def _stream(self, watcher: Watcher, after: StreamPosition | None) -> None:
        position = after
        beat_at = self._clock.seconds() + HEARTBEAT
        while not watcher.over:
            if self._newest is None or position is None or position == self._newest:
                position = position or self._newest
                await self._look()
            else:
                page = await self._page(position, self._newest)
                if page is None or page.after == position:
                    await self._look()
                    continue
                position = page.after
                if data := page.data(watcher.kind, as_lines=watcher.as_lines):
                    watcher.send(data)
                    beat_at = self._clock.seconds() + HEARTBEAT
            if self._clock.seconds() >= beat_at:
                beat_at = self._clock.seconds() + HEARTBEAT
                watcher.send(_heartbeat(watcher, position))
            await self._drained(watcher)

    async def _page(self, after: StreamPosition, until: StreamPosition) -> EntryPage | None:
        """The entries between two positions; None if they cannot be read now.

        Watchers that want the same page at the same time share one read.
        """
        key = after, until
        if key in self._pages:
            return self._pages[key]
        if key in self._sharing:
            waiting: Deferred[None] = Deferred()
            self._sharing[key].append(waiting)
            await waiting
            return self._pages.get(key)
        self._sharing[key] = []
        try:
            return await self._read(key)
        except Unavailable as error:
            self._fail(error)
            return None
        finally:
            Deferred.fromCoroutine(self._wake(self._sharing.pop(key)))

    async def _read(self, key: tuple[StreamPosition, StreamPosition]) -> EntryPage:
        after, until = key
        await self._reads.acquire()
        try:
            page: EntryPage = await self._database.read(
                partial(read_page, after=after, until=until)
            )
        finally:
            self._reads.release()
        # How many pages are kept in memory, for those who read the same.
        while len(self._pages) >= 32:
            del self._pages[next(iter(self._pages))]
        self._pages[key] = page
        return page

    async def _drained(self, watcher: Watcher) -> None:
        """Wait until a watcher has read what was sent; cut it off if it reads nothing."""
        drained = Deferred.fromCoroutine(watcher.drained())
        if drained.called:
            return
        # Seconds after which a watcher is cut off that does not read.
        timer = self._clock.callLater(60.0, watcher.cut_off)
        with suppress(CancelledError):
            await drained
        if timer.active():
            timer.cancel()


def _heartbeat(watcher: Watcher, position: StreamPosition | None) -> bytes:
    """What is sent when there is nothing new, so that no proxy closes the connection.

    It has the position, since entries of another kind may have come.
    """
    if watcher.as_lines:
        return b"\n"
    return b"id: %s\n\n" % str(position).encode() if position else b":\n\n"


class StreamResource(Resource):
    """The resource of the stream.

    :param as_lines: whether all clients get lines of JSON.
    """

    isLeaf = True

    def __init__(self, watchers: Watchers, *, as_lines: bool) -> None:
        super().__init__()
        self._watchers = watchers
        self._as_lines = as_lines

    def render_HEAD(self, request: Request) -> bytes:
        self._set_headers(request)
        return b""

    def render_GET(self, request: Request) -> int:
        only, after = parameter(request, "only"), parameter(request, "after")
        last = request.getHeader("last-event-id") or after
        position = StreamPosition.of(last)
        if only not in _KINDS:
            return _say(
                request,
                400,
                f"only={clean(only)[:30]} is not known: write only=pings or only=changes",
            )
        if after and StreamPosition.of(after) is None:
            return _say(
                request,
                400,
                f"after={clean(after)[:60]} is not a position: send the last one that you have "
                'seen, which is such as "12-345"',
            )
        if not self._watchers.places.has_room(address_of(request)):
            request.setHeader("retry-after", "60")
            return _say(request, 503, "As many watch the events as may. Please come again later.")
        as_lines = self._set_headers(request)
        self._watchers.add(request, _KINDS[only], position, as_lines=as_lines)
        return NOT_DONE_YET

    def _set_headers(self, request: Request) -> bool:
        """Set the headers of the answer; returns whether the client gets lines of JSON."""
        wanted = preferred(request.getHeader("accept"), (EVENTS, LINES))
        as_lines = self._as_lines or wanted == LINES
        set_headers(request)
        if as_lines:
            request.setHeader("content-type", LINES)
        if not self._as_lines:
            request.setHeader("vary", "Accept")
        return as_lines


def _say(request: Request, status: int, text: str) -> int:
    send(request, plain(status, text))
    return NOT_DONE_YET
