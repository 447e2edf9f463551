"""Two nodes do the same thing at the same time on one PostgreSQL, and it happens once.

Each test makes many rounds, since two transactions rarely meet at the same statement.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from attrs import evolve
from sqlalchemy import Connection, event, text
from twisted.trial.unittest import SynchronousTestCase, TestCase

from rsscloud_broker.model import Callback, Intent, Ping, Subscription
from rsscloud_broker.model.work import Delivery, HostState
from rsscloud_broker.storage import export_text, import_in_parts, open_database
from rsscloud_broker.storage.idle import evict_idle
from rsscloud_broker.storage.subscriptions import put_subscription, remove_subscription
from tests.postgresql import borrowed_database
from tests.storage.databases import threaded_store, until
from tests.store_contract.basics import (
    a_content,
    a_fetch,
    a_subscription,
    at_once,
    failed,
    succeeded,
    waits,
)

#: How often two nodes do the same.
ROUNDS = 40


def feed(number: int) -> str:
    """The URL of a topic."""
    return f"http://feeds.example/{number}.xml"


class RaceTests(TestCase):
    """Two stores, each with threads and connections of its own."""

    def setUp(self) -> None:
        self.url = self.enterContext(borrowed_database())
        self.stores = (threaded_store(self, self.url), threaded_store(self, self.url))

    async def both(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of both stores at the same time."""
        return await at_once(getattr(store, method)(*arguments) for store in self.stores)

    async def both_record(self, one: Sequence[Delivery], other: Sequence[Delivery]) -> None:
        """Let both nodes record deliveries at the same time."""
        pairs = zip(self.stores, (one, other), strict=True)
        await at_once(store.record_deliveries(some) for store, some in pairs)

    async def subscribe(self, topic: str, count: int) -> list[Subscription]:
        put = self.stores[0].put_subscription
        return [await put(a_subscription(topic, number)) for number in range(count)]

    async def test_same_subscription_to_a_new_topic(self) -> None:
        for number in range(ROUNDS):
            wanted = a_subscription(feed(number))
            one, other = await self.both("put_subscription", wanted)
            self.assertEqual(one.id, other.id)
            self.assertEqual({one.renewed, other.renewed}, {True, False})

    async def test_same_notification_for_new_subscribers(self) -> None:
        """Both find that the topic has changed since the subscriber asked."""
        for number in range(ROUNDS):
            await self.stores[0].record_fetch(a_fetch(url=feed(number)), None)
            wanted = a_subscription(feed(number))
            await self.both("put_subscription", wanted, b"earlier")

    async def test_same_request_or_end_of_an_unknown_topic(self) -> None:
        for method, arguments, expected in (
            ("request_check", (1000.0, True), [True, True]),
            ("end_topic", ("it is gone", 1000.0), [False, True]),
        ):
            for number in range(ROUNDS):
                found = await self.both(method, f"{feed(number)}?{method}", *arguments)
                self.assertEqual(sorted(found), expected)

    async def test_same_move(self) -> None:
        for number in range(ROUNDS):
            url = feed(number)
            await self.subscribe(url, 1)
            moved = await self.both("move_topic", url, f"{url}?moved", 1000.0)
            self.assertEqual(sorted(moved), [False, True])
            self.assertEqual(len(await self.stores[0].subscriptions(url, 0, 10)), 1)

    async def test_same_intent(self) -> None:
        for number in range(ROUNDS):
            wanted = Intent(feed(number), Callback("http://reader.example/", "websub"), 60)
            await self.both("add_intent", wanted, 1000)
            kept = [one for store in self.stores for one in await store.intents()]
            self.assertEqual(len(kept), number + 1)

    async def test_same_ping(self) -> None:
        for number in range(ROUNDS):
            ping = Ping(f"A site {number}", "http://site.example/", 1000.0)
            records = await self.both("add_ping", ping, 60.0)
            self.assertEqual({record.repeat for record in records}, {True, False})
        self.assertEqual(await self.stores[0].count_pings(), ROUNDS)

    async def test_same_reading(self) -> None:
        """Of a content that the store keeps, from a host of which it has kept none."""
        for number in range(ROUNDS):
            url = f"http://feeds{number}.example/"
            wanted = evolve(a_subscription(url), wants_content=True)
            await self.stores[0].put_subscription(wanted)
            found = evolve(a_fetch(b"1", url=url), content=a_content())
            records = await self.both("record_fetch", found, None)
            self.assertEqual(sorted(record.changed for record in records), [False, True])
        self.assertEqual(len(await self.stores[0].fanouts(1000)), ROUNDS)

    async def test_earlier_reading_does_not_replace_a_later_one(self) -> None:
        """Another node's, that is; of its own, a node takes in whatever comes."""
        one, other = self.stores
        await self.subscribe(feed(1), 1)
        await one.check_writable()
        await other.check_writable()
        await one.record_fetch(a_fetch(b"2", 1002.0, feed(1)), None)
        outdated = await other.record_fetch(a_fetch(b"1", 1001.0, feed(1)), None)
        self.assertEqual((outdated.changed, outdated.topic.digest), (False, b"2" * 32))
        self.assertTrue((await one.record_fetch(a_fetch(b"1", 1001.0, feed(1)), None)).changed)
        # A clock that is an hour ahead does not keep the others from recording anything.
        await one.record_fetch(a_fetch(b"3", 4600.0, feed(1)), None)
        self.assertTrue((await other.record_fetch(a_fetch(b"4", 1003.0, feed(1)), None)).changed)
        # Nor does one that was a little ahead, and was set back since.
        now = time.time()
        await one.record_fetch(a_fetch(b"5", now + 200, feed(1)), None)
        self.assertTrue((await other.record_fetch(a_fetch(b"6", now, feed(1)), None)).changed)

    async def test_idle_topic_to_which_another_node_subscribes_somebody_stays(self) -> None:
        store = self.stores[0]
        await store.record_fetch(a_fetch(url=feed(1)), None)
        with open_database(self.url) as other_node:
            put_subscription(other_node, a_subscription(feed(1)))
            self.assertEqual(await store._database.write(lambda conn: evict_idle(conn, 0, 1)), 0)
        self.assertEqual(len(await store.subscriptions(feed(1), 0, 10)), 1)

    async def test_same_host_is_dead(self) -> None:
        for number in range(ROUNDS):
            state = HostState(f"reader{number}.example", 5, 2000.0)
            await self.both("record_hosts", [state])
            self.assertEqual(len(await self.stores[0].hosts()), number + 1)

    async def test_due_notifications_are_given_to_one(self) -> None:
        subscriptions = await self.subscribe(feed(1), 20)
        for _ in range(ROUNDS):
            pending = [waits(one, 2000.0) for one in subscriptions]
            await self.stores[0].record_deliveries(pending)
            claimed = await self.both("claim_due", 3000.0, 20, ())
            ids = [one.id for some in claimed for one in some]
            self.assertEqual(sorted(ids), sorted({*ids}))
            for store, some in zip(self.stores, claimed, strict=True):
                await store.record_deliveries([succeeded(one) for one in some])

    async def test_change_during_a_call_whose_subscription_another_node_removes(self) -> None:
        store = self.stores[0]
        (one,) = await self.subscribe(feed(1), 1)
        with open_database(self.url) as other_node:
            remove_subscription(other_node, feed(1), one.callback)
            again = evolve(succeeded(one), attempts=0, retry_at=3000.0)
            recording = store.record_deliveries([again])
            blocked = "SELECT 1 FROM pg_locks WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
            await until(lambda: other_node.execute(text(blocked)).first())
        await recording
        self.assertIsNone(await store.next_due())

    async def test_deliveries_in_opposite_order(self) -> None:
        """The second waits for the first, and none is lost."""
        subscriptions = await self.subscribe(feed(1), 200)
        outcomes = [failed(one) for one in subscriptions]
        for _ in range(ROUNDS):
            await self.both_record(outcomes, outcomes[::-1])
        found = await self.stores[0].subscriptions_of([one.id for one in subscriptions])
        self.assertEqual({one.consecutive_errors for one in found}, {2 * ROUNDS})

    async def test_retries_in_opposite_order(self) -> None:
        subscriptions = await self.subscribe(feed(1), 50)
        outcomes = [waits(one, 2.0) for one in subscriptions]
        for _ in range(ROUNDS):
            await self.both_record(outcomes, outcomes[::-1])
            await self.stores[0].record_deliveries([succeeded(one) for one in subscriptions])


class ImportTests(SynchronousTestCase):
    """An import beside a broker that takes in the same subscriptions."""

    def test_what_a_broker_stores_meanwhile_stays(self) -> None:
        url = self.enterContext(borrowed_database())
        begin = partial(open_database, url)
        meanwhile: list[object] = []

        @contextmanager
        def beside_a_broker() -> Iterator[Connection]:
            with begin() as connection:
                event.listen(connection, "before_cursor_execute", store_the_same)
                yield connection

        def store_the_same(conn: Any, cursor: Any, statement: str, *others: Any) -> None:
            table = "subscription" if topic_is_there else "topic"
            if statement.startswith(f"INSERT INTO {table} ") and document not in meanwhile:
                meanwhile.append(document)
                import_in_parts(begin, document, 0.0)

        for topic_is_there in (False, True):
            document = a_document(feed(int(topic_is_there)))
            if topic_is_there:
                import_in_parts(begin, {**document, "topics": [{"url": feed(1)}]}, 0.0)
            import_in_parts(beside_a_broker, document, 0.0)
            self.assertIn(document, meanwhile)
        with begin(writes=False) as connection:
            exported = json.loads("".join(export_text(connection, 0.0)))["topics"]
        self.assertEqual([len(each["subscriptions"]) for each in exported], [1, 1])


def a_document(url: str) -> dict[str, Any]:
    """An export with a subscription to a topic."""
    subscription = {
        "callback": "http://reader.example/",
        "protocol": "http-post",
        "granted_at": "2026-09-29T12:00:00Z",
        "lease_seconds": 60,
    }
    topics = [{"url": url, "subscriptions": [subscription]}]
    return {"format": "rsscloud-broker", "version": 1, "topics": topics}
