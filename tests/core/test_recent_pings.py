"""Tests that the newest pings are read once a second at most, however often they are requested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.core.views import TopicView
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.model import Ping
from rsscloud_broker.testing import Clock

A, B = Ping("A", "http://a.example/", 1.0), Ping("B", "http://b.example/", 2.0)


@define
class Store:
    """A store whose reads wait until a test answers them."""

    asked: list[tuple[float, float, Ping | None, int]] = field(factory=list)
    answers: list[Deferred[list[Ping]]] = field(factory=list)

    def pings(
        self, since: float, until: float, before: Ping | None, limit: int
    ) -> Deferred[list[Ping]]:
        self.asked.append((since, until, before, limit))
        self.answers.append(Deferred())
        return self.answers[-1]


class RecentPingsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock(1000.0)
        self.store = Store()
        store: Any = self.store
        self.recent = TopicView(store, self.clock)

    def ask(self) -> Deferred[Sequence[Ping]]:
        return Deferred.fromCoroutine(self.recent.pings(None, 10))

    def test_asks_for_the_newest(self) -> None:
        asking = self.ask()
        ((since, until, before, limit),) = self.store.asked
        self.assertEqual((since, before, limit), (0, None, 10))
        self.assertGreater(until, 1000.0)
        self.store.answers[0].callback([B, A])
        self.assertEqual(self.successResultOf(asking), (B, A))

    def test_all_who_ask_meanwhile_get_one_answer(self) -> None:
        asking = [self.ask() for _ in range(5)]
        self.assertEqual(len(self.store.asked), 1)
        self.store.answers[0].callback([A])
        self.assertEqual([self.successResultOf(each) for each in asking], [(A,)] * 5)

    def test_for_a_second(self) -> None:
        first = self.ask()
        self.store.answers[0].callback([A])
        self.clock.advance(0.9)
        self.assertIs(self.successResultOf(self.ask()), self.successResultOf(first))
        self.clock.advance(0.2)
        later = self.ask()
        self.assertNoResult(later)
        self.store.answers[1].callback([B, A])
        self.assertEqual(self.successResultOf(later), (B, A))
        self.assertEqual(len(self.store.asked), 2)

    def test_failures_reach_all_and_are_not_kept(self) -> None:
        asking = [self.ask(), self.ask()]
        self.store.answers[0].errback(Unavailable("no disk"))
        for each in asking:
            self.failureResultOf(each, Unavailable)
        again = self.ask()
        self.store.answers[1].callback([A])
        self.assertEqual(self.successResultOf(again), (A,))
