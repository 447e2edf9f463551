"""The options of the distribution sink, and what the whole broker needs to know of them."""

from __future__ import annotations

from collections.abc import Iterable
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
from typing import Final

from attrs import field, frozen
from attrs.validators import ge, gt, le

from rsscloud_broker.delivery.breakers import FIRST_PAUSE, LONGEST_PAUSE

#: Seconds that a stopping broker gives to notifications in flight: most answer sooner.
STOP_TIMEOUT: Final = 5.0


@frozen
class DistributionOptions:
    """Options of the distribution sink.

    :ivar in_flight: how many notifications run at the same time, in total.
    :ivar per_host: how many run at the same time to one host, which can earn more.
    :ivar slice_size: how many subscriptions of a topic are read at a time, by one node.
    :ivar breaker_pause: seconds for which a circuit breaker is open at first.
    """

    in_flight: int = field(default=200, validator=ge(1))
    per_host: int = field(default=4, validator=ge(1))
    slice_size: int = field(default=500, validator=ge(1))
    breaker_pause: float = field(default=FIRST_PAUSE, validator=[gt(0), le(LONGEST_PAUSE)])

    @property
    def max_slow(self) -> int:
        """How many notifications without a quick answer may run beside ``in_flight``."""
        # Each takes hardly any processor time, but some 10 KB, 70 with TLS, and a file descriptor.
        wanted, allowed = 30 * self.in_flight, getrlimit(RLIMIT_NOFILE)[1]
        return wanted if allowed == RLIM_INFINITY else min(wanted, allowed // 2)


def notifications_of(sinks: Iterable[tuple[object, object]]) -> int:
    """How many notifications the distribution sinks may have under way at the same time.

    :param sinks: the makers of the sinks that run, with their options.
    """
    return sum(
        options.in_flight + options.max_slow
        for _, options in sinks
        if isinstance(options, DistributionOptions)
    )
