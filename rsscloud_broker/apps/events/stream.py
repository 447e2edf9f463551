"""Streams new entries to crawlers, as server-sent events or as lines of JSON.

::

    id: 12-346
    data: {"position":"12-346","kind":"ping","id":"urn:uuid:...","title":"My weblog",...}

    event: gap                        entries are missing: they were removed meanwhile
    data: {"position":"12-340","kind":"gap"}

A position says how many changes and how many pings there were until then.  ``docs/events.rst`` has
the paths and the parameters.

``web.broadcast`` says what happens to a client that reads slowly.  The lines are made once for all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from attrs import evolve, field, frozen
from sqlalchemy import Connection
from twisted.internet.defer import DeferredSemaphore
from twisted.web.server import Request

from rsscloud_broker.apps.events.names import CHANGES, PINGS
from rsscloud_broker.http.answering import Answer, plain
from rsscloud_broker.http.requests import parameter
from rsscloud_broker.interfaces import IClock, IDatabase
from rsscloud_broker.simplefeed import log
from rsscloud_broker.simplefeed.entries import Entry, encode_json
from rsscloud_broker.util.caches import TimedCache
from rsscloud_broker.web.broadcast import ADDRESS_SHARE, EVENTS, Broadcast, EventPage, address_of
from rsscloud_broker.wire.negotiation import preferred
from rsscloud_broker.wire.text import clean

#: How many entries of each log are read at a time.
PAGE: Final = 200

LINES: Final = "application/x-ndjson"

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
    """An entry as JSON, or a gap (``kind``), with the position behind it.

    :ivar of: the kind of the entry, or of the entries that are missing; empty if both are.
    """

    kind: str
    position: StreamPosition
    data: bytes
    of: str


@frozen
class EntryPage:
    """Entries that follow a position, as lines.

    :ivar after: the position behind them.
    """

    lines: Sequence[_Line]
    after: StreamPosition
    # What ``data`` has returned, since many clients want the same bytes.
    _made_bytes: dict[tuple[str, bool], bytes] = field(factory=dict, init=False)

    def data(self, kind: str, *, as_lines: bool) -> bytes:
        """The bytes of the lines of a kind, with gaps; of all kinds if it is empty."""
        key = kind, as_lines
        if key not in self._made_bytes:
            make = _as_line if as_lines else _as_event
            chosen = (one for one in self.lines if kind in ("", one.of) or not one.of)
            self._made_bytes[key] = b"".join(map(make, chosen))
        return self._made_bytes[key]


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
    """The entries between two positions, the oldest first, as many as fit; after a gap, if any."""
    lines: list[_Line] = []
    start = _skip_gap(conn, after, until)
    if start != after:
        lines.append(_make_line("gap", start, b"{}", _missing_kind(after, start)))
    changes = _read_entries(conn, CHANGES, start.changes, until.changes)
    pings = _read_entries(conn, PINGS, start.pings, until.pings)
    both = [("change", each) for each in changes] + [("ping", each) for each in pings]
    position = start
    for kind, entry in sorted(both, key=lambda each: each[1].updated):
        if kind == "change":
            position = evolve(position, changes=position.changes + 1)
        else:
            position = evolve(position, pings=position.pings + 1)
        lines.append(_make_line(kind, position, encode_json(entry, ""), kind))
    return EntryPage(lines, position)


def _skip_gap(conn: Connection, after: StreamPosition, until: StreamPosition) -> StreamPosition:
    """The position at which a page can begin: the given one, or a later one if entries that
    follow were removed; or the newest, if the client has the given one from another database.
    """
    if after.changes > until.changes or after.pings > until.pings:
        return until
    oldest = {name: log.oldest_number(conn, name) or 1 for name in (CHANGES, PINGS)}
    return StreamPosition(
        max(after.changes, oldest[CHANGES] - 1), max(after.pings, oldest[PINGS] - 1)
    )


def _missing_kind(after: StreamPosition, start: StreamPosition) -> str:
    """The kind of the entries that are missing between two positions; empty if both may be."""
    if start.changes == after.changes and start.pings > after.pings:
        return "ping"
    if start.pings == after.pings and start.changes > after.changes:
        return "change"
    return ""


def _read_entries(conn: Connection, name: str, after: int, until: int) -> list[Entry]:
    """The entries of a log behind its first ``after`` ones, as many as fit on a page."""
    limit = min(PAGE, until - after)
    found = log.entries_after(conn, name, after, limit) if limit > 0 else []
    return [entry for _, entry in found or []]


def _make_line(kind: str, position: StreamPosition, data: bytes, of: str) -> _Line:
    """A line whose JSON begins with its position and kind, followed by the members of ``data``."""
    head = b'{"position":"%s","kind":"%s"' % (str(position).encode(), kind.encode())
    return _Line(kind, position, head + (b"," if data != b"{}" else b"") + data[1:], of)


@frozen
class WantedEntries:
    """Which entries a client gets, and in what form.

    :ivar kind: ``ping`` or ``change``; empty for both.
    :ivar as_lines: whether it gets lines of JSON.
    """

    kind: str
    as_lines: bool


class EntrySource:
    """The source of those who watch the entries."""

    def __init__(self, database: IDatabase, clock: IClock) -> None:
        self._database = database
        self._reads = DeferredSemaphore(2)
        # Many clients read the same pages: 32 of them are kept, each for 60 seconds.
        self._pages = TimedCache(self._read_between, clock, 60.0, 32)

    async def newest(self, before: StreamPosition | None) -> StreamPosition:
        """The position behind all entries; reads the page since ``before`` for many clients."""
        position: StreamPosition = await self._database.read(newest)
        if before is not None and before != position:
            with suppress(Exception):  # those who want the page learn what is wrong
                await self._pages.get((before, position))
        return position

    async def page(
        self, wanted: WantedEntries, after: StreamPosition, until: StreamPosition
    ) -> EventPage[StreamPosition]:
        """The bytes of the entries between two positions, as a client wants them."""
        page = await self._pages.get((after, until))
        return EventPage(page.data(wanted.kind, as_lines=wanted.as_lines), page.after)

    async def _read_between(self, between: tuple[StreamPosition, StreamPosition]) -> EntryPage:
        """Read the entries between two positions; at most two such reads run at a time."""
        after, until = between
        operation = partial(read_page, after=after, until=until)
        async with self._reads:
            page: EntryPage = await self._database.read(operation)
        return page

    def heartbeat(self, wanted: WantedEntries, position: StreamPosition | None) -> bytes:
        """What a client gets if nothing is new; server-sent events have the position."""
        if wanted.as_lines:
            return b"\n"
        return b"id: %s\n\n" % str(position).encode() if position else b":\n\n"


async def answer_stream(
    broadcast: Broadcast[StreamPosition, WantedEntries],
    request: Request,
    *,
    only_lines: bool = False,
) -> Answer | None:
    """Begin a stream, or say why there is none.

    :param only_lines: whether all clients get lines of JSON.
    """
    only, after = parameter(request, "only"), parameter(request, "after")
    if only not in _KINDS:
        return plain(400, f"only={clean(only)[:30]} is not known: write only=pings or only=changes")
    if after and StreamPosition.of(after) is None:
        return plain(
            400,
            f"after={clean(after)[:60]} is not a position: send the last one that you have "
            'seen, which is such as "12-345"',
        )
    position = StreamPosition.of(request.getHeader("last-event-id") or after)
    wanted = preferred(request.getHeader("accept"), ("text/event-stream", LINES))
    as_lines = only_lines or wanted == LINES
    if not only_lines:
        request.setHeader("vary", "Accept")
    return broadcast.answer(
        request,
        WantedEntries(_KINDS[only], as_lines),
        position,
        {address_of(request): ADDRESS_SHARE},
        LINES if as_lines else EVENTS,
    )
