"""Tests that what may end a courier is tried one after the other, and that hosts take turns."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import CallsUnavailable
from rsscloud_broker.outbound.couriers.turns import KEPT, MOST, OF_A_HOST, Turns
from rsscloud_broker.testing import Clock


class TurnsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.turns = Turns(self.clock)
        self.begun: list[str] = []
        self.ends: dict[str, Deferred[None]] = {}
        self.addCleanup(self.end_all)

    def end_all(self) -> None:
        """Leave nothing that waits for ever."""
        for end in list(self.ends.values()):
            if not end.called:
                end.callback(None)

    def try_(self, name: str) -> Deferred[None]:
        """Try something named ``host/...``, which takes until its end fires."""
        self.ends[name] = Deferred()

        async def trying() -> None:
            async with self.turns.of(name.partition("/")[0]):
                self.begun.append(name)
                await self.ends[name]

        return Deferred.fromCoroutine(trying())

    def end(self, name: str) -> None:
        self.ends[name].callback(None)

    def test_one_at_a_time(self) -> None:
        first, second = self.try_("a/1"), self.try_("a/2")
        self.assertEqual(self.begun, ["a/1"])
        self.clock.advance(10_000)
        self.assertEqual(self.begun, ["a/1"])
        self.end("a/1")
        self.assertEqual(self.begun, ["a/1", "a/2"])
        self.end("a/2")
        self.successResultOf(first)
        self.successResultOf(second)
        self.try_("a/3")
        self.assertEqual(self.begun[-1], "a/3")

    def test_hosts_take_turns(self) -> None:
        for name in ("a/1", "a/2", "a/3", "a/4", "b/1", "c/1", "c/2"):
            self.try_(name)
        for number in range(6):
            self.end(self.begun[number])
        self.assertEqual(self.begun, ["a/1", "a/2", "b/1", "c/1", "a/3", "c/2", "a/4"])

    def test_failure_ends_a_turn_too(self) -> None:
        first = self.try_("a/1")
        self.try_("a/2")
        self.ends["a/1"].errback(ValueError("no"))
        self.failureResultOf(first, ValueError)
        self.assertEqual(self.begun, ["a/1", "a/2"])

    def test_who_does_not_wait_any_more(self) -> None:
        self.try_("a/1")
        waiting = [self.try_("b/1"), self.try_("b/2")]
        waiting[0].cancel()
        self.failureResultOf(waiting[0], CancelledError)
        self.end("a/1")
        self.assertEqual(self.begun, ["a/1", "b/2"])
        waiting[1].cancel()
        self.failureResultOf(waiting[1], CancelledError)
        self.try_("c/1")
        self.assertEqual(self.begun[-1], "c/1")

    def test_few_wait(self) -> None:
        self.try_("a/0")
        for number in range(OF_A_HOST):
            self.assertNoResult(self.try_(f"a/{number + 1}"))
        self.failureResultOf(self.try_("a/more"), CallsUnavailable)
        for number in range(MOST - OF_A_HOST):
            self.assertNoResult(self.try_(f"b{number}/1"))
        self.failureResultOf(self.try_("c/1"), CallsUnavailable)
        self.end("a/0")
        self.assertNoResult(self.try_("c/2"))

    def test_who_was_turned_away_goes_first(self) -> None:
        """Others who come again and again do not take the places that get free."""
        self.try_("a/0")
        for number in range(MOST):
            self.try_(f"b{number}/1")
        for name in ("c/1", "d/1"):
            self.failureResultOf(self.try_(name), CallsUnavailable)
        self.end("a/0")
        self.failureResultOf(self.try_("e/1"), CallsUnavailable)
        self.failureResultOf(self.try_("d/2"), CallsUnavailable)
        self.assertNoResult(self.try_("c/2"))
        self.end("b0/1")
        self.failureResultOf(self.try_("e/2"), CallsUnavailable)
        self.assertNoResult(self.try_("d/3"))

    def test_places_are_not_kept_for_ever(self) -> None:
        self.try_("a/0")
        for number in range(MOST):
            self.try_(f"b{number}/1")
        self.failureResultOf(self.try_("c/1"), CallsUnavailable)
        self.end("a/0")
        self.clock.advance(KEPT)
        self.assertNoResult(self.try_("e/1"))
