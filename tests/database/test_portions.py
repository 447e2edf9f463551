"""Tests of what goes through large tables in portions, each in a transaction of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, func, insert, select, update
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.database.columns import to_micros
from rsscloud_broker.database.methods import Operation
from rsscloud_broker.database.portions import LOOKED_AT
from rsscloud_broker.model import Ping
from rsscloud_broker.storage import due, statistics, summaries, sweeping
from rsscloud_broker.storage.checks import DEFAULT_BOUNDS
from rsscloud_broker.storage.contents import TOTAL, correct_sums, find_unneeded
from rsscloud_broker.storage.due import make_due, make_due_for_content
from rsscloud_broker.storage.pings import insert_pings
from rsscloud_broker.storage.schema import (
    content,
    content_sum,
    host_state,
    pending,
    subscription,
    topic,
)
from rsscloud_broker.storage.statistics import busy_topic, prune, statistic
from rsscloud_broker.wire.units import HOUR, MINUTE
from tests.storage.databases import memory_database, postgresql_database, result_of
from tests.storage.rows import HOST, add_subscriptions, add_topics

T = TypeVar("T")

NOW = 1_800_000_000.0


class Transactions:
    """Runs operations on a connection, and counts them."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self.number = 0

    async def __call__(self, operation: Operation[T], /) -> T:
        self.number += 1
        return operation(self._conn)


def topics(conn: Connection, number: int, **values: Any) -> list[int]:
    """Make topics; return their ids."""
    return add_topics(conn, (f"http://feeds.example/{n}" for n in range(number)), **values)


def subscriptions(conn: Connection, topic_id: int, number: int, url: str = "") -> list[int]:
    """Make subscriptions of a topic; return their ids."""
    callbacks = (f"{url or f'http://{HOST}'}/{n}" for n in range(number))
    return add_subscriptions(conn, topic_id, callbacks)


def let_wait(conn: Connection, keys: Sequence[int], due_at: float, **values: Any) -> None:
    """Make a pending notification for each of some subscriptions."""
    common = {"attempts": 1, "host": HOST, "not_before": None, **values}
    rows = [{"subscription_id": key, "due_at": to_micros(due_at), **common} for key in keys]
    conn.execute(insert(pending), rows)


def contents(conn: Connection, topic_id: int, host: str, *sizes: int) -> list[int]:
    """Make contents, without their sums; return their ids."""
    common = {"topic_id": topic_id, "content_type": "", "link": "", "body": b"", "host": host}
    rows = [{**common, "size": size} for size in sizes]
    return sorted(conn.scalars(insert(content).returning(content.c.id), rows))


class PortionTests(SynchronousTestCase):
    """The tests for either kind of database."""

    database = staticmethod(memory_database)

    def setUp(self) -> None:
        self.conn = self.enterContext(self.database())

    # counting

    def test_pings_of_one_moment_in_several_portions(self) -> None:
        times = [3599.0, *[3600.0] * 5, 3601.0, 9000.0, 9000.0, 20_000.0]
        insert_pings(
            self.conn, [Ping(f"{n}", "http://a.example/", at) for n, at in enumerate(times)]
        )
        for portion in (1, 2, 3, 10, 11):
            read = Transactions(self.conn)
            found = result_of(statistics.ping_hours(read, 0, 20_000, portion))
            self.assertEqual(found, {0: 1, 1: 6, 2: 2}, portion)
            self.assertEqual(read.number, 9 // portion + 1)
        some = statistics.ping_hours(Transactions(self.conn), 3600.0, 9000.0, 2)
        self.assertEqual(result_of(some), {1: 6})

    def test_topics_and_subscriptions_are_measured_in_portions(self) -> None:
        self.patch(statistics, "_SUBSCRIPTIONS", 2)
        nothing = {"number_of_topics": 0, "number_of_watched_topics": 0}
        self.assertEqual(result_of(statistics.measure(Transactions(self.conn))), nothing)
        first, *_, last = topics(self.conn, LOOKED_AT + 1)
        subscriptions(self.conn, first, 3)
        subscriptions(self.conn, last, 2)
        self.conn.execute(
            update(subscription).where(subscription.c.topic_id == last).values(protocol="soap")
        )
        read = Transactions(self.conn)
        self.assertEqual(
            result_of(statistics.measure(read)),
            {
                "number_of_topics": LOOKED_AT + 1,
                "number_of_watched_topics": 2,
                "number_of_subscriptions.http-post": 3,
                "number_of_subscriptions.soap": 2,
            },
        )
        self.assertEqual(read.number, 2 + 3)

    # topics and contents that are far behind others

    def test_topics_are_found_behind_very_many_others(self) -> None:
        keys = topics(self.conn, LOOKED_AT + 1, idle_at=1)
        self.conn.execute(update(topic).where(topic.c.id == keys[-1]).values(idle_at=None))
        self.assertEqual(sweeping.find_lost(self.conn, 0), ([], keys[-2]))
        self.assertEqual(sweeping.find_lost(self.conn, keys[-2]), ([keys[-1]], None))
        subscriptions(self.conn, keys[-1], 1)
        (found,) = summaries.topic_summaries(self.conn, 0, 10)
        self.assertEqual(found.id, keys[-1])

    def test_sweep_goes_on_where_it_was(self) -> None:
        keys = topics(self.conn, sweeping.PORTION + 1, read_at=to_micros(NOW))
        pushed = contents(self.conn, keys[0], "pushed", *[1] * (sweeping.PORTION + 1))
        positions: list[int | None] = []
        after: int | None = 0
        run = Transactions(self.conn)
        while after is not None:
            swept = result_of(sweeping.sweep(run, run, NOW, 0, DEFAULT_BOUNDS, after))
            positions.append(swept.after)
            after = swept.after
        contents_begin = 2**62
        self.assertEqual(positions, [keys[-2], contents_begin + pushed[-2], None])
        idle = select(func.count()).select_from(topic).where(topic.c.idle_at.is_not(None))
        self.assertEqual(self.conn.execute(idle).scalar(), len(keys))
        self.assertEqual(find_unneeded(self.conn, 0, 10), ([], None))

    # sums of contents

    def sums(self, conn: Connection) -> dict[str, int]:
        return dict(conn.execute(select(content_sum.c.host, content_sum.c.size)).tuples().all())

    def test_sums_are_corrected(self) -> None:
        right = {TOTAL: 60, "a.example": 30, "b.example": 30}
        wrong_ones: list[dict[str, int]] = [
            {},
            {**right, "a.example": 31},
            {**right, "gone.example": 0},
            {**right, "gone.example": 5, TOTAL: 65},
            {**right, TOTAL: 1},
            {TOTAL: 30, "b.example": 30},
        ]
        for wrong in [right, *wrong_ones]:
            with self.database() as conn:
                (key,) = topics(conn, 1)
                contents(conn, key, "a.example", 10, 20)
                contents(conn, key, "b.example", 30)
                rows = [{"host": host, "size": size} for host, size in wrong.items()]
                if rows:
                    conn.execute(insert(content_sum), rows)
                write = Transactions(conn)
                result_of(correct_sums(Transactions(conn), write))
                self.assertEqual(self.sums(conn), right)
                self.assertEqual(write.number, int(wrong != right))

    def test_sums_of_very_many_hosts(self) -> None:
        (key,) = topics(self.conn, 1)
        for number in range(401):
            contents(self.conn, key, f"host{number:03}.example", 1)
        result_of(correct_sums(Transactions(self.conn), Transactions(self.conn)))
        sums = self.sums(self.conn)
        self.assertEqual((len(sums), sums[TOTAL]), (402, 401))

    # due times

    def test_very_many_times_are_set_back_once_each(self) -> None:
        number = due._SET_BACK_AT_ONCE + 1
        keys = topics(self.conn, number, next_poll_at=to_micros(NOW + 60), check_requested_at=5)
        let_wait(self.conn, subscriptions(self.conn, keys[0], number), NOW + 90)
        states = [
            {"name": f"{n}.example", "failures": 5, "retry_at": to_micros(NOW + n - 5)}
            for n in range(number)
        ]
        self.conn.execute(insert(host_state), states)
        write = Transactions(self.conn)
        result_of(due.set_back(write, 1000.0, NOW))
        self.assertEqual(write.number, 2 + 2 + 2 + 1)
        polls = select(topic.c.next_poll_at, topic.c.check_requested_at).distinct()
        self.assertEqual(self.conn.execute(polls).all(), [(to_micros(NOW - 940), 5)])
        waiting = select(pending.c.due_at).distinct()
        self.assertEqual(self.conn.execute(waiting).scalars().all(), [to_micros(NOW - 910)])
        retries = set(self.conn.execute(select(host_state.c.retry_at)).scalars())
        stay = {to_micros(NOW + n - 5) for n in range(6)}
        moved = {to_micros(NOW + n - 1005) for n in range(6, number)}
        self.assertEqual(retries, stay | moved)

    def due(self) -> int:
        is_due = pending.c.due_at <= to_micros(NOW)
        return self.conn.execute(select(func.count()).where(is_due)).scalar_one()

    def make_due(self, host: str, origin: str = "") -> tuple[bool, int]:
        """Make notifications due; return whether there were any, and how many writes it took."""
        write = Transactions(self.conn)
        made = result_of(make_due(Transactions(self.conn), write, host, origin, NOW))
        return made, write.number

    def test_very_many_notifications_are_made_due(self) -> None:
        (key,) = topics(self.conn, 1)
        let_wait(self.conn, subscriptions(self.conn, key, 1100), NOW + 60)
        self.assertEqual(self.make_due(HOST), (True, 3))
        self.assertEqual(self.due(), 1100)
        self.assertEqual(self.make_due(HOST), (False, 0))

    def test_notifications_for_another_port_hide_none(self) -> None:
        (key,) = topics(self.conn, 1)
        let_wait(self.conn, subscriptions(self.conn, key, 501, f"http://{HOST}:81"), NOW + 60)
        let_wait(self.conn, subscriptions(self.conn, key, 2), NOW + 70)
        self.assertEqual(self.make_due(HOST, f"{HOST}:80"), (True, 1))
        self.assertEqual(self.due(), 2)

    def test_notifications_that_are_not_made_due(self) -> None:
        """They are under way, or their subscribers have asked not to be called before."""
        (key,) = topics(self.conn, 1)
        asked, free = subscriptions(self.conn, key, 2)
        let_wait(self.conn, [asked], NOW + 60, not_before=to_micros(NOW + 30))
        self.assertEqual(self.make_due(HOST), (True, 1))
        times = select(pending.c.due_at)
        self.assertEqual(self.conn.execute(times).scalar(), to_micros(NOW + 30))
        self.assertEqual(self.make_due(HOST), (False, 1))
        self.assertEqual(self.conn.execute(times).scalar(), to_micros(NOW + 30))
        let_wait(self.conn, [free], NOW + 60, host="other.example")
        self.assertEqual(self.make_due("*.other.example"), (False, 0))
        self.assertEqual(self.make_due("*.example"), (True, 2))
        self.assertEqual(self.due(), 1)

    def test_very_many_notifications_that_waited_for_a_content(self) -> None:
        key, other = topics(self.conn, 2)
        keys = subscriptions(self.conn, key, LOOKED_AT + 501)
        waits = {"content_topic_id": key, "attempts": 0}
        let_wait(self.conn, keys[:501], NOW + 60, **waits)
        let_wait(self.conn, keys[-1:], NOW + 60, **waits)
        let_wait(self.conn, keys[-2:-1], NOW + 60, content_topic_id=key)  # it was tried before
        let_wait(self.conn, keys[-3:-2], NOW + 60, attempts=0)  # it wants no content
        (elsewhere,) = subscriptions(self.conn, other, 1)
        let_wait(self.conn, [elsewhere], NOW + 60, content_topic_id=other, attempts=0)
        write = Transactions(self.conn)
        woken = make_due_for_content(Transactions(self.conn), write, "http://feeds.example/0", NOW)
        result_of(woken)
        self.assertEqual(self.due(), 502)
        self.assertEqual(write.number, 3)

    def test_hosts_below_a_name_behind_very_many_others(self) -> None:
        (key,) = topics(self.conn, 1)
        for number, each in enumerate(subscriptions(self.conn, key, 450)):
            name = "a.below.example" if number == 449 else f"{number:03}.example"
            let_wait(self.conn, [each], NOW + 60, host=name)
        self.assertEqual(self.make_due("*.below.example"), (True, 1))
        self.assertEqual(self.due(), 1)

    # statistics

    def test_statistics_of_years_are_pruned(self) -> None:
        hours = 500
        begins = [int(NOW // HOUR - n) for n in range(hours)]
        rows = [
            {"width": width, "begin": begin * HOUR, "name": "pings", "value": 1}
            for width in (MINUTE, HOUR)
            for begin in begins
        ]
        busy = [
            {"hour": hour, "rank": 0, "url": "http://a.example/", "pings": 1} for hour in begins
        ]
        self.conn.execute(insert(statistic), rows)
        self.conn.execute(insert(busy_topic), busy)
        write = Transactions(self.conn)
        result_of(prune(write, NOW, 100))
        self.assertGreater(write.number, 400 // 60)
        left = select(statistic.c.width, func.count()).group_by(statistic.c.width)
        self.assertEqual(dict(self.conn.execute(left).tuples().all()), {MINUTE: 26, HOUR: 101})
        self.assertEqual(
            self.conn.execute(select(func.min(busy_topic.c.hour))).scalar(), begins[100]
        )


class PostgreSQLPortionTests(PortionTests):
    """The same on PostgreSQL."""

    database = staticmethod(postgresql_database)
