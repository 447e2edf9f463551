"""The feeds of events of a real broker: followed over a kill, pushed, and streamed."""

from __future__ import annotations

import json
from urllib.parse import quote

from tests.e2e.fixture import Broker, EndToEndTestCase, post_form, request, run, until
from tests.e2e.websub_servers import HubReceiver

PINGS = "/events/pings/recent"


class EventsTests(EndToEndTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.marker = self.directory() / "marker"

    def pinged(self, broker: Broker, *numbers: int) -> list[str]:
        """Ping for sites, and return their names."""
        names = [f"Site {number}" for number in numbers]
        for name, number in zip(names, numbers, strict=True):
            fields = {"name": name, "url": f"http://site{number}.example/"}
            self.assertEqual(post_form(f"{broker.url}/ping", fields).status, 200)
        return names

    def followed(self, broker: Broker, path: str = PINGS) -> list[str]:
        """The titles of the entries that the command finds, from the last one on."""
        url = broker.url + path
        done = run("rsscloud-broker", "follow", url, "--once", "--marker", self.marker)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line)["title"] for line in done.stdout.splitlines()]

    def test_followed_over_a_kill(self) -> None:
        broker = self.own_broker(options=())
        broker.start()
        names = self.pinged(broker, *range(105))  # a document has a hundred
        broker.kill()  # some are not in the feed yet
        broker.start()
        names += self.pinged(broker, 105, 106)
        self.wait_for(broker, names[-1])
        self.assertEqual(self.followed(broker), names)
        more = self.pinged(broker, *range(107, 220))
        self.wait_for(broker, more[-1])
        broker.restart()
        self.assertEqual(self.followed(broker), more)

    def wait_for(self, broker: Broker, name: str) -> None:
        until(lambda: f"<title>{name}</title>" in request(broker.url + PINGS).text, name)

    def test_subscriber_of_the_feed_is_told(self) -> None:
        broker, receiver = self.own_broker(), self.served(HubReceiver())
        broker.start()
        recent = f"{broker.url}/events/recent"
        links = until(lambda: request(recent).headers.get("link"), "the feed")
        topic = links.rpartition("<")[2].partition(">")[0]
        intent = {"hub.mode": "subscribe", "hub.topic": topic, "hub.callback": receiver.callback}
        self.assertEqual(post_form(f"{broker.url}/websub", intent).status, 202)
        until(lambda: receiver.asked, "the question of the hub")
        feed = self.origin().feed()
        broker.ping(feed)
        until(lambda: any(feed.encode() in body for body in receiver.bodies), "the feed")
        of_host = request(f"{broker.url}/events/host?name={quote('127.0.0.1')}")
        self.assertIn(feed, of_host.text)
