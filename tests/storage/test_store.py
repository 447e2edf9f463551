"""Stores on SQLite pass the contract, with and without threads; how they start and stop."""

from __future__ import annotations

from typing import Any
from weakref import ref

from attrs import evolve
from sqlalchemy import text
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase, TestCase

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.model import Content, FetchResult, Ping
from rsscloud_broker.storage import Store, open_database, pings, sweep_database
from rsscloud_broker.testing import memory_store
from tests.storage.databases import InMemory, Threaded, file_database, threaded_store
from tests.store_contract import administration, bounds, checks, deliveries, kept, shared, suspects

PING = Ping(name="A site", url="http://site.example/", received_at=1000.0)


class MemoryStoreTests(InMemory, deliveries.DeliveriesContract):
    """The store without threads, which other tests use, passes the contract."""


class ThreadedStoreTests(Threaded, deliveries.DeliveriesContract):
    """The store with threads, which the broker uses, passes the contract."""


class MemoryBoundsTests(InMemory, bounds.BoundsContract):
    """The store without threads keeps its limits."""


class ThreadedBoundsTests(Threaded, bounds.BoundsContract):
    """The store with threads keeps its limits."""


class MemoryCheckTests(InMemory, checks.ChecksContract):
    """The store without threads has checks claimed fairly."""


class MemoryKeptTests(InMemory, kept.KeptContract):
    """The store without threads keeps changes for the feeds."""


class ThreadedKeptTests(Threaded, kept.KeptContract):
    """The store with threads keeps changes for the feeds."""


class SharedWorkTests(InMemory, shared.SharedWorkContract):
    """The store has one node do a job for all."""


class SuspectTests(suspects.SuspectsContract):
    """The store knows what may have ended a process."""

    def make_database(self) -> str:
        return file_database(self)


class MemoryAdministrationTests(InMemory, administration.AdministrationContract):
    """The store without threads does what administrators ask."""


class ThreadedAdministrationTests(Threaded, administration.AdministrationContract):
    """The store with threads does what administrators ask."""


class MemoryStoreOfItsOwnTests(SynchronousTestCase):
    def test_starting_it_again_keeps_its_data(self) -> None:
        store = memory_store()
        self.successResultOf(store.add_ping(PING, 60))
        store.startService()
        self.assertEqual(self.successResultOf(store.count_pings()), 1)
        self.successResultOf(store.stopService())
        self.assertFalse(store.running)


class LifeTests(TestCase):
    async def test_queued_operations_are_stored_before_the_store_stops(self) -> None:
        url = file_database(self)
        store = threaded_store(self, url)
        added = [store.add_ping(evolve(PING, name=str(number)), 60) for number in range(50)]
        reading = store.count_pings()
        await store.stopService()
        self.assertTrue(all(one.called for one in added))
        self.assertTrue(reading.called)
        self.assertEqual(await threaded_store(self, url).count_pings(), 50)

    async def test_is_unavailable_before_start_and_after_stop(self) -> None:
        store = threaded_store(self)
        await store.stopService()
        await store.stopService()
        never_started = Store(IReactorFromThreads(reactor), file_database(self))
        for idle in (store, never_started):
            await self.assertFailure(idle.add_ping(PING, 60), Unavailable)
            await self.assertFailure(idle.count_pings(), Unavailable)
            self.assertEqual(idle.writes_waiting(), 0)

    async def test_fetched_content_does_not_stay_in_memory(self) -> None:
        """The writer keeps operations for a second, but not a content that can be fetched again."""
        store = threaded_store(self)
        content = Content(b"x" * 1000)
        reading = FetchResult("http://feeds.example/", content.digest, 1000, 1000.0, content)
        held = ref(content)
        await store.record_fetch(reading, None)
        del content, reading
        await store.drop_check("http://feeds.example/", 0)  # so that the writer has gone on
        self.assertIsNone(held())

    async def test_cancelled_caller_disturbs_nobody(self) -> None:
        store = threaded_store(self)
        cancelled = store.add_ping(PING, 60)
        cancelled.cancel()
        cancelled.addErrback(lambda _failure: None)
        self.assertTrue((await store.add_ping(PING, 60)).repeat)


class OtherProcessTests(TestCase):
    async def test_what_another_process_writes_is_seen_at_once(self) -> None:
        url = file_database(self)
        store = threaded_store(self, url)
        self.assertEqual(await store.count_pings(), 0)
        with open_database(url) as other:  # by a connection that is not the store's
            pings.add_pings(other, [pings.AskedPing(PING, 60)])
        self.assertEqual(await store.count_pings(), 1)

    async def test_commands_work_beside_a_running_store(self) -> None:
        url = file_database(self)
        store = threaded_store(self, url)
        with open_database(url, writes=False) as conn:
            await store.add_ping(PING, 60)  # a reader does not block the writer
            self.assertIsNone(conn.execute(text("SELECT 1 WHERE 1 = 0")).first())
        self.assertEqual(sweep_database(url, 0, 0).topics, 0)
        self.assertEqual(await store.count_pings(), 1)


class UnavailableTests(TestCase):
    async def assert_unavailable(self, operation: Deferred[Any], reason: str) -> None:
        error: Any = await self.assertFailure(operation, Unavailable)
        self.assertIn(reason, str(error))
        self.assertIn("Look for a full disk", str(error))

    async def test_locked_then_released(self) -> None:
        url = file_database(self)
        store = threaded_store(self, f"{url}?timeout=0.05")
        with open_database(url):
            await self.assert_unavailable(store.add_ping(PING, 60), "database is locked")
            self.assertEqual(await store.count_pings(), 0)
        self.assertFalse((await store.add_ping(PING, 60)).repeat)

    async def test_read_only(self) -> None:
        url = file_database(self).replace("sqlite:///", "sqlite:///file:")
        store = threaded_store(self, f"{url}?mode=ro&uri=true")
        await self.assert_unavailable(store.add_ping(PING, 60), "readonly database")
        self.assertEqual(await store.count_pings(), 0)

    async def test_no_database(self) -> None:
        path = self.mktemp()
        FilePath(path).setContent(b"This is a letter, and nothing else. " * 100)
        for place, reason in (
            ("/nowhere/to/be/found.db", "unable to open database file"),
            (path, "file is not a database"),
        ):
            store = threaded_store(self, f"sqlite:///{place}")
            await self.assert_unavailable(store.add_ping(PING, 60), reason)
            await self.assert_unavailable(store.count_pings(), reason)

    def test_command(self) -> None:
        url = file_database(self)
        with open_database(url):
            error = self.assertRaises(Unavailable, open_database(f"{url}?timeout=0.05").__enter__)
        self.assertIn("database is locked", str(error))
