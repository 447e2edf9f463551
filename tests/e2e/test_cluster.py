"""Several brokers, one PostgreSQL: they share the work, and the death of one loses nothing."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

from sqlalchemy import Table, func, select

from rsscloud_broker.delivery.walk import BATCH_SIZE, MAX_UNSAVED
from rsscloud_broker.storage import open_database
from rsscloud_broker.storage.schema import fanout, node, pending, subscription
from tests.e2e.every_protocol import ManySubscribers
from tests.e2e.fixture import Broker, EndToEndTestCase, until
from tests.postgresql import empty_database

#: So few are under way that all nodes are still busy when one is killed.
CONFIGURATION = 'database = "{}"\n[sinks.distribution]\nin_flight = {}\nslice_size = 100\n'

#: Subscribers of the feed: they make several parts of a fan-out.
MANY = 1000

#: Subscribers are spread over so many addresses.
HOSTS = 12

#: How many notifications may come twice for each node that was killed or stopped: those under way,
#: and those whose outcomes were not saved yet.
TWICE = 20 * 3 // 2 + MAX_UNSAVED + BATCH_SIZE


class Node(Broker):
    """One of several brokers on one database."""

    def __init__(self, directory: Path, url: str, in_flight: int = 20) -> None:
        super().__init__(directory, CONFIGURATION.format(url, in_flight))
        self._url = url

    @property
    def database(self) -> str:
        return self._url

    def signal(self, number: signal.Signals) -> None:
        """Stop the process for a while, or let it go on."""
        self._signal(number)


class ClusterTests(EndToEndTestCase):
    """Two brokers on one database, and many subscribers of one feed."""

    def setUp(self) -> None:
        super().setUp()
        self.url = empty_database()
        self.nodes = [self.owned(Node(self.directory(), self.url)) for _ in range(2)]
        self.heard: Counter[str] = Counter()
        servers = self.served(ManySubscribers())
        hosts = [servers.listen(f"127.0.1.{number}", self.hear) for number in range(1, HOSTS + 1)]
        callbacks = [f"{hosts[number % HOSTS]}/http-post/{number}" for number in range(MANY)]
        self.publisher = self.origin()
        self.feed = self.publisher.feed("/many.xml")
        self.nodes[0].subscribe_all(self.feed, callbacks)
        for one in self.nodes:
            one.start()
        until(lambda: all("2 nodes work" in one.log for one in self.nodes), "both to know of both")

    def hear(self, callback: str, topic: str, body: bytes) -> None:
        self.heard[callback] += 1

    def until_told(self, count: int) -> None:
        until(lambda: len(self.heard) >= count, f"{count} subscribers to be notified")

    def rows(self, *tables: Table) -> int:
        with open_database(self.url, writes=False) as connection:
            counts = (select(func.count()).select_from(table) for table in tables)
            return sum(connection.execute(count).scalar_one() for count in counts)

    def test_node_that_is_killed_loses_nothing(self) -> None:
        killed = self.nodes[0]
        self.heard.clear()
        self.publisher.change(self.feed)
        self.assertEqual(killed.ping(self.feed).status, 200)
        self.until_told(MANY // 5)
        killed.kill()
        self.until_told(MANY)
        until(lambda: self.rows(fanout, pending) == 0, "all outcomes to be saved")
        twice = sum(count - 1 for count in self.heard.values())
        self.assertLessEqual(twice, TWICE)
        killed.start()
        until(lambda: self.rows(node) == len(self.nodes), "all nodes to be there")
        with open_database(self.url, writes=False) as connection:
            some = select(func.count()).where(subscription.c.consecutive_errors > 0)
            self.assertEqual(connection.execute(some).scalar_one(), 0)
