"""Files of an SQLite database that somebody removes or replaces are noticed within a second."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import TestCase

from rsscloud_broker.database import files
from rsscloud_broker.database.sqlite import files_of
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.model import Ping
from rsscloud_broker.storage import Store
from tests.storage.databases import file_database, threaded_store, until

# A reactor is a module; what it provides is known only at run time.
running: Any = reactor


class FilesTests(TestCase):
    """Each test does something to the files of a running store."""

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
        """The object that looks after the files of the store."""
        found = files_of(self.store._database._engine)
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

    async def until_noticed(self) -> str:
        """Wait until the store refuses pings; the reason."""
        for number in count():
            try:
                await self.add(f"meanwhile {number}")
            except Unavailable as error:
                return str(error)
        raise AssertionError

    async def test_main_file_is_removed_and_put_back(self) -> None:
        await self.add("a")
        away = self.file.with_name("away")
        self.file.rename(away)
        self.assertIn(f"{self.file} was removed or replaced", await self.until_noticed())
        self.assertIn("was removed or replaced by somebody", self.logged())
        await self.assertFailure(self.store.count_pings(), Unavailable)
        self.assertFalse(self.file.exists())
        away.rename(self.file)
        while await self.add_if_possible("b"):
            pass
        self.assertIn("is back", self.logged())
        self.assertLessEqual(self.acknowledged, self.after_a_crash())

    async def test_both_are_away_at_the_first_checkpoint(self) -> None:
        names = {path: path.with_name(f"{path.name}.away") for path in (self.file, self.log)}
        watch = self.watch()
        await self.add("a")
        for path, away in names.items():
            path.rename(away)
        watch.is_changed = True
        watch._opened.pop(watch._log_path, None)
        watch._checkpoint()
        for path, away in names.items():
            away.rename(path)
        watch.look_after()
        watch.check()

    async def test_log_is_removed(self) -> None:
        """What was in it is in the main file as soon as that is noticed."""
        await self.add("a", "b")
        await until(lambda: not self.watch().is_changed)
        await self.add("c")
        self.log.unlink()
        self.assertIn("-wal was removed", await self.until_noticed())
        self.assertLessEqual({"a", "b", "c"}, self.after_a_crash())
        self.assertLessEqual(self.acknowledged, self.after_a_crash())
        await self.assertFailure(self.store.count_pings(), Unavailable)

    async def test_commits_are_in_the_main_file_within_a_second(self) -> None:
        await self.add("a")
        await until(lambda: not self.watch().is_changed)
        self.log = self.log.with_name("none")
        self.assertEqual(self.after_a_crash(), {"a"})

    async def test_under_load_the_files_are_looked_at_too(self) -> None:
        """The writer hardly waits for work then."""
        await self.add("first")
        self.file.unlink()
        adding = [Deferred.fromCoroutine(self.until_noticed()) for _ in range(20)]
        await gatherResults(adding)

    async def test_checkpoint_beside_a_reader(self) -> None:
        """SQLite then copies a part of the log only, and the rest when the reader is done."""
        await self.add("first")
        with closing(sqlite3.connect(self.file)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM ping").fetchone()
            await self.add(*map(str, range(30)))
            self.watch().look_after()
            self.assertTrue(self.watch().is_changed)
            self.assertEqual(await self.add_if_possible("another"), 0)
        self.watch().look_after()
        self.assertFalse(self.watch().is_changed)
        self.assertLessEqual(self.acknowledged, self.after_a_crash())

    async def test_checkpoint_waits_for_short_reads(self) -> None:
        """Under load somebody reads at any time, and the log must not grow forever."""
        await self.add("first")
        self.patch(files, "WAIT", 20_000)
        with closing(sqlite3.connect(self.file, check_same_thread=False)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM ping").fetchone()
            await self.add("second")
            ending = running.callLater(0.05, running.callInThread, reader.rollback)
            self.addCleanup(lambda: ending.active() and ending.cancel())
            await deferToThread(self.watch().look_after)
        self.assertFalse(self.watch().is_changed)

    async def test_disk_that_is_full_during_a_checkpoint(self) -> None:
        """It is tried again, and one line says so."""
        await self.add("first")
        error = sqlite3.OperationalError("database or disk is full")
        patch = self.patch(self.watch(), "_copy_all", mock.Mock(side_effect=error))
        for _ in range(2):
            self.watch().look_after()
            self.assertTrue(self.watch().is_changed)
            self.assertEqual(await self.add_if_possible("meanwhile"), 0)
        self.assertEqual(self.logged().count("cannot be brought up to date"), 1)
        patch.restore()
        self.watch().look_after()
        self.assertFalse(self.watch().is_changed)

    async def test_others_may_empty_the_log(self) -> None:
        """Tools that copy databases do so."""
        await self.add("a")
        with closing(sqlite3.connect(self.file)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.assertEqual(self.log.stat().st_size, 0)
        await self.add("b")
        self.assertEqual(self.after_a_crash(), {"a", "b"})


class QuietTests(TestCase):
    async def test_without_commits_there_are_no_checkpoints(self) -> None:
        store = threaded_store(self)
        await store.drop_check("http://feeds.example/", 0)  # so that the node is registered
        found = files_of(store._database._engine)
        assert found is not None
        await until(lambda: not found.is_changed)
        await store.count_pings()
        self.assertFalse(found.is_changed)
