"""``backup`` beside a broker that is pinged, and a broker that starts with what it restored."""

from __future__ import annotations

import contextlib  # not from it: trial looks for a list called suppress in modules
import json
from http.client import HTTPException
from itertools import count
from threading import Thread
from xmlrpc.client import Error, ServerProxy

from tests.e2e.fixture import Broker, EndToEndTestCase, run, until
from tests.e2e.servers import HttpPostReceiver


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


class BackupTests(EndToEndTestCase):
    def test_all_that_was_acknowledged_is_restored(self) -> None:
        broker, origin = self.running_broker(), self.origin()
        topic, receiver = origin.feed(), self.served(HttpPostReceiver())
        self.subscribed(broker, receiver, topic)
        file = self.directory() / "backup"
        pingers = Pingers(broker, "A")
        try:
            until(lambda: len(pingers.acknowledged) >= 100, "100 pings")
            acknowledged = set(pingers.acknowledged)
            done = run("rsscloud-broker", "backup", "--data", broker.data, file)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        finally:
            broker.kill()
            pingers.join()

        other = self.own_broker()
        done = run("rsscloud-broker", "restore", "--data", other.data, file)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        before, after = (
            json.loads(run("rsscloud-broker", "export", "--data", each.data).stdout)["topics"]
            for each in (broker, other)
        )
        self.assertEqual(
            [each["subscriptions"] for each in after if each["url"] == topic],
            [each["subscriptions"] for each in before if each["url"] == topic],
        )
        other.start()
        until(
            lambda: acknowledged <= {record["name"] for record in other.change_list()},
            "all acknowledged pings in changes.xml",
        )
        receiver.heard.clear()
        origin.change(topic)
        other.ping(topic)
        self.assert_told(receiver, topic)
