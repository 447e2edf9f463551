"""The entries of the event log for those who watch it.

However many watch, the log is read once every half second, and not at all while nobody watches.
The last entries are kept in memory, so that a browser whose connection broke gets what it missed
without a read of its own.  The stream has these events::

    id: 1234
    data: {"id": 1234, "at": "2026-11-22T10:30:00Z", "before": "A ping for ", ...}

    id: 1240                the last entry that was read; sent when nothing else is

    event: skipped          the number of lines that were left out: too many came
    data: 412

    event: gap              lines are missing: the connection was broken for too long
    data: 0
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product, takewhile
from typing import Final, TypeAlias

from attrs import define, field

from rsscloud_broker.interfaces import IEventLog
from rsscloud_broker.model.log_entry import LogEntry, LogFilter
from rsscloud_broker.web.broadcast import EventPage, id_heartbeat

#: How many entries are read at a time, and kept in memory.
KEPT: Final = 2000

#: How many lines a watcher gets at a time; the others are counted.  Nobody reads more.
LINES: Final = 25

_EVERYTHING: Final = LogFilter()
_GAP: Final = b"event: gap\ndata: 0\n\n"


@define(eq=False)
class _ShownEntry:
    """An entry with only what watchers may see, and its bytes in the stream once they are made."""

    entry: LogEntry
    _bytes: bytes = b""

    def data(self, show: Callable[[LogEntry], bytes]) -> bytes:
        """The bytes of the entry in the stream."""
        if not self._bytes:
            self._bytes = b"id: %d\ndata: %s\n\n" % (self.entry.id, show(self.entry))
        return self._bytes


#: Entries by the filters that they pass: topic, host, kind and outcome.
_Index: TypeAlias = Mapping[tuple[str, ...], list[_ShownEntry]]


@define(eq=False)
class LogSource:
    """The source of those who watch the log.  Positions are ids of entries.

    :param disclosed: returns an entry with only what watchers may see.
    :param show: the data of such an entry, on one line.
    """

    heartbeat = staticmethod(id_heartbeat)

    _event_log: IEventLog
    _disclosed: Callable[[LogEntry], LogEntry]
    _show: Callable[[LogEntry], bytes]
    _kept: deque[_ShownEntry] = field(factory=lambda: deque(maxlen=KEPT), init=False)
    # The entries that were read last, the position before them, and where each belongs.
    _news: Sequence[_ShownEntry] = field(default=(), init=False)
    _before: int = field(default=0, init=False)
    _index: _Index = field(factory=dict, init=False)

    async def newest(self, before: int | None) -> int:
        """Read the entries since ``before`` for all watchers; the id of the last of them."""
        if before is None:
            newest = await self._event_log.entries(_EVERYTHING, None, 1)
            before = max((newest[0].id if newest else 0) - KEPT, 0)
            self._kept.clear()
        entries = await self._event_log.entries_after(_EVERYTHING, before, KEPT)
        self._news = [_ShownEntry(self._disclosed(entry)) for entry in entries]
        self._kept.extend(self._news)
        self._before, self._index = before, {}
        return entries[-1].id if entries else before

    async def page(self, wanted: LogFilter, after: int, until: int) -> EventPage[int]:
        """The last lines that pass a filter, after a note of what was left out or is missing."""
        # The oldest that is kept may be the one that comes next, or others were before it.
        is_gap = bool(self._kept) and self._kept[0].entry.id > after + 1
        shown = self._passing(wanted, after)
        data = b"".join(each.data(self._show) for each in shown[-LINES:])
        skipped = len(shown) - LINES
        if skipped > 0:
            data = b"event: skipped\ndata: %d\n\n%s" % (skipped, data)
        return EventPage((_GAP if is_gap else b"") + data, until)

    def _passing(self, wanted: LogFilter, after: int) -> Sequence[_ShownEntry]:
        """The entries after a position that pass a filter."""
        if after == self._before:  # the watcher has had all but the entries that were read last
            self._index = self._index or _index_by_filters(self._news)
            return self._index.get(_fields(wanted), [])
        # Anybody may ask for any position, so no index is made for it.
        recent = takewhile(lambda one: one.entry.id > after, reversed(self._kept))
        return [one for one in recent if wanted.passes(one.entry)][::-1]


def _index_by_filters(shown: Iterable[_ShownEntry]) -> _Index:
    """Entries by all filters that they pass, so that many different watchers cost no more."""
    found = defaultdict(list)
    for one in shown:
        for key in product(*({"", value} for value in _fields(one.entry))):
            found[key].append(one)
    return found


def _fields(of: LogEntry | LogFilter) -> tuple[str, ...]:
    """What the index is made of: the four fields of an entry or a filter."""
    return of.topic, of.host, of.kind, of.outcome
