"""Tests periodic jobs: they run at round times, one at a time, and go on after a failure."""

from __future__ import annotations

import time
from errno import ENOSPC

from twisted.internet.base import ReactorBase
from twisted.internet.defer import Deferred, fail
from twisted.internet.selectreactor import SelectReactor
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.testing.clock import About, Clock
from rsscloud_broker.util.clock import (
    EachPeriod,
    SystemClock,
    WallClockWatch,
    endless_call,
    use_monotonic_timers,
)


class EachPeriodTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock(1_000_030.0)  # 10 seconds into a minute
        self.runs: list[float] = []
        self.gate: Deferred[None] | None = None

    async def job(self) -> None:
        self.runs.append(About(self.clock.wall_seconds()))
        if self.gate is not None:
            await self.gate

    def each_minute(self, *, after: float = 0.0, at_start: bool = False) -> EachPeriod:
        service = EachPeriod(self.clock, 60.0, self.job, name="job", after=after, at_start=at_start)
        service.startService()
        return service

    def test_when_it_runs(self) -> None:
        for options, pauses, runs in (
            ({}, [49.0, 1.0, 59.0, 1.0], [1_000_080.0, 1_000_140.0]),
            ({"after": 5.0}, [50.0, 5.0, 60.0], [1_000_085.0, 1_000_145.0]),
            ({"at_start": True}, [], [1_000_030.0]),
        ):
            self.setUp()
            self.each_minute(**options)
            self.clock.pump(pauses)
            self.assertEqual(self.runs, runs)

    def test_a_failure_is_logged_and_the_next_run_comes(self) -> None:
        self.gate = Deferred()
        self.gate.errback(ValueError("a bug"))
        self.each_minute(at_start=True)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.gate = None
        self.clock.advance(50.0)
        self.assertEqual(len(self.runs), 2)

    def test_a_store_or_a_disk_that_cannot_be_used_is_one_line_without_a_traceback(self) -> None:
        full = OSError(ENOSPC, "No space left on device", "/changes.xml")
        for error, line in (
            (Unavailable("no disk space is left"), "no disk space is left"),
            (full, "[Errno 28] No space left on device: '/changes.xml'"),
        ):
            self.gate = fail(error)
            with capturedLogs() as logged:
                service = self.each_minute(at_start=True)
                self.gate = fail(error)
                self.clock.advance(60.0)
                self.gate = None
                self.clock.advance(60.0)
            said = [f"job: {line}; it is tried again in its next turn.", "job goes on."]
            self.assertEqual([formatEvent(each) for each in logged], said)
            service.stopService()

    def test_a_long_run_is_not_overtaken(self) -> None:
        gate: Deferred[None] = Deferred()
        self.gate = gate
        self.each_minute()
        self.clock.pump([50.0, 60.0, 60.0])
        self.assertEqual(len(self.runs), 1)
        gate.callback(None)
        self.clock.advance(60.0)
        self.assertEqual(len(self.runs), 2)

    def test_a_run_that_the_start_began_is_not(self) -> None:
        self.gate = Deferred()
        with capturedLogs() as logged:
            self.each_minute(at_start=True)
            self.clock.advance(50.0)
            self.assertEqual((logged, len(self.runs)), ([], 1))
            self.clock.advance(60.0)
        self.assertEqual(len(logged), 1)

    def test_stopping_waits_for_the_run_and_ends_the_timer(self) -> None:
        gate: Deferred[None] = Deferred()
        self.gate = gate
        service = self.each_minute(at_start=True)
        stopped = service.stopService()
        assert stopped is not None
        self.assertNoResult(stopped)
        gate.callback(None)
        self.successResultOf(stopped)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertIsNone(service.stopService())

    def test_the_wall_clock_set_brings_a_run_soon(self) -> None:
        for by in (-7200.0, 7200.0):
            self.setUp()
            self.each_minute()
            self.clock.set_wall(by)
            self.clock.pump([5.0])
            self.assertEqual(len(self.runs), 1)
            self.clock.pump([1.0] * 60)
            self.assertEqual(len(self.runs), 2)


class WallClockWatchTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.moved: list[float] = []
        self.error: Exception | None = None
        self.watch = WallClockWatch(self.clock, self.move)
        self.watch.startService()

    async def move(self, seconds: float) -> None:
        if self.error is not None:
            raise self.error
        self.moved.append(seconds)

    def test_times_move_if_it_is_set_back(self) -> None:
        """Not as time passes, if it is set forward, or if it is adjusted a little all the time."""
        self.clock.pump([1.0] * 100 + [60.0])
        self.clock.set_wall(7200.0)
        self.clock.pump([1.0] * 10)
        for _ in range(100):
            self.clock.set_wall(-0.5)
            self.clock.advance(1.0)
        self.assertEqual(self.moved, [])
        self.clock.set_wall(-7200.0)
        self.clock.pump([1.0] * 10)
        self.assertEqual(self.moved, [About(7200.0)])

    def test_a_failure_is_logged_and_the_watch_goes_on(self) -> None:
        self.error = OSError("disk full")
        for _ in range(2):
            self.clock.set_wall(-60.0)
            self.clock.pump([1.0] * 3)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 2)

    def test_stopped(self) -> None:
        self.watch.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_store_that_is_not_there_is_a_line_of_the_log_without_a_traceback(self) -> None:
        self.error = Unavailable("no disk space is left")
        self.clock.set_wall(-7200)
        with capturedLogs() as logged:
            self.clock.advance(1)
        said = "What is stored could not be moved along with the wall clock: no disk space is left"
        self.assertEqual(formatEvent(logged[-1]), said)


class SystemClockTests(SynchronousTestCase):
    def test_interface(self) -> None:
        self.assertTrue(verifyObject(IClock, SystemClock(Clock())))
        self.assertTrue(verifyObject(IClock, Clock()))

    def test_timers_go_by_the_monotonic_clock(self) -> None:
        reactor = ReactorBase.__new__(SelectReactor)
        use_monotonic_timers(reactor)
        before = time.monotonic()
        self.assertTrue(before <= SystemClock(reactor).seconds() <= time.monotonic())

    def test_it_follows_another_clock(self) -> None:
        """It is set by what a reading leaves no doubt about, and goes on in between."""
        clock, now = SystemClock(Clock()), time.monotonic()

        def shows(expected: float) -> None:
            ahead = clock.wall_seconds() - time.monotonic()
            self.assertLess(abs(ahead - expected), 0.0001)

        clock.follow(now + 900.0, now - 0.2, now)
        shows(900.0)
        clock.follow(now + 900.1, now - 0.3, now)
        shows(900.1)
        clock.follow(now + 900.0, now - 0.5, now)  # what it shows may be right
        shows(900.1)
        clock.follow(now - 300.0, now - 0.5, now)  # the other one was set back
        shows(-299.5)

    def test_the_wall_clock_is_that_of_the_computer(self) -> None:
        before = time.time()
        self.assertTrue(before <= SystemClock(Clock()).wall_seconds() <= time.time())


class EndlessCallTests(SynchronousTestCase):
    def test_goes_on_after_a_failure(self) -> None:
        clock = Clock()
        calls = 0

        def fail() -> None:
            nonlocal calls
            calls += 1
            raise ZeroDivisionError

        async def fail_later() -> None:
            fail()

        for job in (fail, fail_later):
            calls = 0
            endless = endless_call(clock, job, "The job")
            endless.start(1.0)
            clock.pump([1.0] * 3)
            self.assertEqual(calls, 4)
            endless.stop()
            clock.pump([1.0] * 3)
            self.assertEqual(calls, 4)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 8)

    def test_one_at_a_time(self) -> None:
        clock = Clock()
        under_way: list[Deferred[None]] = []

        async def job() -> None:
            under_way.append(Deferred())
            await under_way[-1]

        endless = endless_call(clock, job, "The job")
        endless.start(1.0)
        clock.pump([1.0] * 3)
        self.assertEqual(len(under_way), 1)
        under_way[0].callback(None)
        clock.advance(1.0)
        self.assertEqual(len(under_way), 2)
        endless.stop()
        under_way[1].cancel()
