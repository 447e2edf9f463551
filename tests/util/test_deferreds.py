"""Coroutines and functions that are notified of an end."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.util.deferreds import (
    BreakOff,
    Done,
    from_callback,
    nothing_to_break_off,
    run_with_callback,
)


class TellTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.gate: Deferred[int] = Deferred()
        self.ends: list[object] = []

    async def wait(self) -> int:
        return await self.gate

    def test_result(self) -> None:
        run_with_callback(self.wait(), self.ends.append)
        self.assertEqual(self.ends, [])
        self.gate.callback(7)
        self.assertEqual(self.ends, [7])

    def test_broken_off(self) -> None:
        break_off = run_with_callback(self.wait(), self.ends.append)
        break_off()
        break_off()
        (end,) = self.ends
        self.assertIsInstance(end, CancelledError)


class ToldTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.waiting: list[Done[int]] = []

    def begin(self, done: Done[int]) -> BreakOff:
        self.waiting.append(done)
        return lambda: done(CancelledError())

    def test_how_it_ends(self) -> None:
        for end in (7, ZeroDivisionError()):
            over = Deferred.fromCoroutine(from_callback(self.begin))
            self.assertNoResult(over)
            self.waiting.pop()(end)
            if isinstance(end, Exception):
                self.failureResultOf(over, type(end))
            else:
                self.assertEqual(self.successResultOf(over), end)

    def test_over_at_once(self) -> None:
        def begin(done: Done[int]) -> BreakOff:
            done(7)
            return nothing_to_break_off

        self.assertEqual(self.successResultOf(from_callback(begin)), 7)

    def test_cancelled(self) -> None:
        over = Deferred.fromCoroutine(from_callback(self.begin))
        over.cancel()
        self.failureResultOf(over, CancelledError)
