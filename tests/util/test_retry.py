"""Operations of the store are repeated while it is unavailable."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.testing import Clock
from rsscloud_broker.util.retry import UNAVAILABLE_PAUSE, StoreRetry


class StoreRetryTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.retry = StoreRetry(self.clock, "Work")
        self.tries: list[float] = []
        self.available = False

    async def operation(self) -> str:
        self.tries.append(self.clock.seconds())
        if not self.available:
            raise Unavailable("no disk")
        return "done"

    def begin(self) -> Deferred[str]:
        return Deferred.fromCoroutine(self.retry(self.operation, "of A"))

    def pass_time(self, seconds: int) -> None:
        for _ in range(10 * seconds):
            self.clock.advance(0.1)

    def test_pauses_grow(self) -> None:
        done = self.begin()
        self.pass_time(60)
        pauses = [b - a for a, b in zip(self.tries, self.tries[1:], strict=False)]
        expected = [1.0, 2, 4, 8, UNAVAILABLE_PAUSE, UNAVAILABLE_PAUSE]
        self.assertEqual([round(pause) for pause in pauses[:6]], expected)
        self.retry.stop()
        self.failureResultOf(done, CancelledError)

    def test_result(self) -> None:
        done = self.begin()
        self.available = True
        self.pass_time(2)
        self.assertEqual(self.successResultOf(done), "done")

    def test_stop(self) -> None:
        done = self.begin()
        self.retry.stop()
        self.failureResultOf(done, CancelledError)

    def test_log_is_not_filled(self) -> None:
        """However many operations wait; and the next time that the store is away is notified
        again."""
        with capturedLogs() as logs:
            waiting = [self.begin() for _ in range(50)]
            self.pass_time(59)
            self.assertEqual(len(logs), 1)
            self.assertEqual(logs[0]["log_level"], LogLevel.error)
            self.assertEqual((logs[0]["what"], str(logs[0]["error"])), ("Work of A", "no disk"))
            self.pass_time(20)
            self.assertEqual(len(logs), 2)
            self.available = True
            self.pass_time(11)
            self.assertEqual([self.successResultOf(one) for one in waiting], ["done"] * 50)
            self.available = False
            again = self.begin()
            self.assertEqual(len(logs), 3)
        self.retry.stop()
        self.failureResultOf(again, CancelledError)

    def test_until_done(self) -> None:
        """A bug, too, is no reason to do without."""
        failures: list[Exception] = [ZeroDivisionError(), Unavailable("no disk"), KeyError()]

        async def work() -> str:
            if failures:
                raise failures.pop()
            return "done"

        done = Deferred.fromCoroutine(self.retry.until_done(work, "The work"))
        self.pass_time(30)
        self.assertEqual(self.successResultOf(done), "done")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError, KeyError)), 2)

    def test_until_done_stops(self) -> None:
        async def work() -> str:
            raise ZeroDivisionError

        done = Deferred.fromCoroutine(self.retry.until_done(work, "The work"))
        self.pass_time(5)
        self.retry.stop()
        self.failureResultOf(done, CancelledError)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
