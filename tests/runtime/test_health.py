"""The checks of the parts of the broker, and how long they take when a part hangs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import IHealth, PartState
from rsscloud_broker.runtime import health
from rsscloud_broker.runtime.health import DATABASE_TIMEOUT, Database, Health
from rsscloud_broker.storage import Store
from rsscloud_broker.testing import memory_store
from rsscloud_broker.testing.clock import Clock


class Part:
    """Plays all parts whose state the checks ask for."""

    latest = 0.25
    lookups = 3
    seconds = 0.0
    waiting = 7
    problem = ""

    def __init__(self, fill_levels: Mapping[str, float] | None = None) -> None:
        self._fill = fill_levels or {}

    def busy_for(self) -> float:
        return self.seconds

    def writes_waiting(self) -> int:
        return self.waiting

    def fill_levels(self) -> Mapping[str, float]:
        return self._fill

    def check(self) -> None:
        if self.problem:
            raise Unavailable(self.problem)


class HangingStore:
    """A store whose writes end when the test ends them."""

    def __init__(self) -> None:
        self.writes: list[Deferred[None]] = []

    def check_writable(self) -> Deferred[None]:
        self.writes.append(Deferred())
        return self.writes[-1]


class HealthTests(SynchronousTestCase):
    def ready(self, **checks: health.Check) -> Sequence[PartState]:
        made = Health({}, checks)
        self.assertTrue(verifyObject(IHealth, made))
        return self.successResultOf(made.ready())

    def test_all_parts_in_their_order(self) -> None:
        async def later() -> str:
            return "It works later."

        made = Health({"loop": lambda: "It turns."}, {"a": later, "b": lambda: "It works."})
        states = self.successResultOf(made.ready())
        self.assertEqual(
            states,
            [
                PartState("loop", True, "It turns."),
                PartState("a", True, "It works later."),
                PartState("b", True, "It works."),
            ],
        )
        self.assertEqual(made.alive(), states[:1])

    def test_one_that_does_not_work_hides_no_other(self) -> None:
        for error, said, bugs in (
            (Unavailable("it is full: make room."), "It is full: make room.", 0),
            (ZeroDivisionError(), "It could not be checked; the log says why.", 1),
        ):

            def check(error: Exception = error) -> str:
                raise error

            bad, good = self.ready(bad=check, good=lambda: "It works.")
            self.assertEqual(bad, PartState("bad", False, said))
            self.assertTrue(good.works)
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), bugs)


class PartTests(SynchronousTestCase):
    def fault(self, check: Callable[[], str]) -> str:
        return str(self.assertRaises(Unavailable, check))

    def test_event_loop(self) -> None:
        part: Any = Part()
        self.assertIn("late by 0.250 s", health.event_loop(part))

    def test_writer(self) -> None:
        part: Any = Part()
        check = partial(health.writer, part)
        part.seconds = 10.0
        self.assertIn("7 operations wait", check())
        part.seconds = 10.0 + 1
        self.assertIn("one transaction for 11 seconds, and 7 operations wait", self.fault(check))

    def test_disk_and_names(self) -> None:
        for check_of, well in ((health.disk, "has room"), (health.names, "3 lookups")):
            part: Any = Part()
            check = partial(check_of, part)
            self.assertIn(well, check())
            part.problem = "it is full"
            self.assertEqual(self.fault(check), "it is full")

    def test_bus(self) -> None:
        check: Any = health.bus
        self.assertIn("is at 89%", check(Part({"a": 0.89, "b": 0.0})))
        self.assertIn("is at 0%", check(Part()))
        said = self.fault(partial(check, Part({"b": 0.9, "c": 0.5, "a": 1.0})))
        self.assertIn("nearly full: a, b;", said)

    def test_listeners(self) -> None:
        first, second = services = [Service(), Service()]
        check = partial(health.listeners, services)
        first.startService()
        self.assertIn("1 of 2 endpoints are closed", self.fault(check))
        second.startService()
        self.assertIn("all of its endpoints (2)", check())
        first.stopService()
        self.assertIn("1 of 2", self.fault(check))


class DatabaseTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.store = HangingStore()
        self.check = Database(cast(Store, self.store), self.clock)

    def begin(self) -> Deferred[str]:
        return Deferred.fromCoroutine(self.check())

    def test_a_real_store(self) -> None:
        check = Database(memory_store(), self.clock)
        said = self.successResultOf(check())
        self.assertIn("committed a write within 0.0", said)

    def test_a_store_that_hangs(self) -> None:
        checking = self.begin()
        self.clock.advance(DATABASE_TIMEOUT - 0.1)
        self.assertNoResult(checking)
        self.clock.advance(0.2)
        said = str(self.failureResultOf(checking, Unavailable).value)
        self.assertIn("within 2 seconds", said)
        # What hangs is not asked again, and anyone who asks then learns what becomes of it.
        for _ in range(3):
            checking = self.begin()
            self.clock.advance(DATABASE_TIMEOUT + 0.1)
            self.failureResultOf(checking, Unavailable)
        last = self.begin()
        self.assertEqual(len(self.store.writes), 1)
        self.store.writes[0].callback(None)
        self.successResultOf(last)
        self.begin()
        self.assertEqual(len(self.store.writes), 2)

    def test_those_who_ask_meanwhile_share_one_write(self) -> None:
        checks = [self.begin() for _ in range(3)]
        self.assertEqual(len(self.store.writes), 1)
        self.store.writes[0].errback(Unavailable("the disk is full"))
        for checking in checks:
            self.assertIn("is full", str(self.failureResultOf(checking, Unavailable).value))
