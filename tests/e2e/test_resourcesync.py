"""ResourceSync in processes: a hub for the notifications of others, and a source of archives."""

from __future__ import annotations

import hmac
from pathlib import Path

from tests.e2e.fixture import Broker, EndToEndTestCase, post_form, run, until
from tests.e2e.websub_servers import Delivery, HubReceiver

TOKEN = "correct-horse-battery"
SECRET = "sesame"
PAYLOAD = Path(__file__).parents[1] / "wire" / "fixtures" / "resourcesync" / "new_resource_list.xml"
CONFIGURATION = """
[[front_doors.resourcesync.publishers]]
topic = "{topic}"
token = "{token}"
"""


class ResourceSyncTests(EndToEndTestCase):
    def subscribed_destination(self, broker: Broker, topic: str) -> HubReceiver:
        destination = self.served(HubReceiver())
        self.subscribed_to_hub(broker, destination, topic, secret=SECRET)
        return destination

    def assert_delivered(self, destination: HubReceiver, *links: str) -> Delivery:
        """Wait for a delivery with some links."""
        until(lambda: destination.delivered, "a delivery")
        delivery = destination.delivered[-1]
        for link in links:
            self.assertIn(link, delivery.headers["link"])
        return delivery

    def notify(self, broker: Broker, topic: str, token: str) -> str:
        done = run(
            *("rsscloud-broker", "resourcesync", "notify", PAYLOAD),
            *("--topic", topic, "--hub", f"http://localhost:{broker.port}/websub"),
            env={"RSSCLOUD_BROKER_TOKEN": token},
        )
        return done.stdout or done.stderr

    def test_a_notification_reaches_its_destinations(self) -> None:
        """The channel answers with 404 to everybody who asks there."""
        topic = self.origin().url("/dataset1/framework/")
        broker = self.running_broker(CONFIGURATION.format(topic=topic, token=TOKEN))
        destination = self.subscribed_destination(broker, topic)
        self.assertEqual(self.notify(broker, topic, TOKEN), "The notification was accepted.\n")
        delivery = self.assert_delivered(
            destination,
            f'<{topic}>; rel="self"',
            f'<http://localhost:{broker.port}/websub>; rel="hub"',
            '<http://example.com/dataset1/capabilitylist.xml>; rel="resourcesync"',
        )
        self.assertEqual(delivery.body, PAYLOAD.read_bytes())
        self.assertEqual(delivery.headers["content-type"], "application/xml")
        digest = hmac.new(SECRET.encode(), delivery.body, "sha256").hexdigest()
        self.assertEqual(delivery.headers["x-hub-signature"], f"sha256={digest}")

        self.assertIn("HTTP status 401", self.notify(broker, topic, TOKEN[::-1]))
        self.assertIn("HTTP status 403", self.notify(broker, "http://example.com/", TOKEN))

    def test_the_channel_can_be_subscribed_to(self) -> None:
        broker = self.running_broker()
        channel = f"http://localhost:{broker.port}/resourcesync/notification.xml"
        destination = self.subscribed_destination(broker, channel)
        broker.stop()
        archive = broker.data / "public" / "2026" / "01" / "02" / "01.xml"
        archive.parent.mkdir(parents=True)
        archive.write_text("<weblogUpdates/>")
        broker.start()
        delivery = self.assert_delivered(
            destination,
            f'<{channel}>; rel="self"',
            '/resourcesync/capabilitylist.xml>; rel="resourcesync"',
        )
        self.assertIn(b'capability="framework-notification"', delivery.body)
        published = {"hub.mode": "publish", "hub.url": channel}
        said = post_form(f"{broker.url}/websub", published).text
        self.assertIn("its publisher pushes its content", said)
