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
        await self.assert_only(database.database, "ok", "will be made")
        self.assertEqual(await self.results(database.integrity), [])
        self.assertEqual(await self.results(database.backup), [])

    async def test_well(self) -> None:
        self.make()
        before = sorted(self.data.iterdir())
        await self.assert_only(database.database, "ok", "which is up to date")
        await self.assert_only(database.integrity, "ok", "no damage was found")
        await self.assert_only(database.backup, "ok", "a trial made a copy of 0.")
        self.assertEqual(sorted(self.data.iterdir()), before)

    async def test_beside_a_broker_that_writes(self) -> None:
        """What is only in the write-ahead log is seen, and an open transaction holds up nothing."""
        self.make()
        with closing(sqlite3.connect(self.file, isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            writer.execute("CREATE TABLE more (x)")
            for check in (database.integrity, database.backup):
                await self.assert_only(check, "ok")

    async def test_an_older_one_beside_a_broker(self) -> None:
        self.make()
        with next_version.installed():
            await self.assert_only(database.database, "ok")
            self.run_broker()
            await self.assert_only(database.database, "warn", "a broker of another version runs")

    async def test_tables_of_an_application(self) -> None:
        """The broker would not start with tables of a newer version of an application."""
        self.make()
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.execute("CREATE TABLE notes_alembic_version (version_num)")
            connection.execute("INSERT INTO notes_alembic_version VALUES ('0999')")
        context = self.context(app_tables={"notes": notes.FIRST})
        await self.assert_only(
            database.database,
            "fail",
            "made by a newer version of the application notes",
            context=context,
        )

    async def test_damage(self) -> None:
        self.make()
        with closing(sqlite3.connect(self.file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (page,) = connection.execute("SELECT max(rootpage) FROM sqlite_master").fetchone()
            (size,) = connection.execute("PRAGMA page_size").fetchone()
        with self.file.open("r+b") as file:
            file.seek((page - 1) * size)
            file.write(b"\xff" * size)
        await self.assert_only(database.integrity, "fail", "is damaged", "restore a backup")

    async def test_no_database(self) -> None:
        self.file.write_bytes(b"This is no database. " * 100)
        await self.assert_only(database.database, "fail", "file is not a database")
        # A check that cannot be made is a result, too, and the others go on.
        results = {result.name: result for result in await checks.examine(self.context())}
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
        results = await self.assert_levels(database.integrity, "ok", "ok")
        self.assertIn("are unused", results[1][1])
        size = self.file.stat().st_size
        run(results[1][2].partition("run: ")[2], shell=True, check=True)  # noqa: ASYNC221
        self.assertLess(self.file.stat().st_size, size)

    async def test_large_files_are_not_copied(self) -> None:
        self.make()
        self.patch(database, "TRIAL_BYTES", 0)
        await self.assert_only(database.backup, "ok", "a trial would have taken long")

    async def test_data_that_cannot_be_used(self) -> None:
        self.data.rmdir()
        self.data.write_text("")
        await self.assert_only(database.database, "warn")
        for check in (database.integrity, database.backup):
            self.assertEqual(await self.results(check), [])


class PostgreSQLTests(DoctorTestCase):
    def setUp(self) -> None:
        super().setUp()
        borrowing = borrowed_database()  # skips where there is no PostgreSQL
        url = borrowing.__enter__()
        self.addCleanup(borrowing.__exit__, None, None, None)
        self.change(database=url)

    async def test_well(self) -> None:
        await self.assert_only(database.database, "ok")
        text = await self.assert_only(database.integrity, "ok")
        self.assertRegex(text, r"^PostgreSQL \d+\S*, [\d.]+ MB, \d+ of 100 connections in use")
        text = await self.assert_only(database.backup, "ok")
        self.assertEqual(text, "pg_dump can read the database; ")

    async def test_a_standby(self) -> None:
        url = make_url(self.config.database or "")
        servers = ("/nowhere:5432", f"{url.query['host']}:5432")
        url = url.update_query_dict({"host": servers})
        self.change(database=url.render_as_string(hide_password=False))
        await self.assert_only(database.database, "ok")
        text = await self.assert_only(database.backup, "ok")
        self.assertEqual(text, "pg_dump can read the database; ")

    async def test_another_clock(self) -> None:
        self.patch(self.clock, "wall_seconds", lambda: 1_000_000_000.0)
        results = await self.assert_levels(database.integrity, "ok", "warn")
        self.assertIn("the clock of the database server differs", results[1][1])

    async def test_a_dump_that_fails(self) -> None:
        assert self.config.database is not None
        url = make_url(self.config.database).set(database="missing", password="sesame")
        self.change(database=url.render_as_string(hide_password=False))
        missing = 'database "missing" does not exist'
        text = await self.assert_only(database.backup, "warn", missing)
        self.assertNotIn("sesame", text)

    async def test_without_the_program(self) -> None:
        self.patch(shutil, "which", lambda _: None)
        await self.assert_only(database.backup, "warn", "pg_dump, which makes backups, is missing")

    async def test_a_server_that_is_away(self) -> None:
        self.change(database="postgresql+psycopg://me@/x?host=/nowhere")
        await self.assert_only(database.database, "fail")
        self.assertEqual(await self.results(database.integrity), [])
