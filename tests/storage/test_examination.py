"""What is found out about a database without changing it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.model import Unavailable
from rsscloud_broker.storage import UnfitDatabase, database_file, examine
from rsscloud_broker.storage.upgrade import latest_revision
from tests.storage.databases import file_database


class ExaminationTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.url = file_database(self)
        file = database_file(self.url)
        assert file is not None
        self.file = file

    def state(self) -> dict[str, bytes]:
        """Everything beside the database, and itself."""
        beside = self.file.parent.glob(f"{self.file.name}*")
        return {path.name: path.read_bytes() for path in beside}

    def assert_left_alone(self, before: dict[str, bytes]) -> None:
        self.assertEqual(self.state(), before)

    def change(self, statement: str) -> None:
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.execute(statement)

    def test_up_to_date(self) -> None:
        before = self.state()
        found = examine(self.url)
        self.assertEqual((found.revision, found.latest), (latest_revision(), latest_revision()))
        self.assert_left_alone(before)

    def test_an_older_one(self) -> None:
        self.change("UPDATE alembic_version SET version_num = '0004'")
        before = self.state()
        found = examine(self.url)
        self.assertEqual((found.revision, found.latest), ("0004", latest_revision()))
        self.assert_left_alone(before)

    def test_a_newer_one(self) -> None:
        self.change("UPDATE alembic_version SET version_num = '9999'")
        error = self.assertRaises(UnfitDatabase, examine, self.url)
        self.assertIn("does not know its revision 9999", str(error))

    def test_an_empty_one(self) -> None:
        self.file.write_bytes(b"")
        self.assertEqual(examine(self.url).revision, "")
        self.assert_left_alone({self.file.name: b""})

    def test_no_database(self) -> None:
        self.file.write_bytes(b"This is a text and no database.\n" * 100)
        before = self.state()
        error = self.assertRaises(Unavailable, examine, self.url)
        self.assertIn("not a database", str(error))
        self.assert_left_alone(before)

    def test_one_in_memory(self) -> None:
        error = self.assertRaises(UnfitDatabase, examine, "sqlite://")
        self.assertIn("would keep nothing", str(error))

    def test_beside_somebody_who_reads_and_writes(self) -> None:
        with closing(sqlite3.connect(self.file)) as other:
            other.execute("CREATE TABLE extra (a)")
            other.execute("INSERT INTO extra VALUES (1)")
            other.commit()
            before = self.state()
            self.assertIn(f"{self.file.name}-wal", before)
            examine(self.url)
            self.assertEqual(self.state().keys(), before.keys())
            self.assertEqual(self.state()[f"{self.file.name}-wal"], before[f"{self.file.name}-wal"])
            other.execute("INSERT INTO extra VALUES (2)")
            other.commit()

    def test_files(self) -> None:
        self.assertEqual(database_file("sqlite:////var/lib/x.db"), Path("/var/lib/x.db"))
        for url in ("sqlite://", "sqlite:///:memory:", "sqlite:///file:x?uri=true"):
            self.assertIsNone(database_file(url), url)
