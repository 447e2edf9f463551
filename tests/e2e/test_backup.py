"""``backup`` beside a broker that is pinged, and a broker that starts with what it restored."""

from __future__ import annotations

import json

from tests.e2e.every_protocol import Pinger
from tests.e2e.fixture import EndToEndTestCase, run, until
from tests.e2e.servers import HttpPostReceiver


class BackupTests(EndToEndTestCase):
    def test_all_that_was_acknowledged_is_restored(self) -> None:
        broker, origin = self.running_broker(), self.origin()
        topic, receiver = origin.feed(), self.served(HttpPostReceiver())
        self.subscribed(broker, receiver, topic)
        file = self.directory() / "backup"
        pingers = [Pinger(broker, label) for label in "ABCDEF"]

        def acknowledged_names() -> set[str]:
            return {name for each in pingers for name in each.acknowledged}

        try:
            until(lambda: len(acknowledged_names()) >= 100, "100 pings")
            acknowledged = acknowledged_names()
            done = run("rsscloud-broker", "backup", "--data", broker.data, file)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        finally:
            broker.kill()
            for each in pingers:
                each.stop()

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
