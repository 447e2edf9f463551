"""Tests of what the store does in portions, or not at all, since a database may be very large."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, func, insert, select, text, update
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.database.engine import open_engine
from rsscloud_broker.model import Callback, FetchResult, Ping
from rsscloud_broker.storage.due import claim_found, find_due
from rsscloud_broker.storage.idle import evict_idle
from rsscloud_broker.storage.moves import MAX_AT_ONCE, move_topic
from rsscloud_broker.storage.nodes import ensure_registered
from rsscloud_broker.storage.pings import AskedPing, add_pings, count_pings
from rsscloud_broker.storage.recording import record_fetch
from rsscloud_broker.storage.schema import pending, subscription, topic
from rsscloud_broker.storage.subscriptions import has_subscription, subscriptions
from tests.postgresql import borrowed_database
from tests.storage.databases import memory_database, postgresql_database
from tests.storage.rows import add_subscriptions, add_topics

HERE, THERE, THIRD = (f"http://feeds.example/{name}" for name in ("here", "there", "third"))
BUSY, OTHER = "busy.example", "other.example"
NOW = 1_000.0
_WEEK = 7 * 86_400


def _topic(conn: Connection, url: str, subscribers: int, name: str = "reader") -> int:
    """Make a topic with subscriptions; return its id."""
    (key,) = add_topics(conn, [url])
    add_subscriptions(conn, key, (f"http://{name}{n}.example/" for n in range(subscribers)))
    return key


def _changed(conn: Connection, table: Any, column: Any) -> Sequence[Any]:
    return conn.execute(select(table.c.id, column).order_by(table.c.id)).tuples().all()


class SizeTests(SynchronousTestCase):
    """The tests for either kind of database."""

    database = staticmethod(memory_database)

    def setUp(self) -> None:
        self.conn = self.enterContext(self.database())

    # moves

    def test_move_to_a_new_url_changes_no_subscription(self) -> None:
        key = _topic(self.conn, HERE, 3)
        before = self.conn.execute(select(subscription)).all()
        self.assertTrue(move_topic(self.conn, HERE, THERE, NOW))
        self.assertEqual(self.conn.execute(select(subscription)).all(), before)
        where = select(topic.c.url).where(topic.c.id == key)
        self.assertEqual(self.conn.execute(where).scalar(), THERE)

    def test_few_subscriptions_come_to_many(self) -> None:
        many = MAX_AT_ONCE + 1
        for url, to in ((HERE, THERE), (THERE, HERE)):
            with self.database() as conn:
                _topic(conn, HERE, many)
                _topic(conn, THERE, 2, "few")
                record_fetch(conn, FetchResult(THERE, b"1" * 32, 1, NOW), None)
                self.assertTrue(move_topic(conn, url, to, NOW + 1))
                found = subscriptions(conn, url, 0, 2 * many)
                self.assertEqual(len(found), many + 2)
                self.assertEqual({one.moved_to or one.topic for one in found}, {to})
                asked = {one.topic for one in found if "few" in one.callback.url}
                self.assertEqual(asked, {THERE})
                self.assertTrue(has_subscription(conn, THERE, _callback("few1")))
                self.assertFalse(has_subscription(conn, HERE, _callback("few1")))
                of_content = select(func.count()).select_from(topic)
                self.assertEqual(conn.execute(of_content).scalar(), 2)
                # What was known of the new URL stays known, or its subscribers would miss a change.
                digest = select(topic.c.digest).where(topic.c.url == to)
                self.assertEqual(conn.execute(digest).scalar(), b"1" * 32)

    def test_topics_that_both_have_many_stay_two(self) -> None:
        for url in (HERE, THERE):
            _topic(self.conn, url, MAX_AT_ONCE + 1)
        before = _changed(self.conn, subscription, subscription.c.topic_id)
        self.assertFalse(move_topic(self.conn, HERE, THERE, NOW))
        self.assertEqual(_changed(self.conn, subscription, subscription.c.topic_id), before)
        self.assertEqual(subscriptions(self.conn, HERE, 0, 1)[0].moved_to, "")

    def test_url_that_many_asked_for_stays_with_its_topic(self) -> None:
        _topic(self.conn, HERE, MAX_AT_ONCE + 1)
        _topic(self.conn, THIRD, 1, "third")
        self.assertTrue(move_topic(self.conn, HERE, THERE, NOW))
        self.assertFalse(move_topic(self.conn, THIRD, HERE, NOW + _WEEK))
        self.assertEqual(subscriptions(self.conn, HERE, 0, 1)[0].moved_to, THERE)
        self.assertEqual(subscriptions(self.conn, THIRD, 0, 1)[0].moved_to, "")

    # claims

    def _let_wait(self, conn: Connection, busy: int, others: Sequence[str]) -> None:
        """Let notifications wait: many for a busy host, and behind them one for each other host."""
        key = _topic(conn, HERE, 0)
        hosts = [*[BUSY] * busy, *others]
        callbacks = (f"http://{n}.example/" for n in range(len(hosts)))
        add_subscriptions(conn, key, callbacks, *hosts)
        found = conn.execute(select(subscription.c.id, subscription.c.host)).all()
        conn.execute(
            insert(pending),
            [{"subscription_id": k, "attempts": 0, "due_at": k, "host": host} for k, host in found],
        )

    def test_claim_behind_very_many_for_a_busy_host(self) -> None:
        self._let_wait(self.conn, 1500, [OTHER, "a.example", OTHER, "z.example"])
        node = ensure_registered(self.conn, None)
        keys = find_due(self.conn, NOW, 10, [BUSY]).keys
        self.assertEqual(sorted(keys), [1501, 1502, 1503, 1504])
        self.assertEqual(len(find_due(self.conn, NOW, 2, [BUSY, "a.example"]).keys), 2)
        claimed = claim_found(self.conn, keys, node, NOW)
        self.assertEqual({one.id for one in claimed}, set(keys))
        self.assertEqual(find_due(self.conn, NOW, 10, [BUSY]).keys, [])
        self.assertEqual(claim_found(self.conn, keys, node, NOW), [])
        # Without busy hosts the longest due come first.
        self.assertEqual(find_due(self.conn, NOW, 3, []).keys, [1, 2, 3])

    def test_claim_looks_at_all_hosts_in_turns(self) -> None:
        hosts = [f"host{number:05}.example" for number in range(450)]
        self._let_wait(self.conn, 1500, hosts)
        later = update(pending).where(pending.c.host < hosts[440], pending.c.host != BUSY)
        self.conn.execute(later.values(due_at=10**10))
        keys = find_due(self.conn, NOW, 5, [BUSY]).keys
        self.assertEqual(list(keys), [1500 + 440 + n for n in range(1, 6)])
        after = find_due(self.conn, NOW, 5, [BUSY]).after
        self.assertEqual(after, hosts[444])
        keys = find_due(self.conn, NOW, 9, [BUSY], after).keys
        self.assertEqual(list(keys), [1500 + 445 + n for n in range(1, 6)])

    # idle topics

    def test_far_too_many_idle_topics_do_not_hold_up_one_more(self) -> None:
        add_topics(self.conn, (f"http://{n}.example/" for n in range(500)), idle_at=1)
        self.assertEqual(evict_idle(self.conn, 10, 1), 1)
        left = self.conn.execute(select(func.count()).select_from(topic)).scalar_one()
        self.assertTrue(350 < left < 450, left)


class PostgreSQLSizeTests(SizeTests):
    """The same on PostgreSQL."""

    database = staticmethod(postgresql_database)

    def test_pings_of_two_nodes_do_not_wait_for_each_other(self) -> None:
        with borrowed_database() as url:
            engine = open_engine(url)
            try:
                with engine.begin() as conn:
                    add_pings(conn, [AskedPing(_ping("first"), 60)], 1)
                    add_pings(conn, [AskedPing(_ping("second"), 60)], 2)
                with engine.begin() as one, engine.begin() as other:
                    add_pings(one, [AskedPing(_ping("third"), 60)], 1)
                    other.execute(text("SET LOCAL lock_timeout = '5s'"))
                    add_pings(other, [AskedPing(_ping("fourth"), 60)], 2)  # else this fails
                with engine.begin() as conn:
                    self.assertEqual(count_pings(conn), 4)
            finally:
                engine.dispose()


def _ping(name: str) -> Ping:
    return Ping(name, f"http://{name}.example/", time.time())


def _callback(name: str) -> Callback:
    return Callback(f"http://{name}.example/", "http-post")
