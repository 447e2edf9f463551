"""Damage to the files of an SQLite database loses no acknowledged ping, or is noticed."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

from sqlalchemy import Connection
from twisted.internet import reactor
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import TestCase

from rsscloud_broker.database import files
from rsscloud_broker.database.sqlite import files_of
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.model import Ping
from rsscloud_broker.storage import Store
from rsscloud_broker.storage.pings import insert_pings
from tests.storage.databases import file_database, threaded_store

# A reactor is a module; what it provides is known only at run time.
running: Any = reactor


class DamageTests(TestCase):
    """Each test damages the files of a running store."""

    timeout = 30

    def setUp(self) -> None:
        url = file_database(self)
        self.store: Store = threaded_store(self, url)
        self.file = Path(url.removeprefix("sqlite:///"))
        self.log = self.file.with_name(f"{self.file.name}-wal")
        self.acknowledged: set[str] = set()
        self.events: list[LogEvent] = []
        keep: Any = self.events.append
        globalLogPublisher.addObserver(keep)
        self.addCleanup(globalLogPublisher.removeObserver, keep)

    def logged(self) -> str:
        return "\n".join(map(formatEvent, self.events))

    def watch(self) -> files.Files:
        """The object that watches the files of the store."""
        found = files_of(self.store._database._engine)  # type: ignore[attr-defined] # it is there
        assert found is not None
        return found

    async def add(self, *names: str) -> None:
        """Add pings one after the other, and note those that the store acknowledges."""
        for name in names:
            await self.store.add_ping(Ping(name, "http://site.example/", 1.0), 60)
            self.acknowledged.add(name)

    async def add_if_possible(self, *names: str) -> int:
        """Add pings, and return how many the store refused."""
        refused = 0
        for name in names:
            try:
                await self.add(name)
            except Unavailable:
                refused += 1
        return refused

    def after_a_crash(self) -> set[str]:
        """The pings that the database would have if the process ended now."""
        directory = Path(self.mktemp())
        directory.mkdir()
        for path in (self.file, self.log):
            if path.exists():
                shutil.copy(path, directory / path.name)
        with closing(sqlite3.connect(directory / self.file.name)) as copy:
            self.assertEqual(copy.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
            return {name for (name,) in copy.execute("SELECT name FROM ping")}

    async def test_log_is_removed(self) -> None:
        await self.add("a", "b")
        self.log.unlink()
        await self.add("c", "d")
        self.assertEqual(self.after_a_crash(), {"a", "b", "c", "d"})
        self.assertIn("was removed by somebody", self.logged())

    async def test_log_is_replaced(self) -> None:
        await self.add("a")
        self.log.rename(self.log.with_name("away"))
        self.log.write_bytes(os.urandom(9000))
        await self.add("b")
        self.assertEqual(self.after_a_crash(), {"a", "b"})

    async def test_log_is_removed_while_it_is_read(self) -> None:
        """New connections are made only when all old ones are closed."""
        await self.add("a")
        engine = self.store._database._engine  # type: ignore[attr-defined] # it is there
        with engine.connect() as reader:
            reader.exec_driver_sql("SELECT * FROM ping").fetchall()
            self.log.unlink()
            self.assertEqual(await self.add_if_possible("b"), 1)
        await self.add("c")
        self.assertEqual(self.after_a_crash(), {"a", "c"})

    async def test_log_is_cut_short(self) -> None:
        """Commits before the last checkpoint stay, and the store goes on."""
        for size in (0, 5000):
            await self.add(f"a{size}", f"b{size}")
            self.checkpoint()
            os.truncate(self.log, size)
            await self.add(f"c{size}")
        self.assertEqual(self.after_a_crash(), self.acknowledged)
        self.assertIn("was cut short by somebody", self.logged())

    async def test_log_is_cut_short_before_a_checkpoint(self) -> None:
        await self.add("a")
        self.checkpoint()
        await self.add("b")
        os.truncate(self.log, 0)
        await self.add("c")
        self.assertEqual(self.after_a_crash(), {"a", "b", "c"})

    async def test_log_is_cut_short_and_nothing_else_comes(self) -> None:
        await self.add("a")
        os.truncate(self.log, 0)
        while self.after_a_crash() != {"a"}:  # within a second
            await deferLater(running, 0.05)

    async def test_operation_that_fails_the_second_time_stops_no_others(self) -> None:
        calls: list[str] = []

        def fickle(conn: Connection) -> None:
            insert_pings(conn, [Ping("b", "http://site.example/", 1.0)])
            calls.append("b")
            if len(calls) > 1:
                raise ValueError("not twice")

        await self.add("a")
        self.checkpoint()
        await self.store._database.write(fickle)
        await self.add("c")
        os.truncate(self.log, 0)
        await self.add("d")
        self.assertEqual(self.after_a_crash(), {"a", "c", "d"})
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    async def test_log_is_cut_short_within_a_transaction(self) -> None:
        await self.add("a")
        self.checkpoint()
        await self.add("b")

        def cut(conn: Connection) -> None:
            insert_pings(conn, [Ping("c", "http://site.example/", 1.0)])
            os.truncate(self.log, 0)

        with self.assertRaises(Unavailable):
            await self.store._database.write(cut)
        await self.add("d")
        self.assertEqual(self.after_a_crash(), {"a", "b", "d"})

    async def test_commits_are_in_the_main_file_within_a_second(self) -> None:
        self.patch(files, "CHECKPOINT_AFTER", 0.0)
        await self.add("a")
        await self.add("b")  # the writer has made a checkpoint before
        self.log.unlink()
        self.log = self.log.with_name("none")
        self.assertIn("a", self.after_a_crash())

    def checkpoint(self) -> None:
        """Make a checkpoint."""
        self.watch().checkpoint()

    async def test_checkpoint_beside_a_reader(self) -> None:
        """SQLite then copies only a part of the log into the main file, which is not damage."""
        await self.add("first")
        self.checkpoint()
        await self.add(*map(str, range(300)))
        with closing(sqlite3.connect(self.file)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM ping").fetchone()
            await self.add(*map(str, range(300, 600)))
            self.assertFalse(self.watch().checkpoint())
            self.assertEqual(await self.add_if_possible("another"), 0)
        self.assertNotIn("is damaged", self.logged())
        self.assertTrue(self.watch().checkpoint())
        self.assertEqual(await self.add_if_possible("last"), 0)
        self.assertLessEqual(self.acknowledged, self.after_a_crash())

    async def test_checkpoint_waits_for_short_reads(self) -> None:
        """Under load somebody reads at any time, and the log must not grow for ever."""
        await self.add("first")
        self.patch(files, "WAIT", 20_000)
        with closing(sqlite3.connect(self.file, check_same_thread=False)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM ping").fetchone()
            await self.add("second")
            ending = running.callLater(0.05, running.callInThread, reader.rollback)
            self.addCleanup(lambda: ending.active() and ending.cancel())
            complete = await deferToThread(self.watch().checkpoint)
        self.assertTrue(complete)

    async def test_long_read_keeps_no_operations(self) -> None:
        """They could not be run again on what a part of a checkpoint leaves."""
        writer = self.store._database._writer  # type: ignore[attr-defined] # it is there
        await self.add("first")
        with closing(sqlite3.connect(self.file)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM ping").fetchone()
            for number in range(5):
                await self.add(*(f"{number} {letter}" for letter in "abcde"))
                self.assertGreater(len(writer._unkept), 0)
                writer._checkpoint()
        self.assertLess(len(writer._unkept), 10)
        self.assertTrue(self.watch().checkpoint())

    async def test_checkpoint_that_fails_forgets_no_operations(self) -> None:
        """Nothing was copied, so they can be run again."""
        writer = self.store._database._writer  # type: ignore[attr-defined] # it is there
        await self.add("first")
        with mock.patch.object(self.watch(), "_run_checkpoint", side_effect=OSError("no")):
            for number in range(3):
                await self.add(*(f"{number} {letter}" for letter in "abc"))
                writer._checkpoint()
            self.assertGreaterEqual(len(writer._unkept), 9)

    def copy_first_page(self) -> None:
        """Copy the newest first page from the log into the main file, and find no space for the
        other pages: so a checkpoint ends on a full disk.

        A log has a header of 32 bytes, and before each page one of 24 bytes, which begins with the
        number of the page (https://sqlite.org/fileformat2.html#walformat).
        """
        log = self.log.read_bytes()
        size = int.from_bytes(log[8:12], "big")
        frames = [log[at : at + 24 + size] for at in range(32, len(log), 24 + size)]
        pages = [each[24:] for each in frames if int.from_bytes(each[:4], "big") == 1]
        with self.file.open("r+b") as file:
            file.write(pages[-1])
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    async def test_disk_that_is_full_during_a_checkpoint(self) -> None:
        """The main file makes no sense without the log then, which is not damage."""
        await self.add("first")
        self.checkpoint()
        await self.add(*("x" * 3000 + str(number) for number in range(20)))
        watch = self.watch()
        patch = self.patch(watch, "_run_checkpoint", self.copy_first_page)
        for _ in range(2):
            self.assertFalse(watch.checkpoint())
            self.assertEqual(await self.add_if_possible(f"meanwhile {_}"), 0)
        self.assertNotIn("is damaged", self.logged())
        patch.restore()
        self.assertTrue(watch.checkpoint())
        self.assertEqual(await self.add_if_possible("last"), 0)
        self.assertLessEqual(self.acknowledged, self.after_a_crash())

    async def test_main_file_is_written_over(self) -> None:
        await self.add("a")
        self.checkpoint()
        before = self.file.read_bytes()
        with self.file.open("r+b") as file:
            file.seek(4096)
            file.write(os.urandom(60_000))
        self.assertEqual(await self.add_if_possible("b", "c"), 2)
        self.assertIn("is damaged", self.logged())
        self.patch(files, "CHECKPOINT_AFTER", 0.0)
        with self.file.open("r+b") as file:
            file.write(before)
        await self.add("d")
        self.assertLessEqual(self.acknowledged, self.after_a_crash())

    async def test_main_file_is_cut_short(self) -> None:
        await self.add("a")
        self.checkpoint()
        os.truncate(self.file, 8192)
        self.assertEqual(await self.add_if_possible("b", "c"), 2)
        self.assertIn("is damaged", self.logged())

    async def test_damage_without_a_new_modification_time_is_found(self) -> None:
        """The disk itself may damage a file."""
        await self.add("a")
        self.checkpoint()
        times = self.file.stat()
        with self.file.open("r+b") as file:
            file.seek(4096)
            file.write(os.urandom(60_000))
        os.utime(self.file, ns=(times.st_atime_ns, times.st_mtime_ns))
        await self.add_if_possible("b")
        self.watch().checkpoint()
        self.assertEqual(await self.add_if_possible("c"), 1)

    async def test_others_may_empty_the_log(self) -> None:
        """Tools that copy databases do so."""
        await self.add("a")
        with closing(sqlite3.connect(self.file)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.assertEqual(self.log.stat().st_size, 0)
        await self.add("b")
        self.assertEqual(self.after_a_crash(), {"a", "b"})


class OtherSystemsTests(TestCase):
    async def test_system_without_o_path(self) -> None:
        """macOS has none."""
        if hasattr(os, "O_PATH"):
            self.addCleanup(setattr, os, "O_PATH", os.O_PATH)
            del os.O_PATH
        url = file_database(self)
        store = threaded_store(self, url)
        await store.add_ping(Ping("a", "http://site.example/", 1.0), 60)
        os.unlink(url.removeprefix("sqlite:///"))
        await self.assertFailure(store.count_pings(), Unavailable)


class QuietTests(TestCase):
    async def test_without_commits_there_are_no_checkpoints(self) -> None:
        store = threaded_store(self)
        await store.drop_check("http://feeds.example/", 0)  # so that the node is registered
        found = files_of(store._database._engine)  # type: ignore[attr-defined] # it is there
        assert found is not None
        while found.checkpoint_in is not None:
            await deferLater(IReactorTime(reactor), 0.01)
        await store.count_pings()
        self.assertIsNone(found.checkpoint_in)
