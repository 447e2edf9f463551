"""Suspects begin a few at a time, or alone."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.model.shared import Work, WorkKind
from rsscloud_broker.storage.operating_schema import suspect
from rsscloud_broker.storage.trials import CALM, FEW
from rsscloud_broker.testing import memory_store
from tests.storage.suspects import make_suspect

CALM_AT = CALM[WorkKind.INTENT]


def intent(number: int) -> Work:
    """Some work."""
    return Work(WorkKind.INTENT, number)


class TrialTests(SynchronousTestCase):
    """Trials of a store in memory.

    :ivar begun: what is under way, or was.
    """

    def setUp(self) -> None:
        self.store = memory_store()
        self.addCleanup(self.store.stopService)
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

    def begin(self, work: Work, ends: int = 0) -> Deferred[None]:
        """Begin some work, after having made it suspect if processes have ended."""
        if ends:
            self.suspect(work, ends)

        async def trial() -> None:
            async with self.store.trial(work):
                self.begun.append(work)
                self.ends[work] = Deferred()
                await self.ends[work]

        return Deferred.fromCoroutine(trial())

    def test_what_is_not_suspect_waits_for_nobody(self) -> None:
        for number in range(FEW + 3):
            self.suspect(intent(number))
            self.begin(intent(number))
        self.begin(intent(200))
        self.assertIn(intent(200), self.begun)

    def test_few_are_under_way_at_a_time(self) -> None:
        works = [intent(number) for number in range(FEW + 2)]
        for work in works:
            self.begin(work, ends=1)
        self.assertEqual(self.begun, works[:FEW])
        self.ends[works[3]].callback(None)
        self.assertEqual(self.begun, works[: FEW + 1])

    def test_one_that_two_were_at_when_they_ended_waits_for_calm_and_is_alone(self) -> None:
        first, second, other = (intent(number) for number in (1, 2, 3))
        for work, ends in ((first, 2), (second, 2), (other, 1)):
            self.begin(work, ends)
        self.clock.advance(CALM_AT - 0.1)
        self.assertEqual(self.begun, [other])
        self.clock.advance(0.2)
        self.assertEqual(self.begun, [other, first])
        self.ends[first].callback(None)
        self.assertIn(second, self.begun)

    def test_one_that_is_broken_off_while_it_begins_is_not_blamed(self) -> None:
        """It is written by then, which this process has not heard yet."""
        work = intent(1)
        self.suspect(work)
        database: Any = self.store._database
        write = database.write

        def write_unheard(operation: Any) -> Deferred[None]:
            write(operation)
            return Deferred()

        self.patch(database, "write", write_unheard)
        self.begin(work).cancel()
        query = select(suspect.c.ends, suspect.c.node_id)
        rows = self.successResultOf(database.read(lambda conn: conn.execute(query).all()))
        self.assertEqual(rows, [(1, None)])

    def test_one_that_is_broken_off_while_it_waits_leaves_its_place(self) -> None:
        works = [intent(number) for number in range(FEW + 2)]
        trials = [self.begin(work, ends=1) for work in works]
        trials[FEW].cancel()
        self.failureResultOf(trials[FEW])
        self.ends[works[0]].callback(None)
        self.assertEqual(self.begun, [*works[:FEW], works[FEW + 1]])

    def test_one_for_which_the_broker_lacks_something_is_still_suspect(self) -> None:
        work = intent(1)
        trial = self.begin(work, ends=1)
        self.ends[work].errback(Unavailable())
        self.failureResultOf(trial, Unavailable)
        self.assertIn(work, self.store.suspects)

    def test_topics_do_not_wait_for_intents(self) -> None:
        """An intent waits for its topic, so the other way round nobody would ever go on."""
        topic = Work(WorkKind.TOPIC, "http://feeds.example/")
        self.begin(intent(1), ends=2)
        self.clock.advance(CALM_AT)
        self.store.suspects._ends[topic] = 1
        self.begin(topic)
        self.assertEqual(self.begun, [intent(1), topic])
