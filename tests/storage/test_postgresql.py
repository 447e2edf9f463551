"""The store on PostgreSQL passes the contract, and its migrations make the tables of the schema."""

from __future__ import annotations

from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError
from twisted.trial.unittest import TestCase

from rsscloud_broker.records import Bounds
from rsscloud_broker.storage import Store
from rsscloud_broker.storage.engine import open_engine, wait_for_others
from rsscloud_broker.storage.topics import DEFAULT_BOUNDS
from tests.postgresql import borrowed_database, empty_database
from tests.storage import migrating
from tests.storage.databases import threaded_store
from tests.store_contract import make_administration_tests, make_bounds_tests, make_store_tests


def postgresql_store(case: TestCase, bounds: Bounds = DEFAULT_BOUNDS) -> Store:
    """Start a store on a database of its own.  It stops when the test ends."""
    url = case.enterContext(borrowed_database())  # it is given back after the store has stopped
    return threaded_store(case, url, bounds)


class PostgreSQLStoreTests(make_store_tests(postgresql_store)):  # type: ignore[misc] # made at run time
    """The store on PostgreSQL passes the contract."""


class PostgreSQLAdministrationTests(make_administration_tests(postgresql_store)):  # type: ignore[misc] # made at run time
    """The store does what administrators ask."""


class PostgreSQLBoundsTests(make_bounds_tests(postgresql_store)):  # type: ignore[misc] # made at run time
    """The store on PostgreSQL keeps its limits."""


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
