"""The store on PostgreSQL passes the contract, and its migrations make the tables of the schema."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import Connection, Engine, make_url, select, text
from sqlalchemy.exc import OperationalError
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import TestCase

from rsscloud_broker.database.engine import as_unavailable, wait_for_others
from rsscloud_broker.database.visible_ids import announce
from rsscloud_broker.database.writer import TRIES
from rsscloud_broker.errors import DiskFull, Unavailable
from rsscloud_broker.model import Ping
from rsscloud_broker.model.log_entry import LogEntry, LogFilter
from rsscloud_broker.model.shared import RelayProgress
from rsscloud_broker.model.work import Bounds, PingedTopic
from rsscloud_broker.storage import (
    AccountStore,
    Store,
    UnfitDatabase,
    examine,
    migrate,
    nodes,
    open_database,
)
from rsscloud_broker.storage.checks import DEFAULT_BOUNDS
from rsscloud_broker.storage.log_entries import add_log_entries
from rsscloud_broker.storage.pings import AskedPing, add_pings
from rsscloud_broker.storage.schema import ping
from rsscloud_broker.storage.statistics import put_busy_topics, statistic
from rsscloud_broker.storage.upgrade import revisions_of
from rsscloud_broker.wire.units import MINUTE
from tests.notes import FIRST, FITTING, SECOND
from tests.postgresql import TIMEOUT, borrowed_database, empty_database
from tests.storage import app_migrating, migrating, next_version, recorded
from tests.storage.databases import engine_for, threaded_account_store, threaded_store, until
from tests.store_contract import (
    accounts,
    administration,
    bounds,
    checks,
    deliveries,
    kept,
    shared,
    suspects,
)


class OnPostgreSQL(TestCase):
    """Has the tests of a contract use stores on PostgreSQL, each with a database of its own."""

    def make_database(self) -> str:
        return self.enterContext(borrowed_database())  # given back after the store has stopped

    def make_store(self, bounds: Bounds = DEFAULT_BOUNDS) -> Store:
        return threaded_store(self, self.make_database(), bounds)

    def store_and_engine(self) -> tuple[Store, Engine]:
        """A store, and an engine by which other nodes and programs use its database."""
        url = self.make_database()
        engine = engine_for(self, url)
        return threaded_store(self, url), engine


class PostgreSQLStoreTests(OnPostgreSQL, deliveries.DeliveriesContract):
    """The store on PostgreSQL passes the contract."""


class PostgreSQLSuspectTests(OnPostgreSQL, suspects.SuspectsContract):
    """The store knows what may have ended a process."""


class PostgreSQLAdministrationTests(OnPostgreSQL, administration.AdministrationContract):
    """The store does what administrators ask."""


class PostgreSQLBoundsTests(OnPostgreSQL, bounds.BoundsContract):
    """The store on PostgreSQL keeps its limits."""


class PostgreSQLCheckTests(OnPostgreSQL, checks.ChecksContract):
    """The store on PostgreSQL has checks claimed fairly."""


class PostgreSQLKeptTests(OnPostgreSQL, kept.KeptContract):
    """The store on PostgreSQL keeps changes for the feeds."""


class PostgreSQLSharedWorkTests(OnPostgreSQL, shared.SharedWorkContract):
    """The store on PostgreSQL has one node do a job for all."""


class EventLogOrderTests(OnPostgreSQL):
    """PostgreSQL gives out ids before the commit, and nobody may miss an entry because of that."""

    async def test_entry_that_is_committed_late_is_not_missed(self) -> None:
        store, engine = self.store_and_engine()
        now = time.time()

        async def read() -> list[str]:
            newest = await store.log_entries(LogFilter(), None, 10)
            oldest = await store.log_entries_after(LogFilter(), 0, 10)
            self.assertEqual(newest, oldest[::-1])
            return [entry.kind for entry in oldest]

        with engine.begin() as other_node:
            add_log_entries(other_node, [LogEntry("ping", "accepted", now)])
            await store.add_log_entries([LogEntry("fetch", "changed", now)])
            self.assertEqual(await read(), [])  # the first one can still appear
        self.assertEqual(await read(), ["ping", "fetch"])

    async def test_another_program_does_not_hold_the_log_up(self) -> None:
        store, engine = self.store_and_engine()
        with engine.begin() as other_program:
            other_program.execute(text("SELECT pg_current_xact_id()"))
            await store.add_log_entries([LogEntry("fetch", "changed", time.time())])
            self.assertEqual(len(await store.log_entries_after(LogFilter(), 0, 10)), 1)


class PingOrderTests(OnPostgreSQL):
    """A relay that goes on after the last ping that it has read misses none."""

    async def test_ping_that_is_committed_late_is_not_missed(self) -> None:
        store, engine = self.store_and_engine()
        pings = [Ping(name, f"http://{name}.example/", 1000.0) for name in ("late", "early")]
        with engine.begin() as other_node:
            add_pings(other_node, [AskedPing(pings[0], 60.0)])
            adding = store.add_ping(pings[1], 60.0)
            if adding.called:  # it need not wait for the other node
                await adding
            self.assertEqual(await store.pings_after(0, 10), [])
        await adding
        found = await store.pings_after(0, 10)
        self.assertEqual([ping.name for ping in found], ["late", "early"])


class SettledTests(OnPostgreSQL):
    """Transactions draw ids in another order than that in which they begin and end."""

    async def test_transactions_that_draw_ids_in_turns(self) -> None:
        store, engine = self.store_and_engine()

        def insert(conn: Connection) -> int:
            announce(conn, "ping")
            values = {"received_at": 1, "name": "", "url": "", "changes_url": "", "rss_url": ""}
            row = values | {"tags": "", "fingerprint": b""}
            return int(conn.execute(ping.insert().returning(ping.c.id), row).scalar_one())

        async def ids() -> list[int]:
            return [each.id for each in await store.pings_after(0, 10)]

        with engine.connect() as early, engine.connect() as late:
            begun = early.begin()
            early.execute(text("SELECT pg_current_xact_id()"))  # it began first
            with late.begin():
                first = insert(late)
                second, third = insert(early), insert(late)
                fourth = insert(early)
                begun.commit()
                self.assertEqual(await ids(), [])  # the first one can still appear
                self.assertEqual(await store.begin_relay(["a"], 1.0, 0.0), [RelayProgress("a", 0)])
        self.assertEqual(await ids(), [first, second, third, fourth])

    async def test_who_has_not_drawn_an_id_yet(self) -> None:
        store, engine = self.store_and_engine()
        before = (await store.add_ping(Ping("a", "http://a.example/", 1.0), 0.0)).ping.id
        with engine.begin() as other:
            announce(other, "ping")
            found = [each.id for each in await store.pings_after(0, 10)]
            self.assertEqual(found, [before])
            later = Ping("b", "http://b.example/", 1.0)
            self.assertGreater((await store.add_ping(later, 0.0)).ping.id, before)
            self.assertEqual(len(await store.pings_after(0, 10)), 1)
        self.assertEqual(len(await store.pings_after(0, 10)), 2)


class SeveralNodesTests(OnPostgreSQL):
    """Several nodes write to one database at the same time."""

    async def test_numbers_are_stored_in_one_order(self) -> None:
        """Whatever their order is in memory: otherwise two nodes wait for each other forever."""
        store, engine = self.store_and_engine()
        await store.add_statistics(0.0, {"a": 1, "b": 1}, {"c": 1, "d": 1})
        for held, free in (("a", "b"), ("c", "d")):
            with engine.connect() as conn:
                of = (statistic.c.width == MINUTE, statistic.c.name)
                conn.execute(select(statistic).where(of[0], of[1] == held).with_for_update())
                waiting = store.add_statistics(0.0, {"b": 1, "a": 1}, {"d": 1, "c": 1})
                await self.waits_for(conn)
                lock = select(statistic).where(of[0], of[1] == free).with_for_update(nowait=True)
                self.assertEqual(len(conn.execute(lock).all()), 1)
                conn.rollback()
            await waiting

    async def waits_for(self, conn: Connection) -> None:
        """Wait until somebody waits for a lock of a connection."""
        blocked = text("SELECT 1 FROM pg_locks WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))")
        await until(lambda: conn.execute(blocked).first())

    async def test_busiest_topics_of_one_hour_by_two_nodes(self) -> None:
        store, engine = self.store_and_engine()
        first, second = PingedTopic("http://a.example/", 3), PingedTopic("http://b.example/", 2)
        with engine.connect() as conn:
            put_busy_topics(conn, 7, [first, second])
            waiting = store.put_busy_topics(7, [second])
            await self.waits_for(conn)
            conn.commit()
        await waiting
        self.assertEqual(await store.busy_topics(7 * 3600, 8 * 3600, 10), [second])

    async def test_transaction_that_gives_way_to_another_is_run_again(self) -> None:
        for code in ("40P01", "40001", "23503", "23505", "23P01"):
            store: Any = self.make_store()
            raised: list[str] = []

            def give_way(conn: Connection, code: str = code, raised: list[str] = raised) -> str:
                raised.append(code)
                if len(raised) < TRIES:
                    raise_error(conn, code)
                return "done"

            self.assertEqual(await store._database.write(give_way), "done")
            self.assertEqual(len(raised), TRIES)

    async def test_transaction_that_gives_way_every_time_fails(self) -> None:
        store: Any = self.make_store()
        raised: list[bool] = []

        def give_way(conn: Connection) -> None:
            raised.append(True)
            raise_error(conn, "40P01")

        failing = store._database.write(give_way)
        other = store._database.write(lambda conn: "written")
        await self.assertFailure(failing, Unavailable)
        self.assertEqual(await other, "written")
        self.assertEqual(len(raised), 2 * TRIES)  # with the other operation, and by itself


def raise_error(conn: Connection, code: str) -> None:
    """Have the server raise an error with a SQLSTATE."""
    conn.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}'; END $$")


class PostgreSQLAccountStoreTests(accounts.AccountsContract):
    """The store of accounts on PostgreSQL passes the contract."""

    def make_store(self) -> AccountStore:
        return threaded_account_store(self, self.enterContext(borrowed_database()))


#: Selects the indexes, constraints and columns of a database, in no order.
DEFINITIONS = """
    SELECT indexdef FROM pg_indexes
    WHERE schemaname = 'public' AND tablename NOT LIKE '%alembic_version'
    UNION ALL
    SELECT conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid)
    FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace
        AND conrelid::regclass::text NOT LIKE '%alembic_version'
    UNION ALL
    SELECT table_name || ' ' || column_name || ' ' || data_type || ' ' || is_nullable || ' '
        || coalesce(column_default, '')
    FROM information_schema.columns
    WHERE table_schema = 'public' AND table_name NOT LIKE '%alembic_version'
"""


def _settings(conn: Connection) -> list[str]:
    """The time limits that a connection has."""
    names = ("lock_timeout", "idle_in_transaction_session_timeout", "statement_timeout")
    return [conn.execute(text(f"SHOW {name}")).scalar_one() for name in names]


class PostgreSQLSettingsTests(OnPostgreSQL):
    async def test_transactions_of_the_broker_do_not_stay_idle(self) -> None:
        store: Any = self.make_store()
        self.assertEqual(await store._database.write(_settings), ["12s", "8s", "14250ms"])
        self.assertEqual(await store._database.read(_settings), ["12s", "8s", "14250ms"])

    def test_transactions_of_commands_may_stay_idle(self) -> None:
        """The output of ``export`` may go to a pager, in which somebody reads for an hour."""
        with open_database(empty_database(), writes=False) as conn:
            self.assertEqual(_settings(conn), ["12s", "0", "0"])

    def test_statements_of_commands_take_as_long_as_they_need(self) -> None:
        """Whatever the URL says: an export or an import must not be cut off."""
        url = f"{empty_database()}&options=-c%20statement_timeout%3D1ms"
        with open_database(url) as conn:
            conn.execute(text("SELECT pg_sleep(0.05)"))

    def test_migrations_take_as_long_as_they_need(self) -> None:
        """Even if the role or the database has a limit."""
        url = empty_database()
        limited = f"ALTER DATABASE {make_url(url).database} SET statement_timeout = '7s'"
        with open_database(url) as conn:
            conn.execute(text(limited))
        with open_database(url) as conn:
            wait_for_others(conn)
            self.assertEqual(_settings(conn), ["12s", "0", "0"])

    def test_statement_that_takes_too_long(self) -> None:
        """The server ends it; the log says which it was, and what to do."""
        url = f"{empty_database()}&options=-c%20statement_timeout%3D50ms"
        engine = engine_for(self, url, of_broker=True)
        with capturedLogs() as logs, engine.connect() as conn:
            error = self.assertRaises(
                OperationalError, conn.execute, text("SELECT pg_sleep(60), :secret"), {"secret": 7}
            )
            self.assertFalse(conn.invalidated)
            conn.rollback()
            conn.execute(text("SELECT 1"))
        unavailable = str(as_unavailable(error))
        self.assertIn("canceling statement due to statement timeout", unavailable)
        self.assertIn("VACUUM ANALYZE", unavailable)
        (logged,) = (formatEvent(event) or "" for event in logs)
        self.assertIn("VACUUM ANALYZE", logged)
        self.assertIn("SELECT pg_sleep(60), %(secret)s", logged)
        self.assertNotIn("7", logged)

    async def test_a_full_disk(self) -> None:
        store: Any = self.make_store()
        full = text("DO $$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = 'disk_full'; END $$")
        with self.assertRaises(DiskFull) as caught:
            await store._database.write(lambda conn: conn.execute(full))
        self.assertIn("no space", str(caught.exception))

    def test_options_in_the_url_are_added(self) -> None:
        """They come last, so they win."""
        url = f"{empty_database()}&options=-c%20idle_in_transaction_session_timeout%3D5s"
        for options, expected in (
            ("", ["12s", "5s", "14250ms"]),
            ("%20-c%20lock_timeout%3D7s%20-c%20statement_timeout%3D9s", ["7s", "5s", "9s"]),
        ):
            engine = engine_for(self, url + options, of_broker=True)
            with engine.begin() as conn:
                self.assertEqual(_settings(conn), expected)


class PostgreSQLAppTests(app_migrating.AppMigrations):
    """The tables of applications on PostgreSQL."""

    def new_url(self) -> str:
        return empty_database()

    def test_older_nodes_that_need_the_tables_as_they_are(self) -> None:
        """The version that would change them does not start before they have stopped."""
        migrate(self.url, {"notes": FIRST})
        with open_database(self.url) as conn:
            older = nodes.ensure_registered(conn, None)
        for refuse in (migrate, examine):
            error = self.assertRaises(UnfitDatabase, refuse, self.url, {"notes": SECOND})
            self.assertIn("brokers of an older version work on it (", str(error))
            self.assertIn("tables of the application notes that they need", str(error))
        with open_database(self.url, writes=False) as conn:
            self.assertEqual((self.columns(conn), self.revision(conn)), (["id"], "0001"))
        with open_database(self.url) as conn:
            nodes.leave(conn, older)
        examine(self.url, {"notes": SECOND})
        migrate(self.url, {"notes": SECOND})
        with open_database(self.url, writes=False) as conn:
            self.assertEqual(self.revision(conn), "0002")

    def test_older_nodes_that_can_work_with_the_new_tables(self) -> None:
        migrate(self.url, {"notes": FIRST})
        with open_database(self.url) as conn:
            nodes.ensure_registered(conn, None)
        examine(self.url, {"notes": FITTING})
        migrate(self.url, {"notes": FITTING})
        self.add_note()  # as the older nodes do, which do not know of the new column
        with open_database(self.url, writes=False) as conn:
            self.assertEqual((self.notes(conn), self.revision(conn)), ([7], "0002"))


class PostgreSQLMigrationTests(migrating.MigrationSteps):
    def new_url(self) -> str:
        return empty_database()

    def restore(self, url: str) -> None:
        recorded.restore_postgresql(url)

    def definitions(self, conn: Connection) -> list[str]:
        return sorted(conn.execute(text(DEFINITIONS)).scalars())

    def test_nodes_that_start_together(self) -> None:
        """Each step runs once, however many processes begin at the same time."""
        for prepare in (lambda url: None, migrate):
            url = self.new_url()
            prepare(url)
            with next_version.installed(), ThreadPoolExecutor(6) as threads:
                for done in [threads.submit(migrate, url) for _ in range(6)]:
                    done.result(TIMEOUT)
            with open_database(url, writes=False) as conn:
                self.assertEqual(revisions_of(conn), [next_version.REVISION])

    def test_others_wait(self) -> None:
        """While one process migrates, another waits for its transaction to end.

        The time limit for other locks does not apply, and does so again afterwards.
        """
        engine = engine_for(self, self.new_url())

        def wait() -> str:
            with engine.begin() as other:
                other.execute(text("SET LOCAL lock_timeout = '1ms'"))
                wait_for_others(other)
                limit: str = other.execute(text("SHOW lock_timeout")).scalar_one()
                return limit

        waits_longer_than_the_limit = text(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted "
            "AND waitstart < clock_timestamp() - interval '50ms'"
        )
        with ThreadPoolExecutor(1) as threads, capturedLogs() as logs:
            with engine.begin() as conn:
                wait_for_others(conn)
                waited = threads.submit(wait)
                while not conn.execute(waits_longer_than_the_limit).first():
                    self.assertFalse(waited.done(), waited.done() and waited.exception())
            self.assertEqual(waited.result(TIMEOUT), "1ms")
        self.assertIn("Another process migrates", str([formatEvent(event) for event in logs]))
