"""The settings of SQLite, removed and replaced files, and tables that suit PostgreSQL too."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, event, insert, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.schema import CreateIndex, CreateTable
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.database import sqlite
from rsscloud_broker.database.engine import as_unavailable, for_writing
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.storage import open_database
from rsscloud_broker.storage.schema import fanout, metadata, ping, topic
from tests.storage.databases import engine_for, file_database, memory_database


class ConnectionTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.engine = engine_for(self, file_database(self))

    def test_settings(self) -> None:
        expected = {
            "journal_mode": "wal",
            "synchronous": 2,  # FULL
            "foreign_keys": 1,
            "busy_timeout": 30_000,
        }
        with self.engine.begin() as conn:
            for name, value in expected.items():
                self.assertEqual(conn.exec_driver_sql(f"PRAGMA {name}").scalar(), value, name)

    def test_timeout_of_the_url(self) -> None:
        engine = engine_for(self, file_database(self) + "?timeout=5")
        with engine.begin() as conn:
            self.assertEqual(conn.exec_driver_sql("PRAGMA busy_timeout").scalar(), 5_000)

    def test_writers_take_the_lock_at_the_start(self) -> None:
        begun: list[str] = []

        def note(conn: Any, cursor: Any, statement: str, *rest: Any) -> None:
            begun.append(statement)

        event.listen(self.engine, "before_cursor_execute", note)
        for engine in (self.engine, for_writing(self.engine)):
            with engine.begin():
                pass
        self.assertEqual(begun, ["BEGIN", "BEGIN IMMEDIATE"])

    def test_foreign_keys_are_held(self) -> None:
        lost = insert(fanout).values(topic_id=99, cursor=0, begun_at=0)
        with for_writing(self.engine).begin() as conn:
            self.assertRaises(IntegrityError, conn.execute, lost)

    def test_tables_are_made_and_dropped_with_the_transaction(self) -> None:
        engine = engine_for(self, "sqlite://")
        conn = engine.connect()
        metadata.create_all(conn)
        conn.rollback()
        found = conn.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar()
        self.assertEqual(found, 0)
        conn.close()


class FileTests(SynchronousTestCase):
    """The file is removed or replaced while connections are open."""

    def setUp(self) -> None:
        self.engine = engine_for(self, file_database(self))
        self.file = Path(str(self.engine.url.database))
        self.away = self.file.with_name(f"{self.file.name}.away")
        # Several connections, since they are closed one after the other.
        with for_writing(self.engine).begin() as conn, self.engine.begin(), self.engine.begin():
            self.insert(conn, "http://old.example/")

    def insert(self, conn: Connection, url: str) -> None:
        conn.execute(insert(topic).values(url=url))

    def topics(self) -> list[str]:
        with self.engine.begin() as conn:
            return list(conn.execute(select(topic.c.url).order_by(topic.c.id)).scalars())

    def restore(self) -> None:
        """Put another database in the place of the file."""
        url = file_database(self)
        with open_database(url) as conn:
            self.insert(conn, "http://restored.example/")
        Path(url.removeprefix("sqlite:///")).rename(self.file)

    def look_after(self) -> None:
        files = sqlite.files_of(self.engine)
        assert files is not None
        files.look_after()

    def assert_refused(self) -> None:
        """Check that neither readers nor writers can begin."""
        self.look_after()
        for engine in (self.engine, for_writing(self.engine)):
            error = self.assertRaises(OperationalError, engine.begin().__enter__)
            self.assertIn("was removed or replaced", str(error))
            self.assertIn(f"remove {self.file.resolve()}-wal", str(error))
            self.assertIsInstance(as_unavailable(error), Unavailable)

    def assert_works(self, *before: str) -> None:
        """Check that readers find the expected topics, and that writers can add one."""
        self.look_after()
        self.assertEqual(self.topics(), list(before))
        with for_writing(self.engine).begin() as conn:
            self.insert(conn, "http://new.example/")
        self.assertEqual(self.topics(), [*before, "http://new.example/"])
        with closing(sqlite3.connect(self.file)) as other:
            self.assertEqual(other.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
            self.assertEqual(len(other.execute("SELECT * FROM topic").fetchall()), len(before) + 1)

    def test_directory_that_became_a_file(self) -> None:
        directory, away = self.file.parent, self.file.parent.with_name("away")
        directory.rename(away)
        directory.write_text("")
        self.assert_refused()
        directory.unlink()
        away.rename(directory)
        self.assert_works("http://old.example/")

    def test_new_connections_never_go_to_another_file(self) -> None:
        """Not even before anybody has looked."""
        self.restore()
        self.engine.pool.dispose()
        error = self.assertRaises(OperationalError, self.engine.begin().__enter__)
        self.assertIn("was removed or replaced", str(error))

    def test_replaced_behind_a_link(self) -> None:
        link = self.file.with_name("link.sqlite")
        link.symlink_to(self.file)
        self.engine = engine_for(self, f"sqlite:///{link}")
        self.topics()
        self.restore()
        self.assert_refused()

    def test_replaced_and_put_back(self) -> None:
        self.file.rename(self.away)
        self.restore()
        self.assert_refused()
        self.away.rename(self.file)
        self.assert_works("http://old.example/")


class InsertionTests(SynchronousTestCase):
    def insert(self, conn: Connection, *urls: str) -> dict[str, int]:
        """Insert pings of sites, and return the ids that ``insert_at_once`` reports."""
        same = dict.fromkeys(("name", "changes_url", "rss_url", "tags"), "")
        rows = [{"url": url, "received_at": 0, "fingerprint": b"", **same} for url in urls]
        return dict(zip(urls, sqlite.insert_at_once(conn, ping, rows), strict=True))

    def test_ids_are_those_of_the_rows_however_many(self) -> None:
        with memory_database() as conn:
            for count in (1, 255, 256, 259, 700):
                ids = self.insert(conn, *(f"http://{count}.example/{n}" for n in range(count)))
                stored = select(ping.c.url, ping.c.id).where(ping.c.url.in_(ids))
                self.assertEqual(dict(conn.execute(stored).tuples().all()), ids)

    def test_no_id_is_given_twice(self) -> None:
        with memory_database() as conn:
            first = self.insert(conn, "http://a.example/", "http://b.example/")
            conn.execute(delete(ping))
            self.assertGreater(min(self.insert(conn, "http://c.example/").values()), 2)
            self.assertEqual(set(first.values()), {1, 2})

    def test_ids_are_larger_than_any_there_is(self) -> None:
        with memory_database() as conn:
            self.insert(conn, "http://a.example/", "http://b.example/")
            conn.exec_driver_sql("DELETE FROM sqlite_sequence")
            self.assertEqual(self.insert(conn, "http://c.example/"), {"http://c.example/": 3})


class PortableSchemaTests(SynchronousTestCase):
    def test_tables_for_postgresql(self) -> None:
        dialect = postgresql.dialect()
        for table in metadata.sorted_tables:
            made = str(CreateTable(table).compile(dialect=dialect))
            self.assertNotIn("AUTOINCREMENT", made)
            if "id" in table.c:
                self.assertIn("id BIGSERIAL", made)
            for index in table.indexes:
                self.assertIn("INDEX", str(CreateIndex(index).compile(dialect=dialect)))
