"""Periodic work: on round times, one at a time, and never ended by a failure."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rsscloud_broker.timing import EachPeriod


class EachPeriodTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(1_000_030.0)  # 10 seconds into a minute
        self.runs: list[float] = []
        self.gate: Deferred[None] | None = None

    async def job(self) -> None:
        self.runs.append(self.clock.seconds())
        if self.gate is not None:
            await self.gate

    def each_minute(self, *, after: float = 0.0, at_start: bool = False) -> EachPeriod:
        service = EachPeriod(self.clock, 60.0, self.job, name="job", after=after, at_start=at_start)
        service.startService()
        return service

    def test_runs_fall_on_multiples_of_the_period(self) -> None:
        self.each_minute()
        self.clock.pump([49.0, 1.0, 59.0, 1.0])
        self.assertEqual(self.runs, [1_000_080.0, 1_000_140.0])

    def test_after_moves_them(self) -> None:
        self.each_minute(after=5.0)
        self.clock.pump([50.0, 5.0, 60.0])
        self.assertEqual(self.runs, [1_000_085.0, 1_000_145.0])

    def test_at_start(self) -> None:
        self.each_minute(at_start=True)
        self.assertEqual(self.runs, [1_000_030.0])

    def test_a_failure_is_logged_and_the_next_run_comes(self) -> None:
        self.gate = Deferred()
        self.gate.errback(OSError("disk full"))
        self.each_minute(at_start=True)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        self.gate = None
        self.clock.advance(50.0)
        self.assertEqual(len(self.runs), 2)

    def test_a_long_run_is_not_overtaken(self) -> None:
        gate: Deferred[None] = Deferred()
        self.gate = gate
        self.each_minute()
        self.clock.pump([50.0, 60.0, 60.0])
        self.assertEqual(len(self.runs), 1)
        gate.callback(None)
        self.clock.advance(60.0)
        self.assertEqual(len(self.runs), 2)

    def warnings(self) -> list[str]:
        """What is complained of from now on."""
        seen: list[str] = []

        @implementer(ILogObserver)
        def observe(event: LogEvent) -> None:
            if event["log_level"] is LogLevel.warn:
                seen.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        return seen

    def test_a_run_that_takes_a_whole_period_is_complained_of(self) -> None:
        seen = self.warnings()
        self.gate = Deferred()
        self.each_minute()
        self.clock.pump([50.0, 60.0])
        self.assertEqual(len(seen), 1)

    def test_a_run_that_the_start_began_is_not(self) -> None:
        seen = self.warnings()
        self.gate = Deferred()
        self.each_minute(at_start=True)
        self.clock.advance(50.0)
        self.assertEqual((seen, len(self.runs)), ([], 1))
        self.clock.advance(60.0)
        self.assertEqual(len(seen), 1)

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
