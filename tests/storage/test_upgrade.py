"""Migrations make the tables of the schema on SQLite, and refuse databases of newer versions."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path

from sqlalchemy import Connection, text
from twisted.internet.defer import gatherResults
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import TestCase

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.storage import UnfitDatabase, examine, migrate, open_database
from tests.storage import app_migrating, migrating, recorded


class MigrateTests(migrating.MigrationSteps):
    """The migrations of SQLite, which also make the file."""

    def new_url(self) -> str:
        return f"sqlite:///{Path(self.mktemp()).resolve()}/deep/er/broker.db"

    def restore(self, url: str) -> None:
        recorded.restore_sqlite(Path(url.removeprefix("sqlite:///")))

    def test_the_file_is_for_its_owner_alone(self) -> None:
        """The file and those that SQLite makes beside it hold the secrets of subscribers."""
        url = self.new_url()
        migrate(url)
        file = Path(url.removeprefix("sqlite:///"))
        with open_database(url) as conn:
            conn.execute(text("UPDATE topic SET url = url"))
            files = list(file.parent.glob("broker.db*"))
            self.assertEqual({path.stat().st_mode & 0o777 for path in files}, {0o600})
            self.assertGreater(len(files), 1)

    def definitions(self, conn: Connection) -> dict[str, list[str]]:
        """The columns and constraints of each table and index, in no order."""
        rows = conn.exec_driver_sql(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL "
            "AND tbl_name NOT LIKE '%alembic_version' AND tbl_name != 'sqlite_sequence'"
        )
        return {
            # A column that was added or dropped changes lines, spaces and quotes.
            name: sorted(filter(None, (part.strip(" ()\t") for part in re.split(r",\s|\n", sql))))
            for name, sql in ((name, sql.replace('"', "")) for name, sql in rows)
        }

    def test_database_in_memory_is_refused(self) -> None:
        for url in ("sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"):
            for check in (migrate, examine):
                error = self.assertRaises(UnfitDatabase, check, url)
                self.assertIn("would keep nothing. Name a file", str(error))

    def test_directory_that_cannot_be_made(self) -> None:
        path = Path(self.mktemp()).resolve()
        path.write_text("in the way", encoding="ascii")
        error = self.assertRaises(Unavailable, migrate, f"sqlite:///{path}/broker.db")
        self.assertIn(
            "the file of the database, or its directory, cannot be made or written", str(error)
        )

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


class AppTests(app_migrating.AppMigrations):
    """The tables of applications on SQLite."""

    def new_url(self) -> str:
        return f"sqlite:///{Path(self.mktemp()).resolve()}/broker.db"


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
