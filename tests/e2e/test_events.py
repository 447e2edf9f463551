"""The feeds of events of a real broker, which its hub pushes."""

from __future__ import annotations

from urllib.parse import quote

from tests.e2e.fixture import EndToEndTestCase, request, until
from tests.e2e.websub_servers import HubReceiver


class EventsTests(EndToEndTestCase):
    def test_subscriber_of_the_feed_is_told(self) -> None:
        broker, receiver = self.running_broker(), self.served(HubReceiver())
        recent = f"{broker.url}/events/recent"
        links = until(lambda: request(recent).headers.get("link"), "the feed")
        topic = links.rpartition("<")[2].partition(">")[0]
        self.subscribed_to_hub(broker, receiver, topic)
        feed = self.origin().feed()
        broker.ping(feed)
        until(lambda: any(feed.encode() in body for body in receiver.bodies), "the feed")
        of_host = request(f"{broker.url}/events/host?name={quote('127.0.0.1')}")
        self.assertIn(feed, of_host.text)
