"""Several topics that the broker serves are published together."""

from __future__ import annotations

from typing import Any

from rsscloud_broker.config import Topics
from rsscloud_broker.core import Access, Publisher
from rsscloud_broker.events import PingAccepted, TopicChanged
from rsscloud_broker.model import Content
from tests.core.house import CoreTestCase

RSS, ATOM = "http://broker.example/rss.xml", "http://broker.example/atom.xml"
SOURCE = "192.0.2.7"


class PublishAllTests(CoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        access = Access(Topics(), self.blocks)
        self.publisher = Publisher(self.store, self.detector, self.bus, self.clock, access)

    def publish(self, **contents: bytes) -> Any:
        urls = {"rss": RSS, "atom": ATOM}
        given = {urls[name]: Content(body) for name, body in contents.items()}
        return self.publisher.publish_all(given, lambda conn: "stored", SOURCE)

    def changed(self) -> list[str]:
        found = [each.topic for each in self.bus.events if isinstance(each, TopicChanged)]
        del self.bus.events[:]
        return found

    def result(self, work: Any) -> Any:
        return self.successResultOf(work)

    def test_all_change(self) -> None:
        self.assertEqual(self.result(self.publish(rss=b"1", atom=b"2")), "stored")
        self.assertEqual(self.changed(), [RSS, ATOM])
        self.assertEqual(
            [ping.name for ping in self.pings()], [RSS]
        )  # one, as the site has changed once
        accepted = [each for each in self.bus.logged if isinstance(each, PingAccepted)]
        self.assertEqual([(each.url, each.source) for each in accepted], [(RSS, SOURCE)])
