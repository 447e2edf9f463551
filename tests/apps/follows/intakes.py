"""An intake of pings for tests, and a test case with followers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rsscloud_broker.apps.follows.door import FollowsDoor
from rsscloud_broker.apps.follows.options import FollowsOptions
from rsscloud_broker.interfaces import FrontDoorParts, Intake, IPingIntake
from rsscloud_broker.model import Ping
from rsscloud_broker.testing import FakeOutbound, front_door_parts, memory_store, reply
from rsscloud_broker.testing.clock import Clock

#: 2026-09-29 12:00:00 UTC
NOON = 1_790_683_200.0
HOUR = 3600
THERE = "http://there.example"


def a_ping(number: int, at: float, **more: Any) -> Ping:
    return Ping(f"Blog {number}", f"http://blog{number}.example/", at, **more)


@implementer(IPingIntake)
class FakeIntake:
    """Takes in what it has not got, as the core does.

    :ivar pings: what it has, each with its precision.
    :ivar failure: is raised instead, if it is set.
    """

    def __init__(self) -> None:
        self.pings: list[tuple[Ping, float]] = []
        self.failure: Exception | None = None

    async def take_in(self, pings: Sequence[Ping], precision: float) -> Intake:
        if self.failure is not None:
            raise self.failure
        new = [ping for ping in pings if not self._has(ping, precision)]
        self.pings += [(ping, precision) for ping in new]
        return Intake(taken=len(new), known=len(pings) - len(new))

    def _has(self, ping: Ping, precision: float) -> bool:
        return any(
            ping.url == other.url and abs(ping.received_at - other.received_at) < precision
            for other, _ in self.pings
        )

    @property
    def names(self) -> list[str]:
        return [ping.name for ping, _ in self.pings]


class FollowsTestCase(SynchronousTestCase):
    """A test case with followers, which run until its end.

    :ivar parts: those of the last front door that ``follow`` made.
    """

    parts: FrontDoorParts

    def setUp(self) -> None:
        self.clock = Clock(NOON)
        self.store = memory_store()
        self.addCleanup(self.store.stopService)
        self.web = FakeOutbound(otherwise=reply(404))
        self.intake = FakeIntake()
        self.doors: list[FollowsDoor] = []
        self.addCleanup(self.stop)

    def follow(self, options: FollowsOptions, **more: Any) -> FollowsDoor:
        """Begin to follow; ``more`` are further parts."""
        self.parts = front_door_parts(
            clock=self.clock, intake=self.intake, follows=self.store, web=self.web, **more
        )
        door = FollowsDoor(options, self.parts)
        door.startService()
        self.doors.append(door)
        return door

    def stop(self) -> None:
        for door in self.doors:
            if door.running:
                self.successResultOf(door.stopService())

    @contextmanager
    def logged(self) -> Iterator[list[str]]:
        """What is logged meanwhile, which is in the list afterwards."""
        lines: list[str] = []
        with capturedLogs() as logs:
            yield lines
        lines += [str(formatEvent(event)) for event in logs]

    def now(self) -> float:
        return self.clock.wall_seconds()

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.clock.advance(1)

    def counted(self, outcome: str) -> float:
        names = {"source": "there.example", "outcome": outcome}
        registry = self.parts.counters.registry
        return registry.get_sample_value("rsscloud_followed_pings_total", names) or 0.0
