"""Several brokers, one PostgreSQL: they share the work, and the death of one loses nothing."""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from threading import Condition
from urllib.parse import urlsplit
from xmlrpc.client import dumps

from sqlalchemy import func, select, text

from rsscloud_broker.delivery.walk import BATCH_SIZE, MAX_UNSAVED
from rsscloud_broker.storage import open_database
from rsscloud_broker.storage.schema import fanout, node, pending, subscription, topic
from tests.e2e.every_protocol import NAMED
from tests.e2e.fixture import Broker, EndToEndTestCase, request, run_here, until
from tests.e2e.many import ManyServers, Subscriber
from tests.e2e.publishing import subscribe_all
from tests.e2e.servers import Origin
from tests.postgresql import empty_database

#: So few are under way that all nodes are still busy when one is killed.
CONFIGURATION = 'database = "{}"\n[sinks.distribution]\nin_flight = {}\nslice_size = 100\n'

PING = NAMED["weblogUpdates.extendedPing"]

#: Subscribers of the feed: they make several parts of a fan-out.
MANY = 2500

#: So many pings of one feed come at once, spread over the nodes.
PINGS = 120

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

    def delivered(self) -> int:
        """How many notifications it has delivered."""
        metrics = request(f"{self.url}/metrics").text
        delivered = r'^rsscloud_notifications_total\{.*"delivered".*\} (\S+)'
        found = re.findall(delivered, metrics, re.MULTILINE)
        return int(sum(map(float, found)))

    def signal(self, number: signal.Signals) -> None:
        """Stop the process for a while, or let it go on."""
        self._signal(number)


class ClusterTests(EndToEndTestCase):
    """Brokers on one database, and many subscribers of one feed."""

    def setUp(self) -> None:
        super().setUp()
        self.url = empty_database()
        self.options, self.in_flight, self.pause = "", 20, 0.0
        self.nodes: list[Node] = []
        self.heard: Counter[str] = Counter()
        self.changed = Condition()
        self.servers = ManyServers()
        self.servers.start()
        self.addCleanup(self.servers.stop)
        hosts = [f"127.0.1.{number}" for number in range(1, HOSTS + 1)]
        for host in hosts:
            self.servers.listen(host, lambda: Subscriber(self.hear))
        self.callbacks = [
            f"{self.servers.urls[hosts[number % HOSTS]]}/{number}" for number in range(MANY)
        ]
        self.publisher = Origin()
        self.publisher.start()
        self.addCleanup(self.publisher.stop)
        self.feed = self.publisher.feed("/many.xml")

    def hear(self, callback: str, topic: str) -> int:
        time.sleep(self.pause)  # meanwhile no other subscriber answers either
        with self.changed:
            self.heard[callback] += 1
        return 200

    def start(self, count: int) -> None:
        """Start brokers, each with a data directory of its own."""
        for _ in range(count):
            one = Node(self.directory(), self.url + self.options, self.in_flight)
            self.nodes.append(one)
            if len(self.nodes) == 1:
                subscribe_all(Node(self.directory(), self.url), self.feed, self.callbacks)
            self.addCleanup(one.end)
            one.start()
            self._marks[one] = 0
        wanted = f"{len(self.nodes)} nodes work"
        if len(self.nodes) > 1:
            until(lambda: all(wanted in one.log for one in self.nodes), "all to know of all")

    def publish(self, at: Node) -> None:
        """Change the feed, and ping one of the brokers."""
        self.heard.clear()
        self.publisher.change(self.feed)
        self.assertEqual(at.ping(self.feed).status, 200)

    def until_told(self, count: int = MANY) -> None:
        until(lambda: len(self.heard) >= count, f"{count} subscribers to be notified")

    def until_done(self) -> None:
        """Wait until no notification is left in the database."""
        until(lambda: self.rows(fanout) + self.rows(pending) == 0, "all outcomes to be saved")

    def rows(self, table: object) -> int:
        with open_database(self.url, writes=False) as connection:
            return connection.execute(select(func.count()).select_from(table)).scalar_one()  # type: ignore[arg-type]

    def errors(self) -> int:
        with open_database(self.url, writes=False) as connection:
            some = select(func.count()).where(subscription.c.consecutive_errors > 0)
            return connection.execute(some).scalar_one()

    def twice(self) -> int:
        return sum(count - 1 for count in self.heard.values())

    def test_node_that_is_killed_loses_nothing(self) -> None:
        del self.callbacks[1000:]
        self.start(2)
        killed = self.nodes[0]
        self.publish(killed)
        self.until_told(200)
        killed.kill()
        self.until_told(1000)
        self.until_done()
        self.assertLessEqual(self.twice(), TWICE)
        killed.start()
        until(lambda: self.rows(node) == len(self.nodes), "all nodes to be there")
        self.assertEqual(self.errors(), 0)

    def test_node_that_is_asked_to_stop_hands_its_work_over(self) -> None:
        self.pause = 0.002  # so that the fan-out lasts for some seconds
        self.start(2)
        stopped = self.nodes[0]
        self.publish(stopped)
        self.until_told(MANY // 5)
        self.assertTrue(self.holds_fanouts(stopped))
        stopped.terminate()
        until(lambda: not self.holds_fanouts(stopped), "its fan-outs to be free")
        stopped.ended()
        self.assertEqual(self.rows(node), 1)  # nobody waits until it is taken for dead
        self.until_told()
        self.until_done()
        self.assertEqual((self.twice(), self.errors()), (0, 0))
        self.assertNotIn("Not waiting any longer", stopped.log)

    def claimants(self) -> set[int]:
        """The nodes that have claimed parts of fan-outs."""
        with open_database(self.url, writes=False) as connection:
            claimed = select(fanout.c.node_id).where(fanout.c.node_id.is_not(None))
            return set(connection.execute(claimed).scalars())

    def holds_fanouts(self, one: Node) -> bool:
        """Whether a node has claimed parts of fan-outs."""
        with open_database(self.url, writes=False) as connection:
            names = select(node.c.name).join(fanout, fanout.c.node_id == node.c.id)
            holders = connection.execute(names).scalars()
            return any(name.endswith(f" {one.pid}") for name in holders)

    def both_take_part(self) -> None:
        """Publish at one node, and wait until the other takes part and all are notified."""
        self.publish(self.nodes[0])
        until(lambda: len(self.claimants()) == 2, "the other node to take part")
        self.until_told()
        self.until_done()
        self.assertEqual(self.twice(), 0)

    def test_other_node_takes_part_although_all_hints_are_lost(self) -> None:
        with open_database(self.url) as connection:
            connection.execute(text("CREATE SCHEMA deaf"))
            connection.execute(
                text(
                    "CREATE FUNCTION deaf.pg_notify(text, text) RETURNS text LANGUAGE sql "
                    "AS 'SELECT $1'"
                )
            )
        self.options = "&options=-c%20search_path%3Ddeaf,pg_catalog,public"
        self.pause = 0.002  # so that the fan-out lasts for some seconds
        self.start(2)
        for _ in range(2):
            self.both_take_part()

    def ping_at(self, one: Node, number: int, count: int) -> None:
        """Ping a node by weblogUpdates, again and again over one connection."""
        connection = HTTPConnection("127.0.0.1", urlsplit(one.url).port or 0, timeout=60)
        for each in range(count):
            call = dumps((f"A site {number}.{each}", self.feed), "weblogUpdates.ping")
            connection.request("POST", "/RPC2", call, {"Content-Type": "text/xml"})
            self.assertIn(b"Thanks", connection.getresponse().read())
        connection.close()

    def test_pings_of_one_topic_at_all_nodes_share_fetches(self) -> None:
        del self.callbacks[20:]
        self.start(3)
        self.publish(self.nodes[0])
        self.until_told(len(self.callbacks))
        self.heard.clear()
        before = self.publisher.requests.total()
        self.publisher.open.clear()
        self.publisher.change(self.feed)
        with ThreadPoolExecutor(12) as threads:
            pinging = [
                threads.submit(self.ping_at, one, number, PINGS // 6)
                for number, one in enumerate(self.nodes * 2)
            ]
            for each in pinging:
                each.result()
            # These wait for the answer of the node that has claimed the topic.
            asking = [threads.submit(one.ping, self.feed) for one in self.nodes * 2]
            until(lambda: self.publisher.requests.total() > before, "the feed to be fetched")
            self.publisher.open.set()
            self.assertEqual({each.result().status for each in asking}, {200})
        self.until_told(len(self.callbacks))
        self.until_done()
        fetches = self.publisher.requests.total() - before
        self.assertLessEqual(fetches, 2 * len(self.nodes))
        self.assertEqual(self.waiting_checks(), 0)

    def waiting_checks(self) -> int:
        with open_database(self.url, writes=False) as connection:
            waiting = select(func.count()).where(topic.c.check_requested_at.is_not(None))
            return connection.execute(waiting).scalar_one()


class ClocksTests(EndToEndTestCase):
    """The clocks of three computers are ten minutes apart."""

    def test_lists_have_all_pings(self) -> None:
        url = empty_database()
        nodes: list[Node] = []
        for ahead in (0.0, 600.0, -600.0):
            one = Node(self.directory(), url)
            self._marks[one] = 0
            self.addCleanup(one.end)
            one.start(ahead)
            nodes.append(one)
        wanted = Counter[str]()
        for number in range(15):
            name = f"ping {number}"
            reply = PING("http://unknown.example/", name).send(nodes[number % 3].port)
            assert reply is not None
            self.assertTrue(reply.accepted, reply)
            wanted[name] += 1
        for one in nodes:
            until(lambda: self.listed(one) == wanted, "all pings in shortChanges.xml")  # noqa: B023
            ages = [int(each["when"]) for each in one.change_list("/shortChanges.xml")]
            self.assertLess(max(ages), 120)
        self.assertNotIn("The clock of this computer", nodes[0].log)
        for one, way in zip(nodes[1:], ("ahead of", "behind"), strict=True):
            said = rf"The clock of this computer is (59|60)\d seconds {way} that of the database"
            self.assertEqual(len(re.findall(said, one.log)), 1)
            self.assertRegex(request(f"{one.url}/health/ready").text, said)
        shown = run_here("nodes", "--config", nodes[0].configuration).stdout
        self.assertEqual(len(re.findall(r"clock +\d+ seconds", shown)), 2, shown)

    def listed(self, node: Node) -> Counter[str]:
        return Counter(each["name"] for each in node.change_list("/shortChanges.xml"))
