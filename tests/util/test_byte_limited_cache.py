"""Answers that are kept in memory, of limited size."""

from __future__ import annotations

from attrs import frozen
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.util.caches import ByteLimitedCache


@frozen
class Answer:
    size: int


class ByteLimitedCacheTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.kept: ByteLimitedCache[str, Answer] = ByteLimitedCache(
            10, 6, lambda answer: answer.size
        )

    def keys(self) -> str:
        return "".join(key for key in "abcd" if key in self.kept._values_by_use)

    def test_those_go_that_were_not_read_for_longest(self) -> None:
        for key in "abc":
            self.kept.keep(key, Answer(3))
        self.assertEqual(self.kept.get("a"), Answer(3))
        self.kept.keep("d", Answer(5))
        self.assertEqual((self.keys(), self.kept.size), ("ad", 8))

    def test_large_answer_is_not_kept_nor_the_one_before(self) -> None:
        self.kept.keep("a", Answer(6))
        self.kept.keep("b", Answer(1))
        self.kept.keep("a", Answer(7))
        self.assertEqual((self.keys(), self.kept.size, len(self.kept)), ("b", 1, 1))

    def test_replaced_and_dropped(self) -> None:
        self.kept.keep("a", Answer(6))
        self.kept.keep("a", Answer(5))
        self.assertEqual((self.kept.get("a"), self.kept.size), (Answer(5), 5))
        for _ in "twice":
            self.kept.drop("a")
        self.assertEqual((self.kept.get("a"), self.kept.size), (None, 0))
