"""What the statistics of a period say: totals, series for plots, latencies and busy topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from attrs import frozen

from rsscloud_broker.counters import LATENCIES
from rsscloud_broker.interfaces import IStatistics
from rsscloud_broker.model.work import MEASURED, PingedTopic
from rsscloud_broker.wire.times import iso_time
from rsscloud_broker.wire.units import HOUR

#: The shares of notifications for which a page says how long they took at most.
_PERCENTILES: Final = (50, 95, 99)

#: How many of the most pinged topics are shown, and from how many of each part of a period.
_SHOWN, _MOST = 20, 100


@frozen
class Period:
    """A period that a page shows, which ends now.

    :ivar name: as an address names it, such as ``day``.
    :ivar text: as a page names it, such as "the last day".
    :ivar seconds: its length.
    :ivar step: the length of each step of its plots, in seconds.
    :ivar step_text: the same in words.
    :ivar mark: the format of a time below a plot, for ``strftime``.
    :ivar mark_every: how many seconds are between two of them.
    """

    name: str
    text: str
    seconds: int
    step: int
    step_text: str
    mark: str
    mark_every: int


PERIODS: Final = {
    each.name: each
    for each in (
        Period("hour", "the last hour", 3600, 60, "minute", "%H:%M", 600),
        Period("day", "the last day", 86_400, 900, "15 minutes", "%H:%M", 4 * 3600),
        Period("month", "the last 30 days", 30 * 86_400, 6 * 3600, "6 hours", "%d %b", 5 * 86_400),
    )
}


@frozen
class Statistics:
    """The statistics of a period.

    :ivar begins: when each step begins, in seconds since the epoch.
    :ivar numbers: the number of each step, by the name that ``sinks.statistics`` gives it; the
        steps without a number have 0.
    :ivar measured: what was measured last at each step: ``topics`` that the store knows,
        ``watched_topics`` that have subscriptions, and ``subscriptions.PROTOCOL``; None before
        the first measurement.
    :ivar busiest: the most pinged topics.
    """

    period: Period
    begins: Sequence[int]
    numbers: Mapping[str, Sequence[int]]
    measured: Mapping[str, Sequence[int | None]]
    busiest: Sequence[PingedTopic]

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever counted or measured in the period."""
        return not self.numbers and not self.measured

    def last(self, name: str) -> int | None:
        """The last measurement of something; None if there is none."""
        values = self.measured.get(name)
        return values[-1] if values else None

    @property
    def subscriptions(self) -> dict[str, int]:
        """The number of subscriptions, by protocol."""
        dotted = "subscriptions."
        return {
            name.removeprefix(dotted): values[-1]
            for name, values in sorted(self.measured.items())
            if name.startswith(dotted) and values[-1]
        }

    @property
    def marks(self) -> dict[int, str]:
        """The times that are written below a plot, by the place of the step that begins then."""
        return {
            place: datetime.fromtimestamp(at, UTC).strftime(self.period.mark)
            for place, at in enumerate(self.begins)
            if at % self.period.mark_every == 0
        }

    def series(self, prefix: str) -> dict[str, Sequence[int]]:
        """The numbers whose names begin with a prefix, by the rest of their names."""
        dotted = f"{prefix}."
        return {
            name.removeprefix(dotted): values
            for name, values in sorted(self.numbers.items())
            if name.startswith(dotted)
        }

    def total(self, name: str) -> int:
        """How many there were in the whole period."""
        return sum(self.numbers.get(name, ()))

    def totals(self, prefix: str) -> dict[str, int]:
        """The totals of ``series``."""
        return {name: sum(values) for name, values in self.series(prefix).items()}

    def by_outcome(self) -> dict[str, Sequence[int]]:
        """The notifications of all protocols, by outcome."""
        found: dict[str, list[int]] = {}
        for name, values in self.series("deliveries").items():
            outcome = name.rpartition(".")[2]
            before = found.get(outcome, [0] * len(values))
            found[outcome] = [one + other for one, other in zip(before, values, strict=True)]
        return {name: found[name] for name in sorted(found)}

    def percentiles(self, latency: str) -> dict[str, float | None]:
        """The seconds within which a share of all notifications of the period came.

        :param latency: ``first_latency`` or ``last_latency``.
        :returns: by names such as ``p95``; None if there was no notification.
        """
        buckets = {bound: sum(values) for bound, values in self._buckets(latency).items()}
        return {f"p{share}": percentile(buckets, share) for share in _PERCENTILES}

    def latencies(self, latency: str, share: int) -> list[float | None]:
        """The seconds within which a share of each step's notifications came; None without any."""
        buckets = self._buckets(latency)
        return [
            percentile({bound: values[step] for bound, values in buckets.items()}, share)
            for step in range(len(self.begins))
        ]

    def _buckets(self, latency: str) -> dict[float, Sequence[int]]:
        """The numbers of each bucket, by its upper bound; empty buckets are not stored."""
        stored = {float(bound): values for bound, values in self.series(latency).items()}
        empty = [0] * len(self.begins)
        return {bound: stored.get(bound, empty) for bound in (*LATENCIES, float("inf"))}

    def as_json(self) -> dict[str, Any]:
        """All that is known of the period, as ``/stats.json`` has it."""
        return {
            "period": self.period.name,
            "since": iso_time(self.begins[0]),
            "stepSeconds": self.period.step,
            "topics": self.last("topics"),
            "topicsWithSubscriptions": self.last("watched_topics"),
            "subscriptions": self.subscriptions,
            "latencySeconds": {
                "first": self.percentiles("first_latency"),
                "last": self.percentiles("last_latency"),
            },
            "totals": {name: sum(values) for name, values in sorted(self.numbers.items())},
            "series": {name: list(values) for name, values in sorted(self.numbers.items())},
            "mostPinged": [{"url": each.url, "pings": each.pings} for each in self.busiest],
        }


def percentile(buckets: Mapping[float, int], share: int) -> float | None:
    """An estimate of the value below which a share of all values are.

    Within a bucket values are taken to be spread evenly, as Prometheus does.

    :param buckets: how many values there are between the next lower bound and each upper bound.
    :param share: a percentage.
    :returns: at most the highest finite bound; None without values.
    """
    wanted = sum(buckets.values()) * share / 100
    if not wanted:
        return None
    lower = passed = 0.0
    for bound, number in sorted(buckets.items()):
        if bound == float("inf"):
            break
        if number and passed + number >= wanted:
            return lower + (bound - lower) * (wanted - passed) / number
        passed += number
        lower = bound
    return lower


async def read(
    view: IStatistics, period: Period, now: float, *, with_topics: bool = False
) -> Statistics:
    """Read the statistics of a period that ends now.

    :param with_topics: whether to find the most pinged topics too, for which the pings of up to two
        hours are counted.
    :raises Unavailable: the store cannot be read.
    """
    end = int(now // period.step + 1) * period.step
    since = end - period.seconds
    begins = range(since, end, period.step)
    stored = await view.statistics(since, end, period.step)
    return Statistics(
        period=period,
        begins=begins,
        numbers={
            name: [steps.get(begin, 0) for begin in begins]
            for name, steps in stored.items()
            if not name.startswith(MEASURED)
        },
        measured={
            name.removeprefix(MEASURED): _last_measurements(
                begins, steps, stored[f"{MEASURED}topics"]
            )
            for name, steps in stored.items()
            if name.startswith(MEASURED)
        },
        busiest=await _find_busiest(view, since, end, now) if with_topics else (),
    )


async def _find_busiest(view: IStatistics, since: int, until: int, now: float) -> list[PingedTopic]:
    """The most pinged topics of a period.

    The busiest topics of an hour are stored within the next one.  So those of the last two hours
    are counted from the pings, and of the hours before, which must be whole, those that are stored.
    """
    counted_since = max(since, int(now // HOUR - 1) * HOUR)
    pinged = await view.pinged_topics(counted_since, until, _MOST)
    found = Counter({each.url: each.pings for each in pinged})
    if since < counted_since:
        whole_since = -(-since // HOUR) * HOUR
        for each in await view.busy_topics(whole_since, counted_since, _MOST):
            found[each.url] += each.pings
    ordered = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))
    return [PingedTopic(url, pings) for url, pings in ordered[:_SHOWN]]


def _last_measurements(
    begins: Sequence[int], values: Mapping[int, int], measured: Mapping[int, int]
) -> list[int | None]:
    """The value of a measurement in each step; if there was none in a step, that of the last one.

    :param begins: when the steps begin.
    :param values: the values by the beginnings of their steps, but those that are 0 are missing.
    :param measured: its keys are the beginnings of the steps in which there was a measurement.
    :returns: None for the steps before the first measurement.
    """
    shown: list[int | None] = []
    value = None
    for begin in begins:
        if begin in measured:
            value = values.get(begin, 0)
        shown.append(value)
    return shown
