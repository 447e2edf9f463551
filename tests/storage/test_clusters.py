"""Brokers that do not belong together are found on one database."""

from __future__ import annotations

from sqlalchemy import Connection, text
from twisted.internet import reactor
from twisted.internet.interfaces import IReactorFromThreads, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase, TestCase

from rsscloud_broker.storage import Pulse, UnfitDatabase, clusters, examine, open_database
from rsscloud_broker.storage.engine import open_engine
from tests.postgresql import borrowed_database
from tests.storage.databases import memory_database, threaded_store

OURS, THEIRS = "https://broker.example", "https://other.example"


class NameTests(SynchronousTestCase):
    def test_names(self) -> None:
        for url in (OURS, "http://192.0.2.7:5337", "https://broker.example/path"):
            self.assertEqual(clusters.name_of(url), url)

    def test_brokers_of_one_machine_have_no_name(self) -> None:
        for url in (None, "", "http://localhost:5337", "http://127.0.0.1", "http://[::1]:80"):
            self.assertEqual(clusters.name_of(url), "")

    def test_sqlite(self) -> None:
        with memory_database() as conn:
            self.assertEqual(clusters.others(conn, OURS), [])


class ClusterTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.url = self.enterContext(borrowed_database())

    def joined(self, name: str) -> Connection:
        """A connection of a node."""
        engine = open_engine(self.url)
        self.addCleanup(engine.dispose)
        conn = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        self.addCleanup(conn.close)
        clusters.join(conn, name)
        return conn

    def others(self, name: str) -> list[str]:
        with open_database(self.url, writes=False) as conn:
            return clusters.others(conn, name)

    def test_nodes_of_one_cluster(self) -> None:
        for _ in range(2):
            self.joined(OURS)
        self.assertEqual(self.others(OURS), [])
        examine(self.url, public_url=OURS)

    def test_nodes_of_two_clusters(self) -> None:
        first = self.joined(OURS)
        self.joined(OURS)
        self.assertEqual(self.others(THEIRS), [OURS])
        second = self.joined(THEIRS)
        self.assertEqual(clusters.others(second, THEIRS), [OURS])
        self.assertEqual(clusters.others(first, OURS), [THEIRS])
        self.assertEqual(self.others(""), [])
        examine(self.url)  # a broker without a public URL of its own

    def test_other_databases_of_the_server(self) -> None:
        with borrowed_database() as url, open_database(url, writes=False) as conn:
            self.joined(OURS)
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
        self.assertIn(f"brokers with another public_url work on it: {OURS}. That of", said)
        self.assertIn(f"this broker is {THEIRS}. ", said)
        conn.close()
        conn.engine.dispose()
        examine(self.url, public_url=THEIRS)  # nobody works on it any more


class PulseTests(TestCase):
    """Two brokers that start at the same moment do not see each other before they start."""

    async def test_another_cluster_is_logged(self) -> None:
        url = self.enterContext(borrowed_database())
        with capturedLogs() as logs:
            for name in (OURS, OURS, THEIRS):
                store = threaded_store(self, url)
                pulse = Pulse(IReactorFromThreads(reactor), url, store, lambda event: None, name)
                pulse.startService()
                self.addCleanup(pulse.stopService)
            while not any("Two clusters" in str(formatEvent(event)) for event in logs):
                await deferLater(IReactorTime(reactor), 0.01)
        said = [str(formatEvent(event)) for event in logs]
        self.assertTrue(any("Two clusters use one database: brokers with" in each for each in said))
