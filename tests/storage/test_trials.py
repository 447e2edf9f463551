"""Suspects begin a few at a time, or alone."""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import ClaimLost
from rsscloud_broker.interfaces.trials import Work, WorkKind
from rsscloud_broker.storage.trials import CALM, FEW
from rsscloud_broker.testing import memory_store
from tests.delivery.engine import subscribe_all
from tests.storage.suspects import make_suspect

TOPIC = "http://feeds.example/rss.xml"
CALM_AT = CALM[WorkKind.NOTIFICATION]


def notification(number: int) -> Work:
    """Some work."""
    return Work(WorkKind.NOTIFICATION, number)


class TrialTests(SynchronousTestCase):
    """Trials of a store in memory.

    :ivar begun: what is under way, or was.
    """

    def setUp(self) -> None:
        self.store = memory_store()
        self.addCleanup(self.store.stopService)
        urls = [f"http://reader{number}.example/" for number in range(201)]
        database: Any = self.store._database
        self.successResultOf(
            database.write(partial(subscribe_all, urls=urls, topic=TOPIC, first=0))
        )
        self.clock: Any = self.store.suspects._reactor
        self.begun: list[Work] = []
        self.ends: dict[Work, Deferred[None]] = {}
        self.addCleanup(self.end_all)

    def end_all(self) -> None:
        while self.ends:
            _, end = self.ends.popitem()
            if not end.called:
                end.callback(None)

    def suspect(self, work: Work, ends: int = 1) -> None:
        self.successResultOf(make_suspect(self.store, work, ends))

    def begin(self, work: Work, *, careful: bool = False) -> Deferred[None]:
        async def trial() -> None:
            async with self.store.trial(work, careful=careful):
                self.begun.append(work)
                self.ends[work] = Deferred()
                await self.ends[work]

        return Deferred.fromCoroutine(trial())

    def test_a_subscription_that_has_ended_is_not_notified(self) -> None:
        """Another node may have taken that in while a notification waited for its trial."""
        work = notification(500)
        self.suspect(work)
        self.store.suspects._known[work] = 1
        self.failureResultOf(self.begin(work), ClaimLost)
        self.assertEqual((self.begun, work in self.store.suspects), ([], False))

    def test_what_is_not_suspect_waits_for_nobody(self) -> None:
        for number in range(FEW + 3):
            self.suspect(notification(number))
            self.begin(notification(number))
        self.begin(notification(200))
        self.assertIn(notification(200), self.begun)

    def test_few_are_under_way_at_a_time(self) -> None:
        works = [notification(number) for number in range(FEW + 2)]
        for work in works:
            self.begin(work, careful=True)
        self.assertEqual(self.begun, works[:FEW])
        self.ends[works[3]].callback(None)
        self.assertEqual(self.begun, works[: FEW + 1])

    def test_one_that_two_were_at_when_they_ended_waits_for_calm(self) -> None:
        self.suspect(notification(1), 2)
        self.begin(notification(1))
        self.clock.advance(CALM_AT - 0.1)
        self.assertEqual(self.begun, [])
        self.clock.advance(0.2)
        self.assertEqual(self.begun, [notification(1)])

    def test_one_that_two_were_at_when_they_ended_is_alone(self) -> None:
        first, alone, last = (notification(number) for number in (1, 2, 3))
        for work, ends in ((first, 1), (alone, 2), (last, 1)):
            self.suspect(work, ends)
        self.clock.advance(CALM_AT)
        for work in (first, alone, last):
            self.begin(work)
        self.clock.advance(0.1)
        self.assertEqual(self.begun, [first, last], "it waits until the process is calm")
        self.ends[first].callback(None)
        self.ends[last].callback(None)
        self.assertEqual(self.begun, [first, last, alone])
        self.suspect(first)
        self.begin(first)
        self.assertEqual(self.begun, [first, last, alone])
        self.ends[alone].callback(None)
        self.assertEqual(self.begun, [first, last, alone, first])

    def test_one_that_is_broken_off_while_it_waits_leaves_its_place(self) -> None:
        works = [notification(number) for number in range(FEW + 2)]
        trials = [self.begin(work, careful=True) for work in works]
        trials[FEW].cancel()
        self.failureResultOf(trials[FEW])
        self.ends[works[0]].callback(None)
        self.assertEqual(self.begun, [*works[:FEW], works[FEW + 1]])

    def test_topics_do_not_wait_for_intents(self) -> None:
        """An intent waits for its topic, so the other way round nobody would ever go on."""
        intent = Work(WorkKind.INTENT, 1)
        self.suspect(intent, 2)
        self.clock.advance(CALM[WorkKind.INTENT])
        self.begin(intent)
        self.clock.advance(0.1)
        topic = Work(WorkKind.TOPIC, "http://feeds.example/")
        self.begin(topic, careful=True)
        self.assertEqual(self.begun, [intent, topic])
