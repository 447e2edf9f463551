"""Caches of limited size: by the number of keys, by their age, or by bytes."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.testing import Clock
from rsscloud_broker.util.caches import BoundedDict, ByteLimitedCache, TimedCache


class RememberedTests(SynchronousTestCase):
    def test_forgets_what_was_set_longest_ago(self) -> None:
        remembered: BoundedDict[str, int] = BoundedDict(2)
        remembered["a"] = 1
        remembered["b"] = 2
        remembered["a"] = 3
        remembered["c"] = 4
        self.assertEqual([remembered.get(key, 0) for key in "abc"], [3, 0, 4])
        self.assertEqual(len(remembered), 2)

    def test_values_are_replaced_where_they_are(self) -> None:
        remembered: BoundedDict[str, int] = BoundedDict(2)
        remembered["a"] = 1
        remembered["b"] = 2
        remembered.replace_each(lambda value: value * 10)
        remembered["c"] = 3
        self.assertEqual([remembered.get(key, 0) for key in "abc"], [0, 20, 3])


class TimedCacheTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock(1000.0)
        self.reads: list[tuple[str, Deferred[str]]] = []
        self.remembering = TimedCache(self.read, self.clock, 1.0, 2)

    def read(self, key: str) -> Deferred[str]:
        self.reads.append((key, Deferred()))
        return self.reads[-1][1]

    def ask(self, key: str) -> Deferred[str]:
        return Deferred.fromCoroutine(self.remembering.get(key))

    def keys(self) -> list[str]:
        return [key for key, _ in self.reads]

    def test_each_key_is_read_by_itself(self) -> None:
        a, b = self.ask("a"), self.ask("b")
        self.assertEqual(self.keys(), ["a", "b"])
        self.reads[1][1].callback("B")
        self.assertEqual((self.successResultOf(b), a.called), ("B", False))
        self.reads[0][1].callback("A")
        self.assertEqual(self.successResultOf(a), "A")

    def test_a_value_is_remembered_for_a_while(self) -> None:
        waiting = [self.ask("a"), self.ask("a")]
        self.reads[0][1].callback("A")
        self.assertEqual([self.successResultOf(each) for each in waiting], ["A", "A"])
        self.clock.advance(0.9)
        self.assertEqual(self.successResultOf(self.ask("a")), "A")
        self.assertEqual(self.keys(), ["a"])
        self.clock.advance(0.2)
        self.assertNoResult(self.ask("a"))
        self.assertEqual(self.keys(), ["a", "a"])

    def test_the_newest_value_is_read_in_any_case(self) -> None:
        self.ask("a")
        self.reads[0][1].callback("old")
        asking = Deferred.fromCoroutine(self.remembering.get("a", newest=True))
        self.reads[1][1].callback("new")
        self.assertEqual(self.successResultOf(asking), "new")
        self.assertEqual(self.successResultOf(self.ask("a")), "new")

    def test_the_newest_value_is_not_one_that_was_being_read_before(self) -> None:
        before = self.ask("a")
        newest = Deferred.fromCoroutine(self.remembering.get("a", newest=True))
        joining = self.ask("a")
        self.assertEqual(self.keys(), ["a", "a"])
        self.reads[1][1].callback("new")
        self.assertEqual([self.successResultOf(each) for each in (newest, joining)], ["new"] * 2)
        self.reads[0][1].callback("old")
        self.assertEqual(self.successResultOf(before), "old")
        self.assertEqual(self.successResultOf(self.ask("a")), "new")

    def test_an_older_read_that_ends_first_is_not_remembered(self) -> None:
        before = self.ask("a")
        newest = Deferred.fromCoroutine(self.remembering.get("a", newest=True))
        self.reads[0][1].errback(KeyError("no"))
        self.failureResultOf(before, KeyError)
        self.assertNoResult(newest)
        self.reads[1][1].callback("new")
        self.assertEqual(self.successResultOf(newest), "new")
        self.assertEqual(self.successResultOf(self.ask("a")), "new")

    def test_failures_are_not_remembered(self) -> None:
        waiting = [self.ask("a"), self.ask("a")]
        self.reads[0][1].errback(KeyError("no"))
        for each in waiting:
            self.failureResultOf(each, KeyError)
        self.assertNoResult(self.ask("a"))
        self.assertEqual(self.keys(), ["a", "a"])

    def test_few_values_are_remembered(self) -> None:
        for key in ("a", "b", "c"):
            asking = self.ask(key)
            self.reads[-1][1].callback(key)
            self.assertEqual(self.successResultOf(asking), key)
        self.assertEqual(self.successResultOf(self.ask("c")), "c")
        self.assertNoResult(self.ask("a"))
        self.assertEqual(self.keys(), ["a", "b", "c", "a"])


class ByteLimitedCacheTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.kept: ByteLimitedCache[str, bytes] = ByteLimitedCache(10, 6, len)

    def keys(self) -> str:
        return "".join(key for key in "abcd" if key in self.kept._values_by_use)

    def test_those_go_that_were_not_read_for_longest(self) -> None:
        for key in "abc":
            self.kept.keep(key, bytes(3))
        self.assertEqual(self.kept.get("a"), bytes(3))
        self.kept.keep("d", bytes(5))
        self.assertEqual((self.keys(), self.kept.size), ("ad", 8))

    def test_large_answer_is_not_kept_nor_the_one_before(self) -> None:
        self.kept.keep("a", bytes(6))
        self.kept.keep("b", bytes(1))
        self.kept.keep("a", bytes(7))
        self.assertEqual((self.keys(), self.kept.size, len(self.kept)), ("b", 1, 1))

    def test_replaced_and_dropped(self) -> None:
        self.kept.keep("a", bytes(6))
        self.kept.keep("a", bytes(5))
        self.assertEqual((self.kept.get("a"), self.kept.size), (bytes(5), 5))
        for _ in "twice":
            self.kept.drop("a")
        self.assertEqual((self.kept.get("a"), self.kept.size), (None, 0))
