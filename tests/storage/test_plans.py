"""Tests that no statement that the broker runs all the time reads through a large table.

They run each operation, and ask the database how it runs each of the statements.  So they fail as
soon as a statement has no index, whatever the speed of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, event, insert, select, text, update
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.database.engine import for_writing
from rsscloud_broker.model import Callback, Content, FetchResult, Lease, Outcome, Ping, Subscription
from rsscloud_broker.model.work import Bounds, Delivery, PollPlan, WantedChecks
from rsscloud_broker.storage import (
    check_claims,
    checks,
    contents,
    deliveries,
    due,
    moves,
    nodes,
    pings,
    polls,
    recording,
    statistics,
    subscriptions,
    summaries,
    sweeping,
    topics,
    walks,
)
from rsscloud_broker.storage.idle import evict_excess
from rsscloud_broker.storage.nodes import count_waiting_checks
from rsscloud_broker.storage.schema import content_sum, pending, subscription
from tests.postgresql import borrowed_database
from tests.storage.databases import engine_for, memory_database, result_of, run_on
from tests.storage.waiting import PINGED

FEED, OTHER = "http://feeds.example/rss.xml", "http://feeds.example/other.xml"
NOW = 1_800_000_000.0

#: The large tables and the names that queries give them.  Partial indexes may be read through: they
#: have few rows.
_LARGE = r"(topic|content|named|present|subscription|ping|pending_notification)\b"
_PARTIAL = "ix_(topic_idle_at|topic_check_waits|subscription_dropping)"
_SQLITE = re.compile(rf"SCAN {_LARGE}(?! USING (COVERING )?INDEX {_PARTIAL})")
_POSTGRESQL = re.compile(r"Seq Scan on (topic|content|subscription|ping|pending_notification)\b.*")


def _subscribe(conn: Connection, url: str, number: int = 1) -> Subscription:
    callback = Callback(f"http://reader{number}.example/", "http-post")
    return subscriptions.put_subscription(
        conn, Subscription(url, callback, Lease(NOW, 90_000)), known=b"1"
    )


def _operate(conn: Connection) -> None:
    """Do everything that the broker does for pings, subscriptions and notifications."""
    node = nodes.ensure_registered(conn, None)
    ping = Ping("A", FEED, NOW)
    pings.add_pings(conn, [pings.AskedPing(ping, 60.0)], node)
    one = _subscribe(conn, FEED)
    _subscribe(conn, FEED)  # renewed
    pings.add_pings(conn, [pings.AskedPing(ping, 60.0)], node)
    pings.known_pings(conn, [(ping, 60.0)])
    pings.pings_after(conn, 0, 10)
    pings.count_pings(conn)
    pings.count_pings(conn, NOW)
    checks.request_checks(conn, [checks.AskedCheck(OTHER, 1, cause=PINGED)], Bounds(), node)
    check_claims.claim_checks(conn, WantedChecks(10, 5, NOW + 10), node)
    checks.drop_check(conn, None, OTHER, NOW)
    recording.record_fetch(conn, FetchResult(FEED, b"2" * 32, 1, NOW), ping, node=node)
    polls.topic_statuses(conn, [FEED])
    polls.polls_due(conn, NOW, 10)
    polls.claim_polls(conn, NOW, 10, node)
    polls.plan_polls(conn, node, [PollPlan(FEED, NOW + 9, "", 9.0, NOW)])
    topics.get_topics(conn, [FEED])
    _walk(conn, one, node)
    moves.move_topic(conn, FEED, f"{FEED}/moved", NOW)
    moves.move_topic(conn, OTHER, f"{FEED}/moved", NOW)
    subscriptions.has_subscription(conn, FEED, one.callback)
    _tidy_up(conn, one)


def _walk(conn: Connection, one: Subscription, node: int) -> None:
    (walk,) = walks.claim_fanouts(conn, [each.id for each in walks.fanouts(conn, 9, node)], node, 1)
    subscriptions.subscriptions(conn, FEED, 0, 10, 99)
    failed = Delivery(one, Outcome(False, "refused"), at=NOW, retry_at=NOW, attempts=1)
    walks.record_slice(conn, walk, one.id, [failed], False, [one.id], node)
    due.next_due(conn)
    found = due.find_due(conn, NOW, 10, ())
    conn.execute(due.WAITED_FOR, {"now": 1, "most": 9, "after": ""})
    conn.execute(due.OF_HOST, {"now": 1, "most": 9, "of_host": "a"})
    due.claim_found(conn, found.keys, node, NOW)
    done = Delivery(one, Outcome(True, ""), at=NOW)
    deliveries.record_deliveries(conn, [done], node)
    run = run_on(conn)
    for host in (one.callback.host, "*.example"):
        result_of(due.make_due(run, run, host, "", NOW))
    walks.record_slice(conn, walk, 99, [], True, [], node)


def _tidy_up(conn: Connection, one: Subscription) -> None:
    sweeping.remove_subscriptions(conn, sweeping.find_subscriptions(conn, NOW + 1e6), NOW + 1e6)
    sweeping.mark_idle(conn, [1, 2])
    keys = sweeping.find_topics(conn, NOW, NOW)
    sweeping.sweep_topics(conn, keys, NOW, NOW)
    evict_excess(conn, 0)
    _go_through(conn)
    pings.prune_pings(conn, NOW + 1, 1)
    subscriptions.remove_subscription(conn, FEED, one.callback)


def _go_through(conn: Connection) -> None:
    """Do everything that may concern very many rows, which is done in portions."""
    run = run_on(conn)
    key = _subscribe(conn, FEED, 2).id
    topic_key = select(subscription.c.topic_id).where(subscription.c.id == key)
    topic_id = conn.execute(topic_key).scalar_one()
    contents.keep_pushed(conn, topic_id, Content(b"<rss/>", "text/xml"))
    conn.execute(insert(content_sum).values(host="gone.example", size=5))
    for after in (0, 5):
        sweeping.find_lost(conn, after)
        contents.find_unneeded(conn, after, 10)
        summaries.watched_topics(conn, after, 10)
        summaries.topic_summaries(conn, after, 10)
        summaries.topics_beginning(conn, "feeds.exa", 10)
    waiting = {"attempts": 0, "due_at": 10**17, "content_topic_id": topic_id}
    conn.execute(update(pending).where(pending.c.subscription_id == key).values(waiting))
    result_of(due.make_due_for_content(run, run, FEED, NOW))
    result_of(contents.correct_sums(run, run))
    result_of(statistics.ping_hours(run, 0, NOW + 1, portion=1))
    result_of(statistics.measure(run))
    result_of(due.set_back(run, 60.0, NOW))
    result_of(statistics.prune(run, NOW, 1))
    statistics.pinged_topics(conn, NOW - 1, NOW + 1, 10)
    pings.pings(conn, 0, NOW + 1, Ping("A", FEED, NOW, id=5), 10)
    walks.fanouts(conn, 10)


@contextmanager
def statements_of(conn: Connection) -> Iterator[list[tuple[str, Any]]]:
    """The statements that run meanwhile, with their parameters."""
    seen: list[tuple[str, Any]] = []

    def note(
        connection: object, cursor: object, statement: str, given: Any, context: object, many: bool
    ) -> None:
        if re.match(r"\s*(SELECT|UPDATE|DELETE|WITH)", statement):
            seen.append((statement, given[0] if many else given))

    event.listen(conn, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(conn, "before_cursor_execute", note)


class PlanTests(SynchronousTestCase):
    """The database finds what it needs by indexes."""

    def assert_indexed(self, conn: Connection, explain: str, reads_all: re.Pattern[str]) -> None:
        with statements_of(conn) as statements:
            _operate(conn)
        self.assertGreater(len(statements), 60)
        bad = {}
        for statement, given in statements:
            plan = conn.exec_driver_sql(f"{explain} {statement}", given).all()
            found = [str(step[-1]) for step in plan if reads_all.search(str(step[-1]))]
            if found:
                bad[statement] = found
        self.assertEqual(bad, {})

    def test_sqlite(self) -> None:
        with memory_database() as conn:
            self.assert_indexed(conn, "EXPLAIN QUERY PLAN", _SQLITE)

    def test_what_is_due_on_sqlite(self) -> None:
        """Nearly all pending notifications have null in the index of nodes, which does not help."""
        with memory_database() as conn:
            with statements_of(conn) as statements:
                due.find_due(conn, NOW, 10, ())
                due.next_due(conn)
            for statement, given in statements:
                plan = conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given).all()
                self.assertEqual(len(plan), 1, plan)  # it does not sort
                self.assertIn("INDEX ix_pending_notification_due_at", plan[0][-1])

    def test_waiting_checks_are_counted_by_indexes_alone_on_postgresql(self) -> None:
        engine = engine_for(self, self.enterContext(borrowed_database()))
        with engine.begin() as conn:
            for other in ("seqscan", "bitmapscan"):
                conn.execute(text(f"SET LOCAL enable_{other} = off"))
            with statements_of(conn) as statements:
                count_waiting_checks(conn)
            self.assertEqual(len(statements), 2)
            for statement, given in statements:
                plan = conn.exec_driver_sql(f"EXPLAIN {statement}", given).scalars().all()
                self.assertIn("Index Only Scan using ix_topic_check_", "".join(plan))

    def test_postgresql(self) -> None:
        """With few rows PostgreSQL prefers to read all of them, unless it is notified not to."""
        engine = engine_for(self, self.enterContext(borrowed_database()))
        with for_writing(engine).begin() as conn:
            conn.execute(text("SET LOCAL enable_seqscan = off"))
            self.assert_indexed(conn, "EXPLAIN", _POSTGRESQL)
