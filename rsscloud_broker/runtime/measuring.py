"""Measures what no other part of the broker counts: the process, its event loop, the database."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Final

from prometheus_client import GCCollector, Info, PlatformCollector, ProcessCollector
from twisted.application.service import Service
from twisted.internet.interfaces import IDelayedCall

from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.storage import Store
from rsscloud_broker.util.clock import EachPeriod, call_off

#: Seconds between two measurements of the event loop.
LOOP_PERIOD: Final = 0.25

#: Seconds between two measurements of the database, and how long after the full minute they come,
#: at which other parts use the database.
SIZES_PERIOD, SIZES_AFTER = 60.0, 20.0


def add_process_metrics(counters: Counters, product: str, database: str) -> None:
    """Add the metrics of the process, of Python, and of the versions that run.

    :param product: the version of the broker.
    :param database: the kind of database, such as ``sqlite``.
    """
    ProcessCollector(registry=counters.registry)
    PlatformCollector(registry=counters.registry)
    GCCollector(registry=counters.registry)
    Info("rsscloud_build", "Versions that run", registry=counters.registry).info(
        {
            "version": product,
            "python": platform.python_version(),
            "twisted": version("twisted"),
            "database": database,
        }
    )


class LoopDelay(Service):
    """Measures how late the event loop calls timers: the time that other work keeps it.

    :ivar latest: the latest measurement, in seconds.
    """

    name = "event loop delay"

    def __init__(self, clock: IClock, counters: Counters) -> None:
        self._clock = clock
        self._delays = counters.loop_delay
        self._timer: IDelayedCall | None = None
        self.latest = 0.0

    def startService(self) -> None:
        super().startService()
        self._timer = self._clock.callLater(LOOP_PERIOD, self._measure)

    def stopService(self) -> None:
        super().stopService()
        call_off(self._timer)

    def _measure(self) -> None:
        """Note how late this was called, and wait for the next call."""
        assert self._timer is not None  # it has called this
        self.latest = max(0.0, self._clock.seconds() - self._timer.getTime())
        self._timer = self._clock.callLater(LOOP_PERIOD, self._measure)
        self._delays.observe(self.latest)


def database_sizes(store: Store, clock: IClock, counters: Counters) -> EachPeriod:
    """A service that measures the size of the database, and what waits in it, once a minute."""

    async def measure() -> None:
        """Set the gauges, unless the database cannot be used now."""
        try:
            found, waiting = await store.sizes(), await store.waiting_checks()
        except Unavailable:
            return  # whatever uses the database next reports what is wrong with it
        for part, size in found.items():
            counters.database_size.labels(part).set(size)
        for state, count in waiting.items():
            counters.stored_checks.labels(state).set(count)

    return EachPeriod(
        clock, SIZES_PERIOD, measure, name="database sizes", after=SIZES_AFTER, at_start=True
    )
