"""The statistics sink: stores each minute how much the broker did, for plots of the last 30 days.

The counters of the process begin at zero at each start, and each node of a cluster has its own.
So each minute the sink adds to the database by how much they grew since the last time, and the
numbers of all nodes and all runs add up.  What happens between the last full minute and a crash is
not counted.  What is in the database is counted by one of the nodes for all.

The numbers have names such as ``pings``, ``fetches.changed`` or ``deliveries.websub.failed``; those
of latencies end in the upper bound of their bucket in seconds, as in ``first_latency.0.5``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attrs import field, frozen, validators
from prometheus_client import Counter, Histogram
from zope.interface import implementer

from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import Event
from rsscloud_broker.interfaces import IEventSink, SinkParts
from rsscloud_broker.model.ways import PRIVATE_PROTOCOLS
from rsscloud_broker.storage import Store
from rsscloud_broker.util.clock import EachPeriod
from rsscloud_broker.util.cluster_jobs import PeriodicClusterJob
from rsscloud_broker.util.deferreds import returns_deferred
from rsscloud_broker.wire.units import HOUR

#: The values of labels of what was done for private followers, which is not in the statistics:
#: everybody may read these.
_PRIVATE: Final = {"private", *PRIVATE_PROTOCOLS}

#: Seconds between two counts of all topics and subscriptions, which read through their tables.
MEASURE_EACH: Final = 600


@frozen
class StatisticsOptions:
    """Options of the statistics.

    :ivar days: for how many days the numbers of hours are kept.
    """

    days: int = field(
        default=400, validator=validators.and_(validators.ge(1), validators.le(36_500))
    )


def numbers(counters: Counters) -> dict[str, int]:
    """What the counters say now, by the names that the statistics have for it."""
    found: dict[str, int] = {}
    for name in ("pings", "repeats", "limited", "fetches", "deliveries", "given_up"):
        found.update(_of_counter(name, getattr(counters, name)))
    for name in ("first_latency", "last_latency"):
        found.update(_of_histogram(name, getattr(counters, name)))
    return found


def _of_counter(prefix: str, counter: Counter) -> Iterator[tuple[str, int]]:
    """The numbers of a counter by its labels, without those of private followers."""
    for sample in next(iter(counter.collect())).samples:
        if sample.name.endswith("_total") and not _PRIVATE & {*sample.labels.values()}:
            yield ".".join((prefix, *sample.labels.values())), int(sample.value)


def _of_histogram(prefix: str, histogram: Histogram) -> Iterator[tuple[str, int]]:
    """The numbers of each bucket alone: the library has them added up from the first one on."""
    below = 0
    for sample in next(iter(histogram.collect())).samples:
        if sample.name.endswith("_bucket"):
            yield f"{prefix}.{sample.labels['le']}", int(sample.value) - below
            below = int(sample.value)


@implementer(IEventSink)
class StatisticsSink(EachPeriod):
    """Stores the statistics at each full minute, and once more when the broker stops."""

    handles: tuple[type[Event], ...] = ()

    def __init__(self, options: StatisticsOptions, parts: SinkParts) -> None:
        super().__init__(parts.clock, 60, self._store, name="statistics")
        self._options = options
        self._statistics: Store = parts.store
        self._counters = parts.counters
        self._stored_numbers = dict.fromkeys(numbers(parts.counters), 0)
        self._jobs = [
            PeriodicClusterJob(parts.clock, period, job, parts.store, name=name, at_start=True)
            for period, job, name in (
                (HOUR, self._each_hour, "statistics of hours"),
                (MEASURE_EACH, self._measure, "measurements"),
            )
        ]
        self._minute: float | None = None  # when the minute began that is counted now

    async def handle(self, event: Event) -> None:
        """Do nothing: the sink handles no events and reads the counters."""

    def startService(self) -> None:
        self._minute = self._clock.wall_seconds()
        super().startService()
        for job in self._jobs:
            job.startService()

    @returns_deferred
    async def stopService(self) -> None:
        """Store what was counted in the last minute, when the runs under way have ended."""
        for run in [super().stopService(), *(job.stopService() for job in self._jobs)]:
            if run is not None:
                await run
        try:
            await self._add_grown()
        except Unavailable as error:
            self.log.warn("The statistics of the last minute are lost: {error}", error=error)

    async def _store(self) -> None:
        """Store what was counted in the minute that ends now."""
        now = self._clock.wall_seconds()
        await self._add_grown()
        self._minute = now

    async def _each_hour(self, due_at: float) -> None:
        """Store the most pinged topics of each hour, of a day at most, and remove old numbers."""
        now = self._clock.wall_seconds()
        end = int(now // HOUR)  # the hour that is not over yet
        first = max(int(due_at // HOUR) - 1, end - 24)
        for hour in range(min(first, end - 1), end):
            # How many topics of each hour are remembered as its most pinged ones.
            busiest = await self._statistics.pinged_topics(hour * HOUR, (hour + 1) * HOUR, 100)
            if busiest:  # the pings of what is stored already may have been removed
                await self._statistics.put_busy_topics(hour, busiest)
        await self._statistics.prune_statistics(now, self._options.days * 24)

    async def _measure(self, due_at: float) -> None:
        """Count all topics and subscriptions."""
        measured = dict(await self._statistics.measure())
        await self._statistics.add_statistics(self._clock.wall_seconds(), {}, measured)

    async def _add_grown(self) -> None:
        """Add what was counted since the last time to the minute in which that was."""
        current = numbers(self._counters)
        grown = {
            name: value - before
            for name, value in current.items()
            if value != (before := self._stored_numbers.get(name, 0))
        }
        if grown:
            at = self._clock.wall_seconds() if self._minute is None else self._minute
            await self._statistics.add_statistics(at, grown, {})
        # Not before this point: what could not be stored is stored the next time.
        self._stored_numbers = current
