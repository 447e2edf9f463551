"""The PostgreSQL of a broker crashes, hangs, is slow, drops connections, and is replaced.

The broker answers 503 meanwhile, goes on by itself afterwards, and loses nothing that it
acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from signal import SIGCONT, SIGSTOP

from sqlalchemy import select

from rsscloud_broker.storage import open_database
from rsscloud_broker.storage.schema import ping
from tests.e2e.database_server import DatabaseServer
from tests.e2e.every_protocol import NAMED_PING, Pinger, assert_all_try_again
from tests.e2e.fixture import TIMEOUT, EndToEndTestCase, until
from tests.e2e.servers import HttpPostReceiver
from tests.e2e.slow_proxy import SlowProxy
from tests.e2e.test_cluster import Node


class DatabaseFaultsTestCase(EndToEndTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.server = DatabaseServer.make(self)

    def begin(self, url: str) -> None:
        """Start a broker with a subscriber, and begin to ping it."""
        self.node = self.owned(Node(self.directory(), url))
        self.node.start()
        self.source, self.receiver = self.origin(), self.served(HttpPostReceiver())
        self.feed = self.source.feed()
        self.subscribed(self.node, self.receiver, self.feed)
        self.pinger = Pinger(self.node)
        self.addCleanup(self.pinger.stop)
        self.pinger.until_more()

    def assert_goes_on(self) -> None:
        """Pings are taken, and subscribers are notified."""
        self.pinger.until_more()
        self.source.change(self.feed)
        until(lambda: self.node.ping(self.feed).status == 200, "a ping to be taken")
        self.assert_told(self.receiver, self.feed)

    def assert_nothing_lost(self, url: str) -> None:
        self.pinger.stop()
        self.assertEqual(self.pinger.wrong, [])
        with open_database(url, writes=False) as connection:
            stored = set(connection.execute(select(ping.c.name)).scalars())
        self.assertLessEqual(set(self.pinger.acknowledged), stored)


class ComingAndGoingTests(DatabaseFaultsTestCase):
    """One server, which has all of these faults, one after the other."""

    def test_faults_of_a_server(self) -> None:
        proxy = SlowProxy(self.server.port)
        port = proxy.start()
        self.addCleanup(proxy.stop)
        url = self.server.url("broker")
        self.begin(url.replace(str(self.server.port), str(port)))
        self.crash()
        self.assert_goes_on()
        self.lose_connections()
        self.assert_goes_on()
        self.hang()
        self.assert_goes_on()
        proxy.delay = 0.05
        self.assert_goes_on()
        proxy.delay = 0.0
        self.assert_nothing_lost(url)

    def crash(self) -> None:
        """Every front door asks to try again, and the log is not filled."""
        self.source.change(self.feed)
        self.receiver.heard.clear()
        self.server.crash()
        until(lambda: self.pinger.refused > 5, "a ping to be refused")
        before = len(self.node.log.splitlines())
        assert_all_try_again(self.node.port, self.feed)
        refused = self.pinger.refused
        until(lambda: self.pinger.refused > refused + 150, "many pings to be refused")
        said = self.node.log.splitlines()[before:]
        late = [line for line in said if "heartbeat of this node is late" in line]
        self.assertLessEqual(len(late), 1, late)
        self.assertLess(len(said), 60, said)
        self.server.start()

    def lose_connections(self) -> None:
        for _ in range(5):
            self.server.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = 'broker' AND pid != pg_backend_pid()"
            )
            self.pinger.until_more()

    def hang(self) -> None:
        """The system still answers for the server, which stands still."""
        self.server.send(SIGSTOP)
        try:
            before = self.pinger.refused
            until(lambda: self.said_503(before), "pings to be refused")
        finally:
            self.server.send(SIGCONT)

    def said_503(self, before: int) -> bool:
        reply = NAMED_PING("http://unknown.example/", "patient").ask(self.node.port, TIMEOUT)
        return reply.says_try_again and self.pinger.refused > before


class FailoverTests(DatabaseFaultsTestCase):
    """A streaming standby takes over; the URL names both servers."""

    def fail_over(self, fail: Callable[[], None]) -> None:
        standby = self.server.standby("standby")
        self.addCleanup(standby.end)
        hosts = [f"host=127.0.0.1:{server.port}" for server in (self.server, standby)]
        user = standby.url().partition("//")[2].partition("@")[0]
        parameters = "&".join([*hosts, "target_session_attrs=read-write"])
        self.begin(f"postgresql+psycopg://{user}@/broker?{parameters}")
        fail()
        standby.promote()
        self.assert_goes_on()
        self.assert_nothing_lost(standby.url("broker"))

    def test_server_that_crashed(self) -> None:
        self.fail_over(self.server.crash)

    def test_server_that_stands_still(self) -> None:
        self.fail_over(lambda: self.server.send(SIGSTOP))
