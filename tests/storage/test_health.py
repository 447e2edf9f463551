"""The health of a database file, and backups on trial."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.storage import examination, file_health, try_backup


class FileHealthTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        self.file = self.directory / "a ? b#.sqlite"  # as SQLite's URIs would misread it
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("CREATE TABLE numbers (number)")
            connection.execute(
                "WITH RECURSIVE upto(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM upto"
                " WHERE n < 100000) INSERT INTO numbers SELECT n FROM upto"
            )

    def test_well(self) -> None:
        health = file_health(self.file, 60)
        self.assertEqual((health.problems, health.was_all_read, health.free), ((), True, 0))
        self.assertEqual(health.size, self.file.stat().st_size)

    def test_limited_time(self) -> None:
        health = file_health(self.file, -1)
        self.assertEqual((health.problems, health.was_all_read), ((), False))

    def test_backup(self) -> None:
        """Nothing is left behind."""
        self.assertEqual(try_backup(self.file, self.directory), self.file.stat().st_size)
        file_health(self.file, 60)
        self.assertEqual(list(self.directory.iterdir()), [self.file])

    def test_a_file_that_somebody_else_has_locked(self) -> None:
        self.patch(examination, "TIMEOUT", 0)
        with closing(sqlite3.connect(self.file, isolation_level=None)) as other:
            other.execute("PRAGMA locking_mode=EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
            for look in (
                lambda: file_health(self.file, 60),
                lambda: try_backup(self.file, self.directory),
            ):
                self.assertIn("database is locked", str(self.assertRaises(Unavailable, look)))

    def test_no_file(self) -> None:
        missing = self.directory / "missing"
        for look in (lambda: file_health(missing, 60), lambda: try_backup(missing, self.directory)):
            self.assertIn("unable to open", str(self.assertRaises(Unavailable, look)))
        self.assertFalse(missing.exists())
