"""Streams the event log to browsers as server-sent events, while they watch.

However many people watch, the log is read once every half second, and not at all while nobody
watches.  ``LogWatchers`` keeps the last entries in memory, so that a browser whose connection broke
gets what it missed without a read of its own.  Watchers with the same filter share their text.

``streams`` says what happens to a browser that reads slowly.  The stream has these events::

    id: 1234
    data: {"id": 1234, "at": "2026-11-22T10:30:00Z", "before": "A ping for ", ...}

    id: 1240                the last entry that was read; sent when nothing else is

    event: skipped          so many lines were left out, since too many came at once
    data: 412

    event: gap              lines are missing: the connection was broken for too long
    data: 0
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.web.server import Request

from rsscloud_broker.errors import StoreStopped, Unavailable
from rsscloud_broker.interfaces import IClock, IEventLog
from rsscloud_broker.model.log_entry import LogEntry, LogFilter
from rsscloud_broker.web.streams import HEARTBEAT, Places, Stream, in_turns

#: How many entries are read at a time, and how many are kept in memory.
READ, KEPT = 5000, 2000

#: How many lines a watcher gets at a time; the others are counted.  Nobody reads more.
LINES: Final = 25

_EVERYTHING: Final = LogFilter()
_GAP: Final = b"event: gap\ndata: 0\n\n"


@define(eq=False)
class LogWatcher(Stream):
    """One browser that watches the log.

    :ivar wanted: which entries it wants.
    """

    wanted: LogFilter = field(kw_only=True)


@define(eq=False)
class _Shown:
    """An entry with only what watchers may see, and its bytes in the stream once they are made."""

    entry: LogEntry
    _bytes: bytes = b""

    def data(self, show: Callable[[LogEntry], bytes]) -> bytes:
        """The bytes of the entry in the stream."""
        if not self._bytes:
            self._bytes = b"id: %d\ndata: %s\n\n" % (self.entry.id, show(self.entry))
        return self._bytes


class LogWatchers:
    """All who watch the log.

    :param disclosed: returns an entry with only what watchers may see.
    :param show: the data of such an entry, on one line.
    :param places: counts those who watch, by address.
    """

    log = Logger()

    def __init__(
        self,
        event_log: IEventLog,
        clock: IClock,
        disclosed: Callable[[LogEntry], LogEntry],
        show: Callable[[LogEntry], bytes],
        places: Places,
    ) -> None:
        self._event_log = event_log
        self._clock = clock
        self._disclosed = disclosed
        self._show = show
        self._places = places
        self._joining: dict[
            LogWatcher, int | None
        ] = {}  # each with the last entry that it has seen
        self._watchers: dict[LogWatcher, None] = {}
        self._kept: deque[_Shown] = deque(maxlen=KEPT)
        # The id of the last entry that was read; None until the first read.
        self._position: int | None = None
        self._running = False
        self._has_read = False  # whether there was a read since it runs
        self._pause: Deferred[None] | None = None
        self._failing = False
        self._beat_at = 0.0

    def __len__(self) -> int:
        return len(self._watchers) + len(self._joining)

    def has_room(self, address: str) -> bool:
        """Whether one more may watch from an address; see ``streams.address_of``."""
        return self._places.has_room(address)

    def add(self, request: Request, wanted: LogFilter, after: int | None, address: str) -> None:
        """Stream entries to a browser until it goes away.

        :param after: the id of the last entry that it has seen; None to begin with the next one.
        """
        self._places.take(address)
        watcher = LogWatcher(request, wanted=wanted)

        def gone() -> None:
            self._joining.pop(watcher, None)
            self._watchers.pop(watcher, None)
            self._places.leave(address)
            if not self and self._pause is not None:
                self._pause.cancel()

        watcher.begin(b"the event log", gone)
        if self._has_read:
            self._watchers[watcher] = None
            watcher.send(self._missed(wanted, after))
            return
        self._joining[watcher] = after
        if not self._running:
            self._running = True
            Deferred.fromCoroutine(self._run())

    # --- reading

    async def _run(self) -> None:
        """Read the log, and send what is new, for as long as anybody watches."""
        self._position = None
        self._beat_at = self._clock.seconds() + HEARTBEAT
        while self:
            try:
                await self._send_news()
                self._failing = False
            except Unavailable as error:
                if not self._failing and not isinstance(error, StoreStopped):
                    self._failing = True
                    self.log.error("The event log cannot be read: {error}", error=error)
            except Exception:  # log a bug, and try again
                self.log.failure("Sending the event log to those who watch it failed.")
            await self._rest()
        self._running = self._has_read = False

    async def _rest(self) -> None:
        """Wait for half a second, or until nobody watches any more."""
        if not self:
            return
        self._pause = deferLater(self._clock, 0.5)
        with suppress(CancelledError):
            await self._pause
        self._pause = None

    async def _send_news(self) -> None:
        if self._position is None:
            newest = await self._event_log.entries(_EVERYTHING, None, 1)
            self._go_to(max((newest[0].id if newest else 0) - KEPT, 0))
        news = await self._read()
        for_whom = list(self._watchers)
        self._has_read = True
        await self._admit()
        data = self._chosen(news, for_whom)
        if self._clock.seconds() >= self._beat_at:
            self._beat_at = self._clock.seconds() + HEARTBEAT
            for watcher in for_whom:
                data.setdefault(watcher.wanted, self._heartbeat())
        if data:
            await self._send(data, for_whom)

    def _heartbeat(self) -> bytes:
        """What is sent to those for whom there is nothing new, so that no proxy cuts them off.

        It has the id of the last entry: otherwise a browser that connects again would ask for
        all entries since the last one that passed its filter, which may be very old.
        """
        return b"id: %d\n\n" % self._position if self._position else b":\n\n"

    def _go_to(self, position: int) -> None:
        """Go on after another entry.  What is kept ends before it."""
        self._position = position
        self._kept.clear()

    async def _read(self) -> list[_Shown]:
        """Read and keep what is new."""
        assert self._position is not None  # it was set before
        entries = await self._event_log.entries_after(_EVERYTHING, self._position, READ)
        if entries:
            self._position = entries[-1].id
        news = [_Shown(self._disclosed(entry)) for entry in entries]
        self._kept.extend(news)
        return news

    # --- sending

    async def _admit(self) -> None:
        """Send those who came before the first read what they missed, a few in each turn of the
        reactor; from then on they get what is new.
        """
        missed: dict[tuple[LogFilter, int | None], bytes] = {}
        while self._joining:
            # Ten at a time: for each of them all that is kept is searched.
            for watcher, after in list(islice(self._joining.items(), 10)):
                if watcher not in self._joining:
                    continue  # it has gone away meanwhile
                del self._joining[watcher]
                self._watchers[watcher] = None
                key = watcher.wanted, after
                if key not in missed:
                    missed[key] = self._missed(*key)
                watcher.send(missed[key])
            if self._joining:
                await deferLater(self._clock, 0)

    def _missed(self, wanted: LogFilter, after: int | None) -> bytes:
        """The bytes of the entries after one that pass a filter.

        :param after: None if nothing was missed.
        """
        if after is None:
            return b""
        missed = [one for one in self._kept if one.entry.id > after]
        # The oldest that is kept may be the one that comes next, or others were before it.
        is_gap = len(missed) == len(self._kept) > 0 and self._kept[0].entry.id > after + 1
        chosen = [one for one in missed if wanted.passes(one.entry)]
        return (_GAP if is_gap else b"") + self._joined(chosen)

    def _chosen(
        self, news: Sequence[_Shown], watchers: Iterable[LogWatcher]
    ) -> dict[LogFilter, bytes]:
        """The bytes of the new entries that pass each of the watchers' filters."""
        filters = {_key(watcher.wanted): watcher.wanted for watcher in watchers}
        masks = {tuple(map(bool, key)) for key in filters}
        chosen: defaultdict[LogFilter, list[_Shown]] = defaultdict(list)
        for one in news:
            key = _key(one.entry)
            # Look each filter up that the entry passes: there may be a thousand different ones.
            for mask in masks:
                wanted = filters.get(tuple(map(_if, key, mask)))
                if wanted is not None:
                    chosen[wanted].append(one)
        return {wanted: self._joined(some) for wanted, some in chosen.items()}

    def _joined(self, shown: Sequence[_Shown]) -> bytes:
        """The bytes of the last of some entries, and how many others there are."""
        data = b"".join(one.data(self._show) for one in shown[-LINES:])
        skipped = len(shown) - LINES
        return b"event: skipped\ndata: %d\n\n%s" % (skipped, data) if skipped > 0 else data

    async def _send(self, data: Mapping[LogFilter, bytes], watchers: Sequence[LogWatcher]) -> None:
        """Send each watcher the bytes for its filter, a few in each turn of the reactor."""

        def send(watcher: LogWatcher) -> None:
            watcher.send(data.get(watcher.wanted, b""))

        await in_turns(self._clock, send, watchers)


def _key(of: LogEntry | LogFilter) -> tuple[str, ...]:
    return of.topic, of.host, of.kind, of.outcome


def _if(value: str, wanted: bool) -> str:  # called by map
    return value if wanted else ""
