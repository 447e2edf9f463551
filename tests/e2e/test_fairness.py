"""Five callers name silent hosts as fast as they may; anyone else who pings does not notice."""

from __future__ import annotations

from asyncio import BaseTransport
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from urllib.parse import urlencode

from tests.e2e.fixture import TIMEOUT, EndToEndTestCase, until
from tests.e2e.many import Connection, ManyServers, Silent
from tests.e2e.servers import HttpPostReceiver

BAD = tuple(f"127.66.0.{number}" for number in range(1, 6))
GOOD = "127.77.0.1"
_FORM = {"content-type": "application/x-www-form-urlencoded"}


class Waiting(Silent):
    """A connection to a silent host, which is in a set while the broker waits."""

    def __init__(self, those: set[Connection]) -> None:
        self._those = those

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self._those.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._those.discard(self)


class FairnessTests(EndToEndTestCase):
    """
    :ivar waiting: where the broker waits for an answer, for 15 seconds.
    """

    #: Hosts that say nothing, URLs of each publish, and intents of each source.
    HOSTS, URLS, INTENTS = 100, 50, 30
    #: Pings of the good caller; with each tenth of them comes more trouble.
    PINGS = 100

    def setUp(self) -> None:
        super().setUp()
        self.waiting: set[Connection] = set()
        self.servers = ManyServers()
        self.servers.start()
        self.addCleanup(self.servers.stop)
        waiting = self.waiting
        self.silent = [
            self.servers.listen(f"127.0.3.{n + 1}", lambda: Waiting(waiting))
            for n in range(self.HOSTS)
        ]
        self.number = 0
        self.broker = self.own_broker()
        self.broker.start()

    def post(self, source: str, path: str, form: list[tuple[str, str]]) -> tuple[int, str]:
        """Send a form from an address; the status and the text of the answer."""
        made = HTTPConnection(
            "127.0.0.1", self.broker.port, timeout=TIMEOUT, source_address=(source, 0)
        )
        with closing(made) as connection:
            connection.request("POST", path, urlencode(form), _FORM)
            response = connection.getresponse()
            return response.status, response.read().decode()

    def somewhere(self) -> str:
        """A URL at a host that says nothing."""
        self.number += 1
        return f"{self.silent[self.number % self.HOSTS]}/{self.number}"

    def publish(self, source: str) -> int:
        urls = [("hub.url", self.somewhere()) for _ in range(self.URLS)]
        return self.post(source, "/websub", [("hub.mode", "publish"), *urls])[0]

    def request_subscription(self, source: str, topic: str) -> int:
        names = ("hub.mode", "hub.topic", "hub.callback")
        values = ("subscribe", topic, self.somewhere())
        return self.post(source, "/websub", list(zip(names, values, strict=True)))[0]

    @contextmanager
    def before_the_silent_ones(self) -> Iterator[None]:
        """Some of the silent hosts that the broker calls at the beginning, it calls to the end.

        So anyone who is answered meanwhile has waited for none of them.
        """
        before = set(self.waiting)
        yield
        self.assertTrue(before & self.waiting, "all silent hosts were given up meanwhile")

    def test_a_good_caller_does_not_notice(self) -> None:
        origin, receiver = self.origin(), self.served(HttpPostReceiver())
        topic = origin.feed()
        self.subscribed(self.broker, receiver, topic)
        pool = ThreadPoolExecutor(len(BAD))
        self.addCleanup(pool.shutdown)
        asked: list[Future[int]] = []
        for source in BAD:
            asked += [pool.submit(self.publish, source) for _ in range(5)]
            for _ in range(self.INTENTS):
                asked.append(pool.submit(self.request_subscription, source, topic))
        for one in asked:
            self.assertEqual(one.result(TIMEOUT), 202)
        until(lambda: sum(self.servers.connected.values()) > 150, "silent hosts to be called")
        for number in range(self.PINGS):
            if number % 10 == 0:
                asked += [pool.submit(self.publish, source) for source in BAD]
            origin.change(topic)
            with self.before_the_silent_ones():
                _, text = self.post(GOOD, "/rsscloud/ping", [("url", topic)])
            self.assertIn("Thanks for the ping.", text)
        self.assert_told(receiver, topic)
        with self.before_the_silent_ones():
            self.subscribed(self.broker, self.served(HttpPostReceiver()), topic)
        for one in asked:
            self.assertEqual(one.result(TIMEOUT), 202)
        self.broker.stop()
