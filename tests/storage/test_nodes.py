"""Nodes claim work, lose it when they are dead, and record nothing after that."""

from __future__ import annotations

import time
from threading import Event as Flag
from typing import Any

import psycopg
from sqlalchemy import Connection, select, text
from sqlalchemy.exc import SQLAlchemyError
from twisted.internet import reactor
from twisted.internet.interfaces import IReactorFromThreads, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase, TestCase

from rsscloud_broker.counters import Counters
from rsscloud_broker.database.columns import lock_rows
from rsscloud_broker.errors import ClaimLost, StoreUnavailable
from rsscloud_broker.events import ClaimsLost, Event, NodesCounted, WorkHinted
from rsscloud_broker.model import Callback, Intent, Ping, Subscription
from rsscloud_broker.model.administration import NodeState
from rsscloud_broker.model.shared import Work, WorkKind
from rsscloud_broker.model.work import CheckState, Fanout, PollPlan
from rsscloud_broker.storage import Pulse, Store, jobs, nodes, pulse, walks
from rsscloud_broker.storage.schema import counter, pending, topic
from rsscloud_broker.storage.upgrade import LATEST_REVISION
from rsscloud_broker.testing import memory_store
from rsscloud_broker.util.clock import SystemClock
from tests.postgresql import borrowed_database
from tests.processes import TIMEOUT
from tests.storage.databases import engine_for, file_database, threaded_store, until
from tests.storage.waiting import SOME
from tests.store_contract.basics import FEED, a_fetch, a_subscription, failed, succeeded, waits

#: A clock of the database that tests can set forward.
CLOCK = (
    "CREATE SCHEMA test_clock",
    "CREATE TABLE test_clock.ahead (seconds integer)",
    "INSERT INTO test_clock.ahead VALUES (0)",
    "CREATE FUNCTION test_clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS "
    "'SELECT pg_catalog.clock_timestamp() + seconds * interval ''1s'' FROM test_clock.ahead'",
)
TABLES_OF_NOW = f"UPDATE alembic_version SET version_num = '{LATEST_REVISION}'"
PATH = "&options=-c%20search_path%3Dtest_clock,pg_catalog,public"


class NodesTestCase(TestCase):
    """Two stores on one PostgreSQL, whose clock the test sets."""

    def setUp(self) -> None:
        self.plain = self.enterContext(borrowed_database())
        self.url = self.plain + PATH
        self.engine = engine_for(self, self.plain)
        self.run_all(*CLOCK)
        self.addCleanup(self.run_all, TABLES_OF_NOW, "DROP SCHEMA test_clock CASCADE")
        self.one = threaded_store(self, self.url)
        self.other = threaded_store(self, self.url)
        self.stores = (self.one, self.other)

    def run_all(self, *statements: str) -> None:
        with self.engine.begin() as conn:
            for statement in statements:
                conn.execute(text(statement))

    def pass_time(self, seconds: float) -> None:
        """Set the clock of the database forward."""
        self.run_all(f"UPDATE test_clock.ahead SET seconds = seconds + {seconds}")

    async def beat(self, store: Store) -> bool:
        """Write the heartbeat of a node; whether it was there."""
        if store.node is None:
            await store.check_writable()
        key = store.node
        assert key is not None
        there: bool = await store._database.write(lambda conn: nodes.touch(conn, key))
        return there

    async def remove_dead(self, store: Store) -> int:
        removed: nodes.Removed = await store._database.write(nodes.remove_dead)
        return removed.nodes

    async def live(self, store: Store) -> int:
        live, _ = await store._database.read(nodes.count)
        return int(live)

    async def lose(self, loser: Store, winner: Store) -> None:
        """Let a node stand still until another has removed it."""
        self.pass_time(9)
        await self.beat(winner)
        self.assertEqual(await self.remove_dead(winner), 1)
        self.assertFalse(await self.beat(loser))

    async def begin(self, subscribers: int = 3) -> Fanout:
        """Begin a fan-out."""
        for number in range(subscribers):
            await self.one.put_subscription(a_subscription(number=number))
        await self.one.record_fetch(a_fetch(), None)
        (walk,) = await self.one.fanouts(10)
        return walk

    def pulse(self, store: Store, clock: SystemClock | None = None) -> list[Event]:
        """Start the heartbeat of a store, and return the events that it publishes."""
        clock = clock or SystemClock(IReactorTime(reactor))
        events: list[Event] = []
        self.published: list[Event] = []
        self.counters = Counters()

        def publish(event: Event) -> None:
            events.append(event)
            self.published.append(event)

        threads = IReactorFromThreads(reactor)
        pulse = Pulse(threads, self.url, store, publish, self.counters, None, clock.follow)
        pulse.startService()
        self.addCleanup(pulse.stopService)
        return events

    async def until(self, events: list[Event], wanted: Event) -> None:
        """Wait for an event, and forget it and those before it."""
        await until(lambda: wanted in events)
        del events[: events.index(wanted) + 1]

    async def beats(self, events: list[Event], number: int = 2) -> None:
        """Wait for some heartbeats."""
        for _ in range(number):
            await self.until(events, WorkHinted())


class NodeTests(NodesTestCase):
    """The rows of nodes."""

    async def test_node_is_dead_after_eight_seconds(self) -> None:
        await self.beat(self.one)
        await self.beat(self.other)
        self.pass_time(7)
        self.assertEqual((await self.remove_dead(self.one), await self.live(self.one)), (0, 2))
        await self.beat(self.one)
        self.pass_time(2)
        self.assertEqual(await self.live(self.one), 1)
        self.assertEqual(await self.remove_dead(self.one), 1)
        self.assertTrue(await self.beat(self.one))
        self.assertFalse(await self.beat(self.other))

    async def test_node_that_ended_before_the_clock_was_set_back(self) -> None:
        await self.beat(self.one)
        await self.beat(self.other)
        self.pass_time(-3600)
        await self.beat(self.one)
        self.assertEqual(await self.live(self.one), 1)
        with self.engine.connect() as conn:
            conn.exec_driver_sql("SET search_path = test_clock, pg_catalog, public")
            self.assertEqual(len(nodes.living(conn)), 1)
        self.assertEqual(await self.remove_dead(self.one), 1)
        self.assertTrue(await self.beat(self.one))
        self.assertFalse(await self.beat(self.other))

    async def test_node_that_finds_newer_tables(self) -> None:
        """It was cut off while a version that it cannot work beside migrated them."""
        self.addCleanup(self.run_all, "DROP TABLE notes_alembic_version")
        self.run_all("CREATE TABLE notes_alembic_version AS SELECT text '0001' AS version_num")
        for table in ("alembic_version", "notes_alembic_version"):
            store = threaded_store(self, self.plain)
            await store.check_writable()
            self.run_all("DELETE FROM node")
            await store.check_writable()
            self.run_all("DELETE FROM node", f"UPDATE {table} SET version_num = '0099'")
            with self.assertRaises(StoreUnavailable) as caught:
                await store.check_writable()
            self.assertIn("a newer version of the broker has migrated", str(caught.exception))
            self.assertIn(f"({table} is 0099 now, and was 0001)", str(caught.exception))

    async def test_commit_in_doubt_beside_newer_tables(self) -> None:
        """The node was never away, so the newer version has seen it, and works beside it."""
        store = threaded_store(self, self.plain)
        await store.check_writable()
        before = store.node
        self.run_all("UPDATE alembic_version SET version_num = '0099'")
        self.patch(store._database, "in_doubt", lambda: 1)
        await store.check_writable()
        self.assertNotEqual(store.node, before)

    async def test_node_that_records_something_is_left(self) -> None:
        """Its transaction may still be committed."""
        await self.begin()
        await self.beat(self.one)
        self.pass_time(9)
        await self.beat(self.other)
        with self.engine.connect() as conn:
            nodes.ensure_registered(conn, self.one.node)
            self.assertEqual(await self.remove_dead(self.other), 0)
            conn.rollback()
        self.assertEqual(await self.remove_dead(self.other), 1)


class CounterTests(NodesTestCase):
    """How many pings there were ever; each node that lives counts by itself."""

    async def test_nodes_that_have_ended(self) -> None:
        for number in range(3):
            store = threaded_store(self, self.url)
            await store.add_ping(Ping("A", f"{FEED}{number}", 3000.0), 0.0, "192.0.2.1", True)
            await store.stopService()
        for number, store in enumerate(self.stores, 5):
            await store.add_ping(Ping("A", f"{FEED}{number}", 3000.0), 0.0, "192.0.2.1", True)
        self.assertEqual(await self.one.count_pings(), 5)
        with self.engine.connect() as conn:
            rows: dict[str, int] = dict(conn.execute(select(counter)).tuples().all())
        self.assertEqual(
            rows, {"pings": 3, f"pings/{self.one.node}": 1, f"pings/{self.other.node}": 1}
        )
        await self.beat(self.one)
        await self.lose(self.other, self.one)
        self.assertEqual(await self.one.count_pings(), 5)
        with self.engine.connect() as conn:
            self.assertEqual(len(conn.execute(select(counter)).all()), 2)


class ClaimTests(NodesTestCase):
    """Claims of fan-outs and pending notifications."""

    async def test_fanout_is_claimed_by_one(self) -> None:
        walk = await self.begin()
        claims = [await store.claim_fanouts([walk.id]) for store in self.stores]
        self.assertEqual(claims, [[walk], []])
        self.assertEqual([await store.fanouts(10) for store in self.stores], [[walk], []])

    async def test_rest_of_a_fanout_is_free_for_others(self) -> None:
        self.patch(walks, "PART", 2)
        walk = await self.begin(subscribers=5)
        parts: list[Fanout] = []
        for store in (*self.stores, self.one):
            store.live_nodes = 2
            (free,) = [one for one in await store.fanouts(10) if one.node is None]
            parts += await store.claim_fanouts([free.id])
        shown = [(part.cursor, part.last_id) for part in parts]
        self.assertEqual(shown, [(0, 2), (2, 4), (4, None)])
        for store, part in zip((*self.stores, self.one), parts, strict=True):
            found = await store.subscriptions(FEED, part.cursor, 10, part.last_id)
            self.assertEqual(len(found), 1 if part.last_id is None else 2)
            self.assertFalse((await store.record_slice(part, 9, [], True)).lost)
        self.assertEqual(await self.one.fanouts(10), [])
        self.assertEqual(walk.last_id, None)

    async def test_fanout_that_another_node_has_begun_goes_on(self) -> None:
        """Otherwise subscribers at its end might never be reached."""
        older = await self.begin()
        (older,) = await self.one.claim_fanouts([older.id])
        await self.other.record_fetch(a_fetch(b"2"), None)
        self.assertEqual(await self.other.fanouts(10), [])
        await self.one.record_slice(older, 9, [], True)
        (newer,) = await self.other.fanouts(10)
        self.assertGreater(newer.id, older.id)

    async def test_nothing_is_recorded_under_a_lost_claim(self) -> None:
        (walk,) = await self.one.claim_fanouts([(await self.begin()).id])
        subscriptions = await self.one.subscriptions(FEED, 0, 10)
        await self.one.record_slice(walk, 1, [], False, [1])
        await self.lose(self.one, self.other)
        late = [failed(subscriptions[0]), waits(subscriptions[1], 3000)]
        self.assertTrue((await self.one.record_slice(walk, 3, late, True)).lost)
        self.assertEqual(await self.other.subscriptions(FEED, 0, 10), subscriptions)
        (again,) = await self.other.claim_fanouts([walk.id])
        self.assertEqual((again.cursor, again.outstanding), (1, (1,)))
        self.assertTrue((await self.one.record_slice(walk, 3, late, True)).lost)
        self.assertFalse((await self.other.record_slice(again, 3, [], True)).lost)
        self.assertEqual(await self.other.fanouts(10), [])

    async def test_claims_that_nobody_knows_of_are_given_back(self) -> None:
        """The server commits a claim, and ends before it has answered."""
        subscriptions = [
            await self.one.put_subscription(a_subscription(number=n)) for n in range(3)
        ]
        await self.one.record_deliveries([waits(each, 3000) for each in subscriptions])
        commit, key = psycopg.Connection.commit, self.one.node

        def commit_unanswered(connection: Any) -> None:
            commit(connection)
            patched.restore()
            connection.close()
            raise psycopg.OperationalError("the connection is lost")

        patched = self.patch(psycopg.Connection, "commit", commit_unanswered)
        await self.assertFailure(self.one.claim_due(4000, 10, ()), StoreUnavailable)
        self.assertEqual(await self.other.claim_due(4000, 10, ()), [])
        self.assertEqual(len(await self.one.claim_due(4000, 10, ())), 3)
        self.assertNotEqual(self.one.node, key)

    async def test_they_are_given_back_after_a_transaction_that_is_rolled_back(self) -> None:
        """One that found the commit in doubt, and registered the process anew."""
        await self.one.request_check(FEED, 2000.0, True, "192.0.2.1", True)
        self.patch(self.one._database, "in_doubt", lambda: 1)

        def register_and_fail(conn: Connection) -> None:
            self.one._ensure_node(conn)
            raise ZeroDivisionError

        await self.assertFailure(self.one._database.write(register_and_fail), ZeroDivisionError)
        await self.one.check_writable()
        (check,) = (await self.other.claim_checks(SOME)).checks
        self.assertEqual(check.url, FEED)
        self.assertEqual(len((await self.one.nodes()).nodes), 2)
        self.assertNotIn(Work(WorkKind.TOPIC, FEED), self.other.suspects)

    async def test_outcome_under_a_lost_claim_is_dropped(self) -> None:
        await self.begin()
        subscriptions = await self.one.subscriptions(FEED, 0, 10)
        await self.one.record_deliveries([waits(each, 3000) for each in subscriptions])
        claimed = await self.one.claim_due(4000, 10, ())
        self.assertEqual(await self.other.claim_due(4000, 10, ()), [])
        await self.one.record_deliveries([succeeded(claimed[0])])
        await self.lose(self.one, self.other)
        again = await self.other.claim_due(4000, 10, ())
        self.assertEqual(again, claimed[1:])
        await self.one.record_deliveries([failed(claimed[1]), succeeded(claimed[2])])
        self.one.register()
        await self.one.record_deliveries([failed(claimed[1]), succeeded(claimed[2])])
        found = await self.one.subscriptions(FEED, 0, 10)
        self.assertEqual([each.attempts for each in found], [None, 1, 1])
        self.assertEqual([each.consecutive_errors for each in found], [0, 0, 0])
        await self.other.record_deliveries([succeeded(each) for each in again])
        found = await self.one.subscriptions(FEED, 0, 10)
        self.assertEqual([each.attempts for each in found], [None, None, None])


class ManyClaimsTests(NodesTestCase):
    """A node that has very many claims is removed in portions."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(nodes, "PORTION", 2)

    async def claim(self, store: Store, count: int = 5) -> list[Subscription]:
        """Have a node claim pending notifications."""
        await self.begin(count)
        await store.record_deliveries(
            [waits(each, 3000) for each in await store.subscriptions(FEED, 0, count)]
        )
        return await store.claim_due(4000, count, ())

    async def die(self, loser: Store, winner: Store) -> None:
        await self.beat(loser)
        self.pass_time(9)
        await self.beat(winner)

    async def portion(self, store: Store) -> tuple[int, bool]:
        removed: nodes.Removed = await store._database.write(nodes.remove_dead)
        return removed.nodes, removed.more

    async def test_each_portion_is_free_at_once(self) -> None:
        claimed = await self.claim(self.one)
        await self.die(self.one, self.other)
        taken: list[Subscription] = []
        for _ in range(2):
            self.assertEqual(await self.portion(self.other), (0, True))
            taken += (found := await self.other.claim_due(4000, 10, ()))
            self.assertEqual(len(found), 2)
        self.assertEqual(await self.portion(self.other), (1, False))
        taken += await self.other.claim_due(4000, 10, ())
        self.assertCountEqual([each.id for each in taken], [each.id for each in claimed])

    async def test_node_does_not_come_back_after_the_first_portion(self) -> None:
        """Otherwise it would not learn what it has lost."""
        claimed = await self.claim(self.one)
        await self.die(self.one, self.other)
        await self.portion(self.other)
        self.assertFalse(await self.beat(self.one))
        (dead,) = [each for each in (await self.other.nodes()).nodes if not each.here]
        assert dead.silent_for is not None
        self.assertLess(dead.silent_for, 60)
        earlier = self.one.node
        await self.one.check_writable()
        self.assertNotEqual(self.one.node, earlier)
        taken = await self.other.claim_due(4000, 10, ())
        await self.one.record_deliveries([failed(each) for each in claimed])
        left = [each.attempts for each in await self.other.subscriptions(FEED, 0, 10)]
        self.assertEqual(left.count(1), len(taken), "its own outcomes of these are dropped")

    async def test_nobody_waits_for_who_just_records_something(self) -> None:
        self.patch(nodes, "PORTION", 1000)
        (first, *_) = await self.claim(self.one)
        await self.die(self.one, self.other)
        with self.engine.connect() as conn:
            lock_rows(conn, pending.c.subscription_id, [first.id])
            self.assertEqual(await self.portion(self.other), (0, False))
            self.assertEqual(len(await self.other.claim_due(4000, 10, ())), 4)
            conn.rollback()
        self.assertEqual(await self.portion(self.other), (1, False))
        (last,) = await self.other.claim_due(4000, 10, ())
        self.assertEqual(last.id, first.id)

    async def test_heartbeat_removes_all(self) -> None:
        await self.claim(self.one)
        await self.die(self.one, self.other)
        self.patch(pulse, "_STEADY_AFTER", -1.0)
        await self.until(self.pulse(self.other), WorkHinted("freed"))
        self.assertEqual(len(await self.other.claim_due(4000, 10, ())), 5)
        self.assertEqual(len((await self.other.nodes()).nodes), 1)

    async def test_rest_of_a_node_that_leaves_is_free_for_others_at_once(self) -> None:
        await self.claim(self.one)
        await self.one.stopService()
        self.assertEqual(await self.portion(self.other), (0, True))
        self.assertEqual(await self.portion(self.other), (1, False))
        self.assertEqual(len(await self.other.claim_due(4000, 10, ())), 5)

    async def test_node_that_stops_hands_all_back(self) -> None:
        urls = [f"{FEED}{number}" for number in range(5)]
        for url in urls:
            await self.one.request_check(url, 2000.0, True)
        await self.one.hand_back()
        found = [check.url for check in (await self.other.claim_checks(SOME)).checks]
        self.assertCountEqual(found, urls)


class HandingBackTests(NodesTestCase):
    """What a node gives to others when it stops, before it has ended."""

    async def test_fanouts_and_checks_are_free_at_once(self) -> None:
        walk = await self.begin()
        (walk,) = await self.one.claim_fanouts([walk.id])
        subscriptions = await self.one.subscriptions(FEED, 0, 10)
        await self.one.record_slice(walk, 2, [], False, [subscriptions[0].id])
        await self.one.request_check(FEED, 2000.0, True)
        await self.one.hand_back()
        (taken,) = await self.other.claim_fanouts([walk.id])
        self.assertEqual((taken.cursor, taken.outstanding), (2, (subscriptions[0].id,)))
        self.assertEqual(len((await self.other.claim_checks(SOME)).checks), 1)
        self.assertTrue((await self.one.record_slice(walk, 3, [], True)).lost)
        self.assertTrue(await self.beat(self.one), "it has not ended yet")

    async def test_notifications_under_way_are_its_own(self) -> None:
        await self.begin()
        (first, *_) = await self.one.subscriptions(FEED, 0, 10)
        await self.one.record_deliveries([waits(first, 3000)])
        (claimed,) = await self.one.claim_due(4000, 10, ())
        await self.one.hand_back()
        self.assertEqual(await self.other.claim_due(4000, 10, ()), [])
        await self.one.record_deliveries([succeeded(claimed)])
        self.assertEqual((await self.other.subscriptions(FEED, 0, 1))[0].attempts, None)


class PulseTests(NodesTestCase):
    """What a node learns from others."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(pulse, "BEAT", 0.1)

    async def test_nodes_are_counted(self) -> None:
        for store in self.stores:
            await self.beat(store)
        events = self.pulse(self.one)
        await self.until(events, NodesCounted(2))
        self.assertEqual(self.one.live_nodes, 2)
        await self.other.stopService()
        await self.until(events, NodesCounted(1))
        self.assertEqual(self.one.live_nodes, 1)

    async def test_nobody_is_removed_since_the_clock_was_set(self) -> None:
        """All heartbeats look too old, or ahead, until each node has written its next one."""
        await self.beat(self.other)
        self.patch(pulse, "_STEADY_AFTER", 1.0)
        self.run_all("INSERT INTO node (name, beat_at) VALUES ('ended', 1)")
        events = self.pulse(self.one)
        while len((await self.one.nodes()).nodes) > 2:  # until it removes others
            await self.until(events, WorkHinted())
        for seconds in (3600, -3600):
            self.pass_time(seconds)
            events.clear()
            await self.beats(events)
            self.assertTrue(await self.beat(self.other))
        self.pass_time(9)
        while len((await self.one.nodes()).nodes) > 1:
            await self.until(events, WorkHinted())
        self.assertFalse(await self.beat(self.other))

    async def test_newer_tables_after_a_pause(self) -> None:
        """Nothing is stored any more, whether it would be claimed or not."""
        self.url = self.plain
        store = threaded_store(self, self.url)
        await self.beat(store)
        with capturedLogs() as logged:
            await self.until(self.pulse(store), WorkHinted())
            self.run_all("DELETE FROM node", "UPDATE alembic_version SET version_num = '0099'")
            while "newer version" not in (reason := str(await self.reason(store))):
                await deferLater(IReactorTime(reactor), 0.01)
        self.assertIn("install the newer version here too, and restart it", reason)
        (late,) = [formatEvent(event) for event in logged if "heartbeat" in formatEvent(event)]
        self.assertIn("The heartbeat of this node is late: a newer version", late)

    async def reason(self, store: Store) -> Exception | None:
        """Why a store does not answer; None if it does."""
        try:
            await store.count_pings()
        except StoreUnavailable as error:
            return error
        return None

    async def test_hints_of_others(self) -> None:
        """At new work, and of an application at the job of a node."""
        events = self.pulse(self.one)
        await self.until(events, WorkHinted())
        await self.begin()
        await self.until(events, WorkHinted("fanout"))
        await self.other.hint_at_job("river")
        await self.until(events, WorkHinted("job.river"))

    async def test_rates_are_written_with_the_heartbeat(self) -> None:
        await self.beat(self.one)
        events = self.pulse(self.one)
        self.counters.pings.inc(7)
        self.counters.deliveries.labels("http-post", "delivered").inc(40)
        self.counters.deliveries.labels("websub", "failed").inc(2)

        async def state() -> NodeState:
            await self.until(events, WorkHinted())
            return next(node for node in (await self.one.nodes()).nodes if node.here)

        while (await state()).pings == 0:
            pass
        found = await state()
        self.assertEqual((found.pings, found.notified), (7, 42))
        assert found.ping_rate is not None
        assert found.notification_rate is not None
        assert found.silent_for is not None
        self.assertGreater(found.ping_rate, 0)
        self.assertGreater(found.notification_rate, found.ping_rate)
        self.assertLess(found.silent_for, 60)

    async def test_clock_that_is_wrong(self) -> None:
        """It is said once, and others can see it; what is stored goes by the database's clock."""
        await self.beat(self.one)
        clock = SystemClock(IReactorTime(reactor))
        self.pass_time(600)
        with capturedLogs() as logged:
            events = self.pulse(self.one, clock)
            self.assertLess(abs(clock.wall_seconds() - time.time() - 600), 30)
            await self.beats(events, 3)
            self.assertLess(abs(self.one.clock_ahead + 600), 30)
            while abs((await self.other.nodes()).nodes[0].clock_ahead + 600) > 30:
                await self.until(events, WorkHinted())
            self.pass_time(-600)
            while self.one.clock_ahead:
                await self.until(events, WorkHinted())
        self.assertLess(abs(clock.wall_seconds() - time.time()), 30)
        said = [str(formatEvent(each)) for each in logged]
        said = [each for each in said if "clock" in each]
        self.assertRegex(said[0], r"clock of this computer is [56]\d\d seconds behind that of the")
        self.assertEqual(said[1:], ["The clock of this computer is right again."])

    async def test_other_work_comes_before_the_heartbeat(self) -> None:
        """It registers the process anew; all the same its earlier claims are lost."""
        events = self.pulse(self.one)
        await self.beat(self.one)
        await self.until(events, WorkHinted())
        events.clear()
        await self.until(events, WorkHinted())  # a heartbeat that knows the node
        with self.engine.begin() as conn:
            nodes.leave(conn, self.one.node)
        await self.one.check_writable()
        await self.until(events, ClaimsLost())
        events.clear()
        await self.beats(events)
        self.assertEqual(self.published.count(ClaimsLost()), 1)

    async def test_row_that_is_not_committed_yet_is_not_lost(self) -> None:
        """The id is known before the transaction ends that makes the row, which may take long."""
        is_made, may_end = Flag(), Flag()

        def make_row(conn: Connection) -> None:
            self.one._ensure_node(conn)
            is_made.set()
            may_end.wait(TIMEOUT)

        made = self.one._database.write(make_row)
        self.addCleanup(may_end.set)
        await until(is_made.is_set)
        node = self.one.node
        events = self.pulse(self.one)
        await self.beats(events, 3)  # which do not find the row
        may_end.set()
        await made
        await self.beats(events)
        self.assertEqual(self.one.node, node)
        self.assertNotIn(ClaimsLost(), self.published)

    async def test_a_loss_is_known_after_an_error(self) -> None:
        """The heartbeat that finds it may fail, and other work register the process anew."""
        events = self.pulse(self.one)
        await self.beat(self.one)
        await self.beats(events)
        failed = Flag()

        def fail(conn: Connection) -> None:
            self.patch(nodes, "count", count)
            failed.set()
            raise SQLAlchemyError("the connection is lost")

        count = nodes.count
        with self.engine.begin() as conn:
            nodes.leave(conn, self.one.node)
        self.patch(nodes, "count", fail)
        await until(failed.is_set)
        await self.one.check_writable()
        await self.until(events, ClaimsLost())

    async def test_connection_is_made_again(self) -> None:
        events = self.pulse(self.one)
        await self.until(events, WorkHinted())
        self.run_all(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid != pg_backend_pid() "
            "AND datname = current_database() AND query LIKE '%count%node%'"
        )
        events.clear()
        await self.until(events, WorkHinted())


class SQLiteNodeTests(TestCase):
    async def test_restarted_broker_has_its_claims_back_at_once(self) -> None:
        url = file_database(self)
        killed = threaded_store(self, url)
        await killed.put_subscription(a_subscription())
        await killed.record_fetch(a_fetch(), None)
        (walk,) = await killed.claim_fanouts([one.id for one in await killed.fanouts(10)])
        again = threaded_store(self, url)
        (found,) = await again.claim_fanouts([one.id for one in await again.fanouts(10)])
        self.assertEqual(found.id, walk.id)
        self.assertTrue((await killed.record_slice(walk, 1, [], True)).lost)

    async def test_many_claims(self) -> None:
        self.patch(nodes, "PORTION", 2)
        url = file_database(self)
        killed = threaded_store(self, url)
        for number in range(5):
            await killed.put_subscription(a_subscription(number=number))
        waiting = [waits(each, 3000) for each in await killed.subscriptions(FEED, 0, 5)]
        await killed.record_deliveries(waiting)
        self.assertEqual(len(await killed.claim_due(4000, 10, ())), 5)
        again = threaded_store(self, url)
        self.assertEqual(len(await again.claim_due(4000, 10, ())), 5)
        self.assertEqual(len((await again.nodes()).nodes), 1)


class MemoryNodeTests(SynchronousTestCase):
    def test_clock_of_sqlite(self) -> None:
        store: Any = memory_store()
        with store._database._engine.connect() as conn:
            shown = conn.execute(select(nodes.database_clock(conn))).scalar_one()
        self.assertLess(abs(shown / 1e6 - time.time()), 60)


class OtherClaimTests(NodesTestCase):
    """Claims of topics that wait, of polls and of intents."""

    async def claimed(self, store: Store) -> list[str]:
        return [check.url for check in (await store.claim_checks(SOME)).checks]

    async def test_checks_of_a_dead_node_are_taken_over(self) -> None:
        await self.one.put_subscription(a_subscription())
        await self.one.record_fetch(a_fetch(), None)
        for is_pinged in (False, True):
            if is_pinged:
                record = await self.one.add_ping(Ping("A", FEED, 3000.0), 60.0, "192.0.2.1", True)
                (state,) = record.states
            else:
                state = await self.one.request_check(FEED, 2000.0, True, "192.0.2.1", True)
            self.assertEqual(state, CheckState.CLAIMED)
            self.assertEqual(await self.claimed(self.other), [])
            await self.lose(self.one, self.other)
            self.assertEqual(await self.claimed(self.other), [FEED])
            await self.one.check_writable()
            self.assertEqual(await self.claimed(self.one), [])
            await self.other.drop_check(FEED, 3000.0)

    async def test_check_under_a_lost_claim_is_not_put_off(self) -> None:
        await self.one.put_subscription(a_subscription())
        await self.one.request_check(FEED, 2000.0, True, "192.0.2.1", True)
        await self.lose(self.one, self.other)
        self.assertEqual(await self.claimed(self.other), [FEED])
        self.assertIsNone(await self.one.put_off_check(FEED, 1, 9000.0, 2000.0))
        with self.engine.connect() as conn:
            claim = select(topic.c.check_node_id, topic.c.check_due_at, topic.c.check_failures)
            self.assertEqual(conn.execute(claim).one(), (self.other.node, None, 0))

    async def test_polls_are_made_by_one(self) -> None:
        await self.one.put_subscription(a_subscription())
        for _ in range(2):  # until it has planned the next poll
            (due,) = await self.one.polls_due(2000.0, 10)
            self.assertEqual(await self.other.polls_due(2000.0, 10), [])
        await self.lose(self.one, self.other)
        self.assertEqual(len(await self.other.polls_due(2000.0, 10)), 1)
        later = PollPlan(FEED, 9000.0, "later", 60.0, 2000.0)
        await self.one.plan_polls([later])
        self.assertEqual(len(await self.other.polls_due(2000.0, 10)), 1)
        await self.other.plan_polls([later])
        self.assertEqual(await self.other.polls_due(2000.0, 10), [])
        self.assertEqual([each.topic for each in await self.one.polls_due(9000.0, 10)], [due.topic])

    async def test_intents_of_a_dead_node_are_taken_over(self) -> None:
        wanted = Intent(FEED, Callback("http://reader.example/", "websub"), 60)
        stored = await self.one.add_intent(wanted, 10)
        assert stored is not None
        self.assertEqual((await self.one.intents(), await self.other.intents()), ([stored], []))
        self.assertEqual(await self.other.claim_intents(10), [])
        await self.lose(self.one, self.other)
        self.assertEqual(await self.other.claim_intents(10), [stored])
        await self.one.remove_intent(stored.id)
        await self.one.postpone_intent(stored.id, 1, 5000.0)
        with self.assertRaises(ClaimLost):
            await self.one.put_subscription(a_subscription(), intent_key=stored.id)
        self.assertEqual(await self.other.intents(), [stored])
        await self.other.put_subscription(a_subscription(), intent_key=stored.id)
        self.assertEqual(len(await self.other.subscriptions(FEED, 0, 10)), 1)
        with self.assertRaises(ClaimLost):
            await self.other.remove_subscription(
                FEED, a_subscription().callback, intent_key=stored.id
            )
        self.assertEqual(len(await self.other.subscriptions(FEED, 0, 10)), 1)
        self.assertEqual(await self.other.intents(), [])


class JobTests(NodesTestCase):
    """Claims of jobs, and of the documents that they make."""

    async def test_job_is_claimed_by_one_and_taken_over(self) -> None:
        self.assertTrue((await self.one.claim_job("a", 1000.0, 60.0)).claimed)
        self.assertTrue((await self.one.claim_job("a", 1000.0, 60.0)).claimed, "it has it already")
        turn = await self.other.claim_job("a", 1000.0, 60.0)
        self.assertEqual((turn.claimed, turn.is_others), (False, True))
        await self.lose(self.one, self.other)
        self.assertTrue((await self.other.claim_job("a", 1000.0, 60.0)).claimed)
        self.assertFalse((await self.one.claim_job("a", 1000.0, 60.0)).claimed)
        self.assertFalse(await self.one.finish_job("a", 1060.0))
        self.assertTrue(await self.other.finish_job("a", 1060.0))
        self.assertFalse((await self.one.claim_job("a", 1001.0, 60.0)).is_others, "it is done")

    async def test_nobody_waits_for_a_node_that_is_just_claiming(self) -> None:
        """Two nodes that claim the same jobs in another order would wait for each other."""
        for name in ("a", "b"):
            await self.one.claim_job(name, 1000.0, 60.0)
            await self.one.finish_job(name, 1060.0)
        assert self.one.node is not None
        with self.engine.begin() as conn:
            self.assertTrue(jobs.claim_job(conn, "a", 1100.0, 60.0, self.one.node).claimed)
            turn = await self.other.claim_job("a", 1100.0, 60.0)
            self.assertEqual((turn.claimed, turn.is_others), (False, True))
            self.assertTrue((await self.other.claim_job("b", 1100.0, 60.0)).claimed)
            self.assertFalse(jobs.claim_job(conn, "b", 1100.0, 60.0, self.one.node).claimed)

    async def test_document_under_a_lost_claim_is_dropped(self) -> None:
        await self.one.claim_job("a", 1000.0, 60.0)
        key = await self.one.begin_document("/changes.xml", 1000.0)
        await self.one.put_document_part(key, 0, b"late")
        await self.lose(self.one, self.other)
        self.assertFalse(await self.one.finish_document(key, 4, 0, "a"))
        self.assertEqual(await self.other.shared_documents(["/changes.xml"]), [])

    async def test_node_that_leaves_hands_its_jobs_back(self) -> None:
        await self.one.claim_job("a", 1000.0, 60.0)
        await self.one.stopService()
        self.assertTrue((await self.other.claim_job("a", 1000.0, 60.0)).claimed)
