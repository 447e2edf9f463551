"""Migrations make the tables of the schema, once, and never go back in time."""

from __future__ import annotations

import logging
import sqlite3
import sys
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text
from twisted.internet.defer import gatherResults
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import SynchronousTestCase, TestCase

from rsscloud_broker.model import Unavailable
from rsscloud_broker.storage import UnfitDatabase, migrate, open_database
from rsscloud_broker.storage.engine import open_engine
from rsscloud_broker.storage.schema import metadata


class MigrateTests(SynchronousTestCase):
    def new_url(self) -> str:
        return f"sqlite:///{Path(self.mktemp()).resolve()}/deep/er/broker.db"

    def test_makes_the_tables_and_the_directory(self) -> None:
        url = self.new_url()
        migrate(url)
        with open_database(url, writes=False) as conn:
            tables = set(inspect(conn).get_table_names())
        self.assertEqual(tables, {*metadata.tables, "alembic_version"})

    def test_agrees_with_the_schema(self) -> None:
        url = self.new_url()
        migrate(url)
        with open_database(url, writes=False) as conn:
            context = MigrationContext.configure(conn)
            self.assertEqual(compare_metadata(context, metadata), [])

    def test_makes_the_same_as_create_all(self) -> None:
        """Down to what Alembic does not compare, such as AUTOINCREMENT."""
        url = self.new_url()
        migrate(url)
        with open_database(url, writes=False) as conn:
            migrated = self.definitions(conn.connection.driver_connection)
        engine = open_engine("sqlite://")
        self.addCleanup(engine.dispose)
        metadata.create_all(engine)
        with engine.begin() as conn:
            self.assertEqual(self.definitions(conn.connection.driver_connection), migrated)

    def definitions(self, connection: sqlite3.Connection | None) -> dict[str, list[str]]:
        """The columns and constraints of each table and index, in no order."""
        assert connection is not None
        rows = connection.execute(
            "SELECT name, sql FROM sqlite_master "
            "WHERE sql IS NOT NULL AND tbl_name NOT IN ('alembic_version', 'sqlite_sequence')"
        )
        return {
            name: sorted(line.strip().rstrip(", ") for line in sql.splitlines())
            for name, sql in rows
        }

    def test_twice_changes_nothing(self) -> None:
        url = self.new_url()
        migrate(url)
        with open_database(url) as conn:
            conn.execute(text("INSERT INTO tally (name, value) VALUES ('kept', 1)"))
        migrate(url)
        with open_database(url, writes=False) as conn:
            self.assertEqual(conn.execute(text("SELECT name FROM tally")).scalar(), "kept")

    def test_newer_database_is_refused(self) -> None:
        url = self.new_url()
        migrate(url)
        with open_database(url) as conn:
            conn.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        error = self.assertRaises(UnfitDatabase, migrate, url)
        self.assertIn("newer version", str(error))
        self.assertIn("9999", str(error))

    def test_database_in_memory_is_refused(self) -> None:
        for url in ("sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"):
            error = self.assertRaises(UnfitDatabase, migrate, url)
            self.assertIn("Name a file", str(error))

    def test_directory_that_cannot_be_made(self) -> None:
        path = Path(self.mktemp()).resolve()
        path.write_text("in the way", encoding="ascii")
        error = self.assertRaises(Unavailable, migrate, f"sqlite:///{path}/broker.db")
        self.assertIn("directory for the database cannot be made", str(error))

    def test_file_that_cannot_be_opened(self) -> None:
        path = Path(self.mktemp()).resolve()
        path.mkdir()
        error = self.assertRaises(Unavailable, migrate, f"sqlite:///{path}")
        self.assertIn("unable to open database file", str(error))

    def test_leaves_logging_alone(self) -> None:
        root = logging.getLogger()
        before = (list(root.handlers), root.level, logging.getLogger("alembic").level)
        migrate(self.new_url())
        after = (list(root.handlers), root.level, logging.getLogger("alembic").level)
        self.assertEqual(before, after)
        self.assertFalse(logging.getLogger("twisted").disabled)


class AtOnceTests(TestCase):
    async def test_processes_that_migrate_at_once(self) -> None:
        url = f"sqlite:///{self.mktemp()}/broker.db"
        script = "import sys; from rsscloud_broker.storage import migrate; migrate(sys.argv[1])"
        results = await gatherResults(
            [
                getProcessOutputAndValue(
                    sys.executable, ["-c", script, url], env={"PYTHONPATH": ":".join(sys.path)}
                )
                for _ in range(3)
            ]
        )
        self.assertEqual(results, [(b"", b"", 0)] * 3)
