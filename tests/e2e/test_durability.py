"""What was acknowledged outlives the process, however that ends."""

from __future__ import annotations

import contextlib  # not from it: trial looks for a list called suppress in modules
from collections import Counter
from collections.abc import Callable
from http.client import HTTPException
from itertools import count
from threading import Thread
from xmlrpc.client import Error, ServerProxy

from tests.e2e.fixture import WITH_COURIERS, Broker, EndToEndTestCase, until
from tests.e2e.servers import RECEIVERS
from tests.e2e.test_every_way import xmlrpc

HOUR = 3600


class Pingers:
    """Ping a broker from several threads until it is gone.

    :ivar acknowledged: the names of the pings that it has thanked for.
    """

    def __init__(self, broker: Broker, label: str) -> None:
        self.acknowledged: list[str] = []
        self._url = f"{broker.url}/RPC2"
        self._threads = [Thread(target=self._ping, args=(f"{label}{one}",)) for one in range(6)]
        for thread in self._threads:
            thread.start()

    def _ping(self, label: str) -> None:
        with contextlib.suppress(OSError, Error, HTTPException), ServerProxy(self._url) as proxy:
            for number in count():
                name = f"{label}-{number}"
                proxy.weblogUpdates.ping(name, f"http://site.example/{name}")
                self.acknowledged.append(name)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


class KilledWhilePingedTests(EndToEndTestCase):
    def test_every_acknowledged_ping_is_listed_and_archived_once(self) -> None:
        broker = self.own_broker(WITH_COURIERS)
        broker.by_command = True
        acknowledged = {
            *self.pinged_until_killed(broker, "A"),
            *self.pinged_until_killed(broker, "B"),
        }
        broker.start()
        until(
            lambda: acknowledged <= {record["name"] for record in broker.change_list()},
            "all acknowledged pings in changes.xml",
        )
        records = broker.change_list()
        listed = Counter(record["name"] for record in records)
        self.assertEqual(set(listed.values()), {1})
        broker.stop()

        broker.start(ahead=HOUR)
        hours = {record["ts"][:13] for record in records}
        until(lambda: acknowledged <= broker.archived(hours).keys(), "the archives")
        self.assertEqual(broker.archived(hours), listed)

    def pinged_until_killed(self, broker: Broker, label: str) -> list[str]:
        """Start a broker and kill it while it is pinged; what it acknowledged."""
        broker.start()
        pingers = Pingers(broker, label)
        try:
            until(lambda: len(pingers.acknowledged) >= 150, "150 pings")
        finally:
            broker.kill()
            pingers.join()
        return pingers.acknowledged


class KilledBeforeNotificationTests(EndToEndTestCase):
    """The ping is acknowledged, the broker is killed; the next one notifies."""

    def killed_after(self, ping: Callable[[Broker, str], bool], *, readable: bool) -> None:
        """
        :param readable: whether the feed answers before the broker is killed.
        """
        broker, origin = self.own_broker(), self.origin()
        broker.start()
        feed = origin.feed()
        receivers = [self.served(make()) for make in RECEIVERS]
        for receiver in receivers:
            self.subscribed(broker, receiver, feed)
        origin.change(feed)
        for receiver in receivers:
            receiver.open.clear()
        if not readable:
            origin.open.clear()
        self.assertTrue(ping(broker, feed))
        broker.kill()
        for server in (origin, *receivers):
            server.open.set()
        self.assertEqual([receiver.heard for receiver in receivers], [[], [], []])
        broker.start()
        for receiver in receivers:
            self.assert_told(receiver, feed)

    def test_rsscloud(self) -> None:
        self.killed_after(lambda broker, feed: "Thanks" in broker.ping(feed).text, readable=True)

    def test_weblog_updates_before_the_feed_was_read(self) -> None:
        self.killed_after(
            lambda broker, feed: xmlrpc(broker, "weblogUpdates.extendedPing", "A", feed, feed),
            readable=False,
        )
