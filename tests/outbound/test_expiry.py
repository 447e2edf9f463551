"""Tests the collection whose items expire by one timer."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.outbound.expiry import Expiry
from rsscloud_broker.testing.clock import Clock


class ExpiryTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.expired: list[str] = []
        self.expiry: Expiry[str] = Expiry(self.clock, 10, self.expired.append)

    def test_each_after_its_time(self) -> None:
        self.expiry.add("a")
        self.clock.advance(4)
        self.expiry.add("b")
        self.expiry.add("c")
        self.assertEqual(len(self.expiry), 3)
        self.clock.advance(5.9)
        self.assertEqual(self.expired, [])
        self.clock.advance(0.1)
        self.assertEqual(self.expired, ["a"])
        self.clock.advance(4)
        self.assertEqual(self.expired, ["a", "b", "c"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_discarded(self) -> None:
        self.expiry.add("a")
        self.expiry.discard("a")
        self.expiry.discard("never here")
        self.clock.advance(10)
        self.assertEqual((self.expired, self.clock.getDelayedCalls()), ([], []))

    def test_one_timer(self) -> None:
        for number in range(100):
            self.expiry.add(str(number))
            self.clock.advance(0.01)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)

    def test_added_when_another_expires(self) -> None:
        again: list[str] = []

        def expire(thing: str) -> None:
            again.append(thing)
            if len(again) < 3:
                expiry.add(f"{thing}+")

        expiry: Expiry[str] = Expiry(self.clock, 10, expire)
        expiry.add("a")
        self.clock.pump([10, 10, 10, 10])
        self.assertEqual(again, ["a", "a+", "a++"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_bug_at_one_is_not_the_end(self) -> None:
        def expire(item: str) -> None:
            if item == "a":
                raise ZeroDivisionError
            self.expired.append(item)

        self.expiry = Expiry(self.clock, 10, expire)
        for item in ("a", "b"):
            self.expiry.add(item)
            self.clock.advance(1)
        self.clock.pump([1.0] * 20)
        self.assertEqual(self.expired, ["b"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_clear(self) -> None:
        self.expiry.add("a")
        self.expiry.add("b")
        self.assertEqual(self.expiry.clear(), ["a", "b"])
        self.assertEqual((len(self.expiry), self.clock.getDelayedCalls()), (0, []))
        self.assertEqual((self.expiry.clear(), self.expired), ([], []))
