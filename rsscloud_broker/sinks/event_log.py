"""The event log sink: writes what the broker did, and refused to do, into a table of the database.

Pages read the table, on every node that shares the database.  ``log_of_events`` says which event
becomes which entries.

The sink gathers entries for a quarter of a second, or until there are five hundred, and writes
them in one operation.  If the database cannot be used, up to ``MOST_WAITING`` entries wait; further
ones are lost, and the log of the process says so.  Nothing else waits for the event log.

Anybody can cause refused requests, as many as they like, and nothing else stores them.  So
that they do not push everything else out of the event log, only some of each minute get an entry
of their own, for each caller and in all; one more entry counts the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from attrs import field, frozen
from attrs.validators import and_, ge, gt, le
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from zope.interface import implementer

from rsscloud_broker.events import Event, NotificationDelivered, PingRefused, SubscriptionDenied
from rsscloud_broker.interfaces import IEventSink, SinkParts
from rsscloud_broker.model.log_entry import LogEntry
from rsscloud_broker.policy.addresses import bucket_of
from rsscloud_broker.sinks.log_of_events import LOGGED, entries_of
from rsscloud_broker.util.clock import EachPeriod
from rsscloud_broker.util.cluster_jobs import PeriodicClusterJob, old_by
from rsscloud_broker.util.deferreds import returns_deferred
from rsscloud_broker.util.retry import StoreRetry

#: Seconds for which entries are gathered, and how many are written in one operation.
GATHER, BATCH = 0.25, 500

#: How many entries may wait in memory while the database cannot be used.
MOST_WAITING = 20_000

#: How many rows are looked at in one operation that prunes, and how many such operations there are
#: in a minute at most.
PORTION, PORTIONS = 2000, 1000

#: How many refusals get an entry of their own in a minute: of one caller, and in all.
REFUSALS_OF_SOURCE, REFUSALS = 30, 1000


@frozen
class EventLogOptions:
    """Options of the event log.

    :ivar days: days for which an entry is kept.
    :ivar max_entries: how many entries are kept at most; a million take some 300 MB.
    :ivar successes: whether every single notification that a subscriber accepts gets an entry; if
        not, an entry for each fan-out counts them.
    """

    days: float = field(default=7.0, validator=and_(gt(0), le(3650)))
    max_entries: int = field(default=1_000_000, validator=ge(1000))
    successes: bool = False


@implementer(IEventSink)
class EventLogSink(EachPeriod):
    """Writes an entry for each event.

    Each minute it removes old entries; if several nodes share a database, one of them does.
    """

    def __init__(self, options: EventLogOptions, parts: SinkParts) -> None:
        super().__init__(parts.clock, 60, self._each_minute, name="event_log", at_start=True)
        self.handles = tuple(
            kind for kind in LOGGED if options.successes or kind is not NotificationDelivered
        )
        # Each node writes its own entries each minute; one of them removes old ones for all.
        self._pruning = PeriodicClusterJob(
            parts.clock, 60, self._prune, parts.store, name="event_log", at_start=True
        )
        self._store = parts.store
        self._wall_seconds = parts.clock.wall_seconds
        self._options = options
        self._store_retry = StoreRetry(parts.clock, "The event log")
        self._waiting: list[LogEntry] = []
        self._is_losing = False  # whether entries are lost, which was logged
        self._gather_timer: IDelayedCall | None = None
        self._writing: Deferred[None] | None = None  # fires when the write under way is over
        # The refusals of this minute: those with an entry each, by caller and in all; and how many
        # further ones share an entry.
        self._refusals: Counter[str] = Counter()
        self._refusals_with_entry = self._further_refusals = 0

    def startService(self) -> None:
        self._store_retry.stopped = False
        super().startService()
        self._pruning.startService()

    @returns_deferred
    async def stopService(self) -> None:
        """Stop; the Deferred fires when the entries that wait are written.

        Events that come later, since other parts are still stopping, are written one by one.
        """
        running = [super().stopService(), self._pruning.stopService()]
        self._store_retry.stop()
        for one in running:
            if one is not None:
                await one
        self._count_refusals()
        await self._write()

    async def handle(self, event: Event) -> None:
        """Have the entries of an event written soon, unless it is one refusal too many."""
        now = self._wall_seconds()
        if isinstance(event, PingRefused | SubscriptionDenied) and self._is_one_too_many(event):
            return
        self._add(entries_of(event, now))
        if not self.running:
            await self._write()
        elif len(self._waiting) >= BATCH:
            self._begin_to_write()
        elif self._gather_timer is None and self._writing is None:
            self._gather()

    def _gather(self) -> None:
        """Write what waits in a moment."""
        self._gather_timer = self._clock.callLater(GATHER, self._begin_to_write)

    def _add(self, entries: Sequence[LogEntry]) -> None:
        """Have entries written, unless too many wait."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting += entries
        elif not self._is_losing:
            self._is_losing = True
            self.log.error(
                "The event log loses entries: {waiting} wait to be written, as many as may.",
                waiting=MOST_WAITING,
            )

    # --- refusals

    def _is_one_too_many(self, event: PingRefused | SubscriptionDenied) -> bool:
        """Count a refusal.

        :returns: whether it gets no entry of its own.
        """
        source = bucket_of(event.source)
        is_full = self._refusals_with_entry >= REFUSALS
        if is_full or self._refusals[source] >= REFUSALS_OF_SOURCE:
            self._further_refusals += 1
            return True
        self._refusals[source] += 1
        self._refusals_with_entry += 1
        return False

    def _count_refusals(self) -> None:
        """Add the entry for the refusals of the last minute that got none of their own."""
        self._refusals.clear()
        self._refusals_with_entry = 0
        count, self._further_refusals = self._further_refusals, 0
        if count:
            now = self._wall_seconds()
            self._add([LogEntry("ping", "refused", now, numbers={"requests": count})])

    # --- writing

    def _begin_to_write(self) -> None:
        if self._writing is None:
            Deferred.fromCoroutine(self._write())

    async def _write(self) -> None:
        """Write the entries that wait.  If that runs already, wait for its end instead.

        While the broker stops, a run ends when no entry waits: those of all its callers are written
        then.  Each caller waits for a Deferred of its own, since one can be awaited only once.
        """
        if self._gather_timer is not None and self._gather_timer.active():
            self._gather_timer.cancel()
        self._gather_timer = None
        if self._writing is not None:
            written: Deferred[None] = Deferred()
            self._writing.addCallback(written.callback)
            await written
            return
        writing: Deferred[None] = Deferred()
        self._writing = writing
        await self._write_batch()
        # What came meanwhile is gathered, unless it is much, or the broker stops.
        while len(self._waiting) >= BATCH or (self._waiting and not self.running):
            await self._write_batch()
        self._writing = None
        if self._waiting:
            self._gather()
        writing.callback(None)

    async def _write_batch(self) -> None:
        """Write a batch.  If the broker stops and has no database, all that wait is lost."""
        batch = self._waiting[:BATCH]
        if not batch:
            return
        try:
            await self._store_retry(partial(self._store.add_log_entries, batch))
            self._is_losing = False
        except CancelledError:  # the broker stops, and the database cannot be used
            batch = self._waiting
        except Exception:  # log a bug, and go on with the next entries
            self.log.failure("Some entries of the event log could not be written.")
        del self._waiting[: len(batch)]

    # --- each minute

    async def _each_minute(self) -> None:
        self._count_refusals()
        self._begin_to_write()

    async def _prune(self, due_at: float) -> None:
        """Remove old entries, in portions, so that no other operation waits long."""
        now, most = self._wall_seconds(), self._options.max_entries
        before = old_by(now, due_at) - self._options.days * 86_400.0
        for _ in range(PORTIONS):
            removed = await self._store.prune_log(before, most, PORTION, now)
            if removed < PORTION or not self.running:
                return
