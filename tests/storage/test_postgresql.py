"""The store on PostgreSQL passes the contract, and its migrations make the tables of the schema."""

from __future__ import annotations

import time

from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError
from twisted.trial.unittest import TestCase

from rsscloud_broker.log_entries import LogEntry, LogFilter
from rsscloud_broker.records import Bounds
from rsscloud_broker.storage import Store
from rsscloud_broker.storage.engine import open_engine, wait_for_others
from rsscloud_broker.storage.log_entries import add_log_entries
from rsscloud_broker.storage.topics import DEFAULT_BOUNDS
from tests.postgresql import borrowed_database, empty_database
from tests.storage import migrating
from tests.storage.databases import threaded_store
from tests.store_contract import make_bounds_tests, make_store_tests


def postgresql_store(case: TestCase, bounds: Bounds = DEFAULT_BOUNDS) -> Store:
    """Start a store on a database of its own.  It stops when the test ends."""
    url = case.enterContext(borrowed_database())  # it is given back after the store has stopped
    return threaded_store(case, url, bounds)


class PostgreSQLStoreTests(make_store_tests(postgresql_store)):  # type: ignore[misc] # made at run time
    """The store on PostgreSQL passes the contract."""


class PostgreSQLBoundsTests(make_bounds_tests(postgresql_store)):  # type: ignore[misc] # made at run time
    """The store on PostgreSQL keeps its limits."""


class EventLogOrderTests(TestCase):
    """PostgreSQL gives out ids before the commit, and nobody may miss an entry because of that."""

    async def test_entry_that_is_committed_late_is_not_missed(self) -> None:
        url = self.enterContext(borrowed_database())
        store, engine = threaded_store(self, url), open_engine(url)
        self.addCleanup(engine.dispose)
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
            # A transaction of another program must not hold the log up for ever.
            await store.add_log_entries([LogEntry("host", "reachable", now - 121)])
            self.assertEqual(await read(), ["host"])
        self.assertEqual(await read(), ["ping", "fetch", "host"])


#: Selects the indexes, constraints and columns of a database, in no order.
DEFINITIONS = """
    SELECT indexdef FROM pg_indexes
    WHERE schemaname = 'public' AND tablename != 'alembic_version'
    UNION ALL
    SELECT conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid)
    FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text != 'alembic_version'
    UNION ALL
    SELECT table_name || ' ' || column_name || ' ' || data_type || ' ' || is_nullable || ' '
        || coalesce(column_default, '')
    FROM information_schema.columns
    WHERE table_schema = 'public' AND table_name != 'alembic_version'
"""


class PostgreSQLMigrationTests(migrating.MigrationSteps):
    def new_url(self) -> str:
        return empty_database()

    def definitions(self, conn: Connection) -> list[str]:
        return sorted(conn.execute(text(DEFINITIONS)).scalars())

    def test_others_wait(self) -> None:
        """While one process migrates, another waits for its transaction to end."""
        engine = open_engine(self.new_url())
        self.addCleanup(engine.dispose)
        with engine.begin() as conn:
            wait_for_others(conn)
            with engine.begin() as other:
                other.execute(text("SET LOCAL lock_timeout = '50ms'"))
                error = self.assertRaises(OperationalError, wait_for_others, other)
        self.assertIn("lock timeout", str(error))
        with engine.begin() as conn:
            wait_for_others(conn)
