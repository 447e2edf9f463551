"""Checks of the database, with real files and a real PostgreSQL."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from subprocess import run

from sqlalchemy import make_url

from rsscloud_broker.commands.doctor_checks import checks, database
from rsscloud_broker.storage import migrate
from tests import notes
from tests.commands.doctor_checks.cases import DoctorTestCase
from tests.postgresql import borrowed_database
from tests.storage import next_version


class SQLiteTests(DoctorTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.file = self.data / "broker.sqlite"

    def make(self) -> None:
        migrate(self.config.database_url)

    async def test_none_yet(self) -> None:
        self.assertIn("will be made", (await self.only(database.database(self.patient())))[1])
        self.assertEqual(await self.results(database.integrity(self.patient())), [])
        self.assertEqual(await self.results(database.backup(self.patient())), [])

    async def test_well(self) -> None:
        self.make()
        before = sorted(self.data.iterdir())
        level, text = await self.only(database.database(self.patient()))
        self.assertEqual(level, "ok")
        self.assertIn("which is up to date", text)
        level, text = await self.only(database.integrity(self.patient()))
        self.assertEqual(level, "ok")
        self.assertIn("no damage was found", text)
        ((level, found, _), *_) = await self.results(database.backup(self.patient()))
        self.assertEqual(level, "ok")
        self.assertIn("a trial made a copy of 0.", found)
        self.assertEqual(sorted(self.data.iterdir()), before)

    async def test_beside_a_broker_that_writes(self) -> None:
        """What is only in the write-ahead log is seen, and an open transaction holds up nothing."""
        self.make()
        with closing(sqlite3.connect(self.file, isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            writer.execute("CREATE TABLE more (x)")
            for check in (database.integrity, database.backup):
                results = await self.results(check(self.patient()))
                self.assertEqual(results[0][0], "ok", results)

    async def test_an_older_one_beside_a_broker(self) -> None:
        self.make()
        with next_version.installed():
            self.assertEqual((await self.only(database.database(self.patient())))[0], "ok")
            self.run_broker()
            level, text = await self.only(database.database(self.patient()))
        self.assertEqual(level, "warn")
        self.assertIn("a broker of another version runs", text)

    async def test_tables_of_an_application(self) -> None:
        """The broker would not start with tables of a newer version of an application."""
        self.make()
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.execute("CREATE TABLE notes_alembic_version (version_num)")
            connection.execute("INSERT INTO notes_alembic_version VALUES ('0999')")
        patient = self.patient(app_tables={"notes": notes.FIRST})
        level, text = await self.only(database.database(patient))
        self.assertEqual(level, "fail")
        self.assertIn("made by a newer version of the application notes", text)

    async def test_damage(self) -> None:
        self.make()
        with closing(sqlite3.connect(self.file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (page,) = connection.execute("SELECT max(rootpage) FROM sqlite_master").fetchone()
            (size,) = connection.execute("PRAGMA page_size").fetchone()
        with self.file.open("r+b") as file:
            file.seek((page - 1) * size)
            file.write(b"\xff" * size)
        level, text = await self.only(database.integrity(self.patient()))
        self.assertEqual(level, "fail")
        self.assertIn("is damaged", text)
        self.assertIn("restore a backup", text)

    async def test_no_database(self) -> None:
        self.file.write_bytes(b"This is no database. " * 100)
        level, text = await self.only(database.database(self.patient()))
        self.assertEqual(level, "fail")
        self.assertIn("file is not a database", text)
        # A check that cannot be made is a result, too, and the others go on.
        results = {result.name: result for result in await checks.examine(self.patient())}
        for name in ("integrity", "backup"):
            self.assertEqual(results[name].level, "fail")
            self.assertIn("file is not a database", results[name].found)
        self.assertIn("clock", results)

    async def test_much_is_unused(self) -> None:
        self.make()
        self.patch(database, "_MUCH_UNUSED", 0)
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.execute("CREATE TABLE more (x)")
            connection.execute("INSERT INTO more VALUES (zeroblob(1000000))")
            connection.execute("DROP TABLE more")
        results = await self.results(database.integrity(self.patient()))
        self.assertEqual([level for level, _, _ in results], ["ok", "ok"])
        self.assertIn("are unused", results[1][1])
        size = self.file.stat().st_size
        run(results[1][2].partition("run: ")[2], shell=True, check=True)  # noqa: ASYNC221
        self.assertLess(self.file.stat().st_size, size)

    async def test_large_files_are_not_copied(self) -> None:
        self.make()
        self.patch(database, "TRIAL_BYTES", 0)
        ((level, found, _), *_) = await self.results(database.backup(self.patient()))
        self.assertEqual(level, "ok")
        self.assertIn("a trial would have taken long", found)

    async def test_data_that_cannot_be_used(self) -> None:
        self.data.rmdir()
        self.data.write_text("")
        self.assertEqual((await self.only(database.database(self.patient())))[0], "warn")
        for check in (database.integrity, database.backup):
            self.assertEqual(await self.results(check(self.patient())), [])


class PostgreSQLTests(DoctorTestCase):
    def setUp(self) -> None:
        super().setUp()
        borrowing = borrowed_database()  # skips where there is no PostgreSQL
        url = borrowing.__enter__()
        self.addCleanup(borrowing.__exit__, None, None, None)
        self.change(database=url)

    async def test_well(self) -> None:
        self.assertEqual((await self.only(database.database(self.patient())))[0], "ok")
        level, text = await self.only(database.integrity(self.patient()))
        self.assertEqual(level, "ok")
        self.assertRegex(text, r"^PostgreSQL \d+\S*, [\d.]+ MB, \d+ of 100 connections in use")
        level, text = await self.only(database.backup(self.patient()))
        self.assertEqual((level, text), ("ok", "pg_dump can read the database; "))

    async def test_a_standby(self) -> None:
        url = make_url(self.config.database or "")
        servers = ("/nowhere:5432", f"{url.query['host']}:5432")
        url = url.update_query_dict({"host": servers})
        self.change(database=url.render_as_string(hide_password=False))
        self.assertEqual((await self.only(database.database(self.patient())))[0], "ok")
        level, text = await self.only(database.backup(self.patient()))
        self.assertEqual((level, text), ("ok", "pg_dump can read the database; "))

    async def test_another_clock(self) -> None:
        self.patch(self.clock, "wall_seconds", lambda: 1_000_000_000.0)
        results = await self.results(database.integrity(self.patient()))
        self.assertEqual([level for level, _, _ in results], ["ok", "warn"])
        self.assertIn("the clock of the database server differs", results[1][1])

    async def test_a_dump_that_fails(self) -> None:
        assert self.config.database is not None
        url = make_url(self.config.database).set(database="missing", password="sesame")
        self.change(database=url.render_as_string(hide_password=False))
        level, text = await self.only(database.backup(self.patient()))
        self.assertEqual(level, "warn")
        self.assertIn('database "missing" does not exist', text)
        self.assertNotIn("sesame", text)

    async def test_without_the_program(self) -> None:
        self.patch(shutil, "which", lambda _: None)
        level, text = await self.only(database.backup(self.patient()))
        self.assertEqual(level, "warn")
        self.assertIn("pg_dump, which makes backups, is missing", text)

    async def test_a_server_that_is_away(self) -> None:
        self.change(database="postgresql+psycopg://me@/x?host=/nowhere")
        self.assertEqual((await self.only(database.database(self.patient())))[0], "fail")
        self.assertEqual(await self.results(database.integrity(self.patient())), [])
