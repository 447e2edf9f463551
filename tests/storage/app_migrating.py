"""Tests of the tables of applications that hold for SQLite and PostgreSQL."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, text
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.storage import UnfitDatabase, examine, migrate, open_database
from rsscloud_broker.storage.upgrade import LATEST_REVISION, revisions_of
from tests.notes import FIRST, SECOND

VERSION = "notes_alembic_version"


class AppMigrations(SynchronousTestCase):
    """The tests that hold for every kind of database."""

    def new_url(self) -> str:
        """The URL of a database without tables."""
        raise NotImplementedError

    def setUp(self) -> None:
        self.url = self.new_url()

    def revision(self, conn: Connection) -> str:
        return str(conn.execute(text(f"SELECT version_num FROM {VERSION}")).scalar_one())

    def columns(self, conn: Connection) -> list[str]:
        return [each["name"] for each in inspect(conn).get_columns("notes_note")]

    def add_note(self) -> None:
        with open_database(self.url) as conn:
            conn.execute(text("INSERT INTO notes_note (id) VALUES (7)"))

    def assert_has(self, columns: list[str], revision: str, notes: list[int]) -> None:
        """Check the tables of the application, and that those of the broker are the latest."""
        with open_database(self.url, writes=False) as conn:
            found = self.columns(conn), self.revision(conn), self.notes(conn)
            self.assertEqual(found, (columns, revision, notes))
            self.assertEqual(revisions_of(conn), [LATEST_REVISION])

    def notes(self, conn: Connection) -> list[int]:
        return list(conn.execute(text("SELECT id FROM notes_note")).scalars())

    def test_new_database(self) -> None:
        migrate(self.url, {"notes": SECOND})
        self.assert_has(["id", "text"], "0002", [])

    def test_older_tables_are_migrated(self) -> None:
        """Also after the application was disabled for a while, and where it was added later."""
        for _ in "twice":
            migrate(self.url)
        migrate(self.url, {"notes": FIRST})
        self.add_note()
        migrate(self.url)
        self.assert_has(["id"], "0001", [7])
        for _ in "twice":
            migrate(self.url, {"notes": SECOND})
            self.assert_has(["id", "text"], "0002", [7])

    def test_newer_tables_are_refused(self) -> None:
        migrate(self.url, {"notes": SECOND})
        self.add_note()
        examine(self.url, {"notes": SECOND})
        for check in (migrate, examine):
            error = self.assertRaises(UnfitDatabase, check, self.url, {"notes": FIRST})
            self.assertIn("a newer version of the application notes", str(error))
            self.assertIn("0002", str(error))
        self.assert_has(["id", "text"], "0002", [7])

    def test_tables_of_no_release(self) -> None:
        migrate(self.url, {"notes": SECOND})
        with open_database(self.url) as conn:
            conn.execute(text("ALTER TABLE notes_note DROP COLUMN text"))
        said = str(self.assertRaises(UnfitDatabase, migrate, self.url, {"notes": SECOND}))
        self.assertIn("a build of the application notes from before its first release", said)
        self.assertIn("the database lacks the column notes_note.text:", said)

    def test_tables_of_somebody_else_are_not_taken(self) -> None:
        migrate(self.url)
        with open_database(self.url) as conn:
            conn.execute(text("CREATE TABLE notes_note (name TEXT)"))
        error = self.assertRaises(UnfitDatabase, migrate, self.url, {"notes": FIRST})
        self.assertIn("tables named notes_note, which the application notes", str(error))
        with open_database(self.url, writes=False) as conn:
            self.assertNotIn(VERSION, inspect(conn).get_table_names())
