"""One call while others wait, exactly one more after it."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.core.sharing import SharedCalls
from rsscloud_broker.testing.clock import Clock


class SharedCallsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.calls: list[tuple[str, Deferred[str]]] = []
        self.clock = Clock()
        self.shared = SharedCalls(self.function, self.clock)

    def function(self, key: str) -> Deferred[str]:
        self.calls.append((key, Deferred()))
        return self.calls[-1][1]

    def assert_keys(self, *keys: str) -> None:
        self.assertEqual([key for key, _ in self.calls], list(keys))

    def test_result(self) -> None:
        waiter = self.shared("a")
        self.assertNoResult(waiter)
        self.calls[0][1].callback("first")
        self.assertEqual(self.successResultOf(waiter), "first")

    def test_those_who_ask_during_a_call_share_the_next(self) -> None:
        first = self.shared("a")
        later = [self.shared("a") for _ in range(5)]
        self.assert_keys("a")
        self.calls[0][1].callback("first")
        self.assertEqual(self.successResultOf(first), "first")
        self.assert_keys("a", "a")
        for waiter in later:
            self.assertNoResult(waiter)
        self.calls[1][1].callback("second")
        self.assertEqual([self.successResultOf(waiter) for waiter in later], ["second"] * 5)
        self.assert_keys("a", "a")

    def test_many_wait_a_moment_for_those_who_are_on_their_way(self) -> None:
        self.shared("a")
        waiters = [self.shared("a") for _ in range(50)]
        self.calls[0][1].callback("first")
        self.clock.advance(0.4)
        self.assert_keys("a")
        waiters += [self.shared("a") for _ in range(5000)]
        self.clock.advance(0.2)
        self.assert_keys("a", "a")
        self.calls[1][1].callback("second")
        self.assertEqual({self.successResultOf(waiter) for waiter in waiters}, {"second"})
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_nobody_waits_for_long(self) -> None:
        self.shared("a")
        waiters = [self.shared("a") for _ in range(5000)]
        self.calls[0][1].callback("first")
        self.clock.advance(1)
        self.calls[1][1].callback("second")
        self.assertEqual({self.successResultOf(waiter) for waiter in waiters}, {"second"})

    def test_no_call_is_left_over(self) -> None:
        for number in range(3):
            waiter = self.shared("a")
            self.calls[number][1].callback("x")
            self.successResultOf(waiter)
        self.assert_keys("a", "a", "a")

    def test_keys_are_independent(self) -> None:
        a, b = self.shared("a"), self.shared("b")
        self.assert_keys("a", "b")
        self.calls[1][1].callback("of b")
        self.assertEqual(self.successResultOf(b), "of b")
        self.assertNoResult(a)
        self.calls[0][1].callback("of a")
        self.assertEqual(self.successResultOf(a), "of a")

    def test_a_failure_reaches_all_who_share_it_and_no_others(self) -> None:
        first = self.shared("a")
        second, third = self.shared("a"), self.shared("a")
        self.calls[0][1].callback("fine")
        fourth = self.shared("a")
        self.calls[1][1].errback(ValueError("no good"))
        self.assertEqual(self.successResultOf(first), "fine")
        for waiter in (second, third):
            self.assertEqual(str(self.failureResultOf(waiter, ValueError).value), "no good")
        self.calls[2][1].callback("fine again")
        self.assertEqual(self.successResultOf(fourth), "fine again")

    def test_who_asks_again_when_told_gets_another_call(self) -> None:
        again: list[Deferred[str]] = []
        self.shared("a").addCallback(lambda result: again.append(self.shared("a")))
        self.calls[0][1].callback("first")
        self.assert_keys("a", "a")
        self.calls[1][1].callback("second")
        self.assertEqual(self.successResultOf(again[0]), "second")

    def test_one_who_stops_waiting_disturbs_nobody(self) -> None:
        gone, stays = self.shared("a"), self.shared("a")
        gone.cancel()
        self.failureResultOf(gone, CancelledError)
        self.calls[0][1].callback("first")
        self.calls[1][1].callback("second")
        self.assertEqual(self.successResultOf(stays), "second")

    def test_function_that_answers_at_once(self) -> None:
        async def at_once(key: str) -> str:
            return key.upper()

        shared = SharedCalls(at_once, self.clock)
        self.assertEqual(self.successResultOf(shared("a")), "A")
        self.assertEqual(self.successResultOf(shared("a")), "A")
