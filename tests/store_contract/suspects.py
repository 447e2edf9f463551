"""The contract of the store: work that may have ended a process."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, insert, select, update
from twisted.application.service import Service
from twisted.internet.defer import CancelledError
from twisted.trial.unittest import TestCase

from rsscloud_broker.database import sqlite
from rsscloud_broker.errors import GivenUp
from rsscloud_broker.model import Callback, Intent
from rsscloud_broker.model.shared import Work, WorkKind
from rsscloud_broker.model.work import Check
from rsscloud_broker.storage import nodes, trials
from rsscloud_broker.storage.operating_schema import suspect
from rsscloud_broker.storage.schema import node
from tests.storage.databases import threaded_store
from tests.storage.waiting import SOME
from tests.store_contract.basics import FEED, a_fetch, a_subscription, waits

TOPIC = Work(WorkKind.TOPIC, FEED)

#: When everything is due.
LATER = 9000.0


class SuspectsContract(TestCase):
    """The tests that every store must pass.

    :ivar store: that of the process that runs now.
    """

    def make_database(self) -> str:
        raise NotImplementedError

    def setUp(self) -> None:
        self.patch(trials, "CALM", dict.fromkeys(WorkKind, 0.0))
        self.url = self.make_database()
        self.store = threaded_store(self, self.url)

    async def next_process(self) -> None:
        """Go on in another process, as that of the store has ended without a word."""
        key = self.store.node
        Service.stopService(self.store)
        await self.store._database.stop()
        self.store = threaded_store(self, self.url)

        def notice(conn: Connection) -> None:
            if not sqlite.serves(conn):
                conn.execute(update(node).where(node.c.id == key).values(beat_at=1))
                nodes.remove_dead(conn)

        await self.store._database.write(notice)

    async def wait(self) -> Work:
        """Let a topic wait for a fetch."""
        await self.store.put_subscription(a_subscription())
        await self.store.request_check(FEED, 900.0, pinged=True)
        return TOPIC

    async def claim(self) -> Sequence[Check]:
        return (await self.store.claim_checks(SOME)).checks

    async def suspected(self) -> Work:
        """Let a process end that has claimed a topic; the next one knows that."""
        work = await self.wait()
        await self.claim()
        await self.next_process()
        self.assertEqual(len(await self.claim()), 1)
        self.assertIn(work, self.store.suspects)
        return work

    async def end_in_trial(self, work: Work) -> None:
        """Begin a trial, in which the process ends."""
        await self.claim()
        context = self.store.trial(work)
        await context.__aenter__()
        self.addCleanup(lambda: context)  # or else it would end with this method
        await self.next_process()
        await self.claim()

    async def test_nothing_is_suspect_at_first(self) -> None:
        work = await self.wait()
        await self.claim()
        self.assertNotIn(work, self.store.suspects)
        async with self.store.trial(work):
            pass

    async def test_work_of_a_process_that_stopped(self) -> None:
        work = await self.wait()
        await self.claim()
        await self.store.stopService()
        self.store = threaded_store(self, self.url)
        self.assertEqual(len(await self.claim()), 1)
        self.assertNotIn(work, self.store.suspects)

    async def test_work_that_nobody_had_claimed(self) -> None:
        work = await self.wait()
        await self.next_process()
        await self.claim()
        self.assertNotIn(work, self.store.suspects)

    async def test_work_is_suspect_until_it_comes_to_an_end(self) -> None:
        """Also by an error, but not if it is broken off."""
        work = await self.suspected()
        for error, stays in ((CancelledError, True), (KeyError, False)):
            with self.assertRaises(error):
                async with self.store.trial(work):
                    self.assertIn(work, self.store.suspects)
                    raise error
            self.assertEqual(work in self.store.suspects, stays, error)

    async def test_work_is_given_up_after_three_ends(self) -> None:
        """It is tried again after an hour."""
        work = await self.suspected()
        for _ in range(2):
            await self.end_in_trial(work)
        with self.assertRaisesRegex(GivenUp, "has ended or stood still 3 times"):
            async with self.store.trial(work):
                self.fail("it was begun")
        self.flushLoggedErrors()
        self.patch(trials, "LEFT_ALONE", -1.0)
        async with self.store.trial(work):
            pass
        self.assertNotIn(work, self.store.suspects)

    async def test_work_that_waits_is_not_blamed_for_others(self) -> None:
        """However often a process ends that has claimed it."""
        work = await self.wait()
        for _ in range(5):
            await self.claim()
            await self.next_process()
        await self.claim()
        async with self.store.trial(work):
            pass

    async def test_notifications_are_not_suspect(self) -> None:
        """Neither those that were under way, nor those of a fan-out."""
        stored = await self.store.put_subscription(a_subscription())
        await self.store.record_deliveries([waits(stored, 2000.0)])
        await self.store.claim_due(LATER, 10, ())
        await self.store.record_fetch(a_fetch(), None)
        (walk,) = await self.store.fanouts(10)
        await self.store.claim_fanouts([walk.id])
        await self.next_process()
        await self.store.claim_due(LATER, 10, ())
        rows = await self.store._database.read(lambda conn: conn.execute(select(suspect)).all())
        self.assertEqual(rows, [])

    async def test_suspects_of_a_kind_that_is_not_known_any_more(self) -> None:
        old = insert(suspect).values(kind="notification", key=1, ends=1, ended_at=1)
        await self.store._database.write(lambda conn: conn.execute(old))
        await self.suspected()

    async def test_topic_that_is_polled(self) -> None:
        await self.store.put_subscription(a_subscription())
        await self.store.polls_due(LATER, 10)
        await self.next_process()
        await self.store.polls_due(LATER, 10)
        self.assertIn(TOPIC, self.store.suspects)

    async def test_intent(self) -> None:
        wanted = Intent(FEED, Callback("http://reader.example/", "websub"), 60)
        stored = await self.store.add_intent(wanted, 10)
        assert stored is not None
        await self.next_process()
        taken = [*await self.store.intents(), *await self.store.claim_intents(10)]
        self.assertEqual([one.id for one in taken], [stored.id])
        self.assertIn(Work(WorkKind.INTENT, stored.id), self.store.suspects)
