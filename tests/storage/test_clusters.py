"""Brokers that do not belong together are found on one database."""

from __future__ import annotations

from sqlalchemy import Connection, text
from twisted.internet import reactor
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase, TestCase

from rsscloud_broker.counters import Counters
from rsscloud_broker.storage import Pulse, UnfitDatabase, clusters, examine, migrate, open_database
from tests.postgresql import empty_database
from tests.storage.databases import engine_for, memory_database, threaded_store, until

OURS, THEIRS = "https://broker.example", "https://other.example"


class NameTests(SynchronousTestCase):
    def test_names(self) -> None:
        for url in (OURS, "http://192.0.2.7:5337", "https://broker.example/path"):
            self.assertEqual(clusters.name_of(url), url)

    def test_brokers_of_one_machine_have_one_name(self) -> None:
        for url in (None, "", "http://localhost:5337", "http://127.0.0.1", "http://[::1]:80"):
            self.assertEqual(clusters.name_of(url), clusters.name_of(None))

    def test_sqlite(self) -> None:
        with memory_database() as conn:
            self.assertEqual(clusters.others(conn, OURS), [])


class ClusterTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.url = empty_database()  # where no lock of an earlier test can be left

    def joined(self, name: str) -> Connection:
        """A connection of a node."""
        engine = engine_for(self, self.url)
        conn = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        self.addCleanup(conn.close)
        clusters.join(conn, name)
        return conn

    def others(self, name: str) -> list[str]:
        with open_database(self.url, writes=False) as conn:
            return clusters.others(conn, name)

    def test_nodes_of_two_clusters(self) -> None:
        first, _ = self.joined(OURS), self.joined(OURS)
        self.assertEqual(self.others(OURS), [])
        examine(self.url, public_url=OURS)
        self.assertEqual(self.others(THEIRS), [OURS])
        second = self.joined(THEIRS)
        self.assertEqual(clusters.others(second, THEIRS), [OURS])
        self.assertEqual(clusters.others(first, OURS), [THEIRS])

    def test_brokers_of_a_laptop(self) -> None:
        """They work with each other, and with nobody else."""
        name = clusters.name_of("http://localhost:5337")
        self.joined(name)
        examine(self.url, public_url="http://localhost:5338")
        self.assertRaises(UnfitDatabase, examine, self.url, public_url=OURS)
        self.joined(OURS)
        said = str(self.assertRaises(UnfitDatabase, examine, self.url))
        self.assertIn(f"work on it: {OURS}. This broker has (this machine). All", said)

    def test_other_databases_of_the_server(self) -> None:
        self.joined(OURS)
        with open_database(empty_database(), writes=False) as conn:
            self.assertEqual(clusters.others(conn, THEIRS), [])

    def test_locks_of_other_programs(self) -> None:
        conn = self.joined(OURS)
        conn.execute(text("SELECT pg_advisory_lock(7), pg_advisory_lock(7, 8)"))
        self.assertEqual(self.others(OURS), [])

    def test_long_name(self) -> None:
        long = f"https://{'long' * 20}.example"
        self.joined(long)
        (found,) = self.others(OURS)
        self.assertTrue(long.startswith(found), found)
        self.assertEqual(self.others(long), [])

    def test_sentence(self) -> None:
        conn = self.joined(OURS)
        said = str(self.assertRaises(UnfitDatabase, examine, self.url, public_url=THEIRS))
        self.assertIn(f"brokers with another public_url work on it: {OURS}. This broker", said)
        self.assertIn(f"has {THEIRS}. ", said)
        conn.close()
        conn.engine.dispose()
        while self.others(THEIRS):  # the server notices a moment later
            pass
        examine(self.url, public_url=THEIRS)


class PulseTests(TestCase):
    """Two brokers that start at the same moment do not see each other before they start."""

    async def test_another_cluster_is_logged(self) -> None:
        url = empty_database()
        migrate(url)
        with capturedLogs() as logs:
            for name in (OURS, OURS, THEIRS):
                store = threaded_store(self, url)
                pulse = Pulse(
                    IReactorFromThreads(reactor), url, store, lambda event: None, Counters(), name
                )
                pulse.startService()
                self.addCleanup(pulse.stopService)
            await until(lambda: any("Two clusters" in str(formatEvent(event)) for event in logs))
        said = [str(formatEvent(event)) for event in logs]
        self.assertTrue(any("Two clusters use one database: brokers with" in each for each in said))
