"""The options of the distribution sink, and what the whole broker needs to know of them."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import field, frozen
from attrs.validators import ge, gt, le

from rsscloud_broker.delivery.breakers import FIRST_PAUSE, LONGEST_PAUSE

#: Seconds that a stopping broker gives to notifications in flight, unless the operator says so.
STOP_TIMEOUT = 5.0


@frozen
class DistributionOptions:
    """Options of the distribution sink.

    :ivar in_flight: how many notifications run at the same time, in total.
    :ivar per_host: how many run at the same time to one host, which can earn more.
    :ivar max_slow: how many notifications without a quick answer may run beside ``in_flight``.
    :ivar slice_size: how many subscriptions a walk reads at a time.
    :ivar max_fanouts: how many walks run at the same time; if there are more fan-outs, they
        take turns.
    :ivar breaker_pause: seconds for which a circuit breaker is open at first.
    :ivar stop_within: seconds that a stopping broker gives to notifications in flight.
    """

    in_flight: int = field(default=200, validator=ge(1))
    per_host: int = field(default=4, validator=ge(1))
    max_slow: int = field(default=2000, validator=ge(0))
    slice_size: int = field(default=500, validator=ge(1))
    max_fanouts: int = field(default=50, validator=ge(1))
    breaker_pause: float = field(default=FIRST_PAUSE, validator=[gt(0), le(LONGEST_PAUSE)])
    stop_within: float = field(default=STOP_TIMEOUT, validator=[ge(0), le(600)])


def stop_within(sinks: Iterable[tuple[object, object]]) -> float:
    """How many seconds notifications and answers have to end when the broker stops.

    :param sinks: the makers of the sinks that run, with their options.
    """
    within = [each.stop_within for _, each in sinks if isinstance(each, DistributionOptions)]
    return max(within, default=STOP_TIMEOUT)


def notifications_of(sinks: Iterable[tuple[object, object]]) -> int:
    """How many notifications the distribution sinks may have under way at the same time.

    :param sinks: the makers of the sinks that run, with their options.
    """
    return sum(
        options.in_flight + options.max_slow
        for _, options in sinks
        if isinstance(options, DistributionOptions)
    )
