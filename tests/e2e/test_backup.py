"""``backup`` beside a broker that is pinged, and a broker that starts with what it restored."""

from __future__ import annotations

import json

from tests.e2e.fixture import EndToEndTestCase, run, until
from tests.e2e.servers import HttpPostReceiver
from tests.e2e.test_durability import Pingers


class BackupTests(EndToEndTestCase):
    def test_all_that_was_acknowledged_is_restored(self) -> None:
        broker, origin = self.own_broker(), self.origin()
        broker.start()
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
