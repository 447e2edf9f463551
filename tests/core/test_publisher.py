"""Topics that the broker serves itself are published together with what an application stores."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from rsscloud_broker.config import Topics
from rsscloud_broker.core import Access, Publisher
from rsscloud_broker.errors import Forbidden, TopicUnreadable, Unavailable
from rsscloud_broker.events import (
    PingAccepted,
    PingReceived,
    TopicChanged,
    TopicEnded,
    TopicFetched,
)
from rsscloud_broker.model import Content
from rsscloud_broker.model.administration import Block
from tests.core.house import FEED, CoreTestCase, FakeDiskSpace

CALLER = "192.0.2.7"


def content(text: str = "1") -> Content:
    return Content(f"<rss>{text}</rss>".encode(), "application/rss+xml")


class PublisherTestCase(CoreTestCase):
    """:ivar stored: how often an application has stored something."""

    stored = 0

    def setUp(self) -> None:
        super().setUp()
        self.space = FakeDiskSpace()
        access = Access(Topics(), self.blocks)
        self.publisher = Publisher(
            self.store, self.detector, self.bus, self.clock, access, self.space
        )
        self.start()

    def operation(self, conn: Any) -> str:
        """Stands for what an application stores."""
        self.stored += 1
        return "stored"

    def publish(self, given: Content | None = None, operation: Any = None, url: str = FEED) -> Any:
        publishing = self.publisher.publish(
            url, given or content(), operation or self.operation, CALLER
        )
        return Deferred.fromCoroutine(publishing)

    def remove(self) -> Any:
        removing = self.publisher.remove(FEED, "its author", self.operation, CALLER)
        return Deferred.fromCoroutine(removing)

    def kinds(self) -> list[type]:
        return [type(event) for event in self.bus.events]


class PublishTests(PublisherTestCase):
    def test_stored_together_with_the_change(self) -> None:
        self.subscribe()
        self.assertEqual(self.result(self.publish()), "stored")
        self.assertEqual((self.stored, self.walked()), (1, [FEED]))
        topic = self.known()
        self.assertEqual((topic.digest, topic.size), (content().digest, len(content().body)))
        self.assertEqual(self.fetcher.fetched, [])

    def test_counts_as_a_ping(self) -> None:
        self.result(self.publish())
        (ping,) = self.pings()
        self.assertEqual((ping.name, ping.url, ping.rss_url), (FEED, FEED, FEED))
        self.assertEqual(self.kinds(), [PingReceived, TopicChanged])
        fetched, accepted = self.bus.logged
        assert isinstance(fetched, TopicFetched) and isinstance(accepted, PingAccepted)
        self.assertEqual((fetched.changed, accepted.source), (True, CALLER))

    def test_operation_that_raises_stores_nothing(self) -> None:
        def broken(conn: Any) -> None:
            raise KeyError("a bug")

        self.subscribe()
        self.failureResultOf(self.publish(operation=broken), KeyError)
        self.assertEqual((self.walked(), self.pings()), ([], []))
        self.assertEqual((self.bus.events, self.bus.logged), ([], []))
        self.result(self.publish())
        self.assertEqual(self.walked(), [FEED])

    def test_several_are_published_together(self) -> None:
        atom = "http://broker.example/atom.xml"
        contents = {FEED: content("1"), atom: content("2")}
        publishing = self.publisher.publish_all(contents, self.operation, CALLER)
        self.assertEqual(self.result(publishing), "stored")
        self.assertEqual([each.topic for each in self.published(TopicChanged)], [FEED, atom])
        self.assertEqual([ping.name for ping in self.pings()], [FEED])  # the site changed once
        accepted = [each for each in self.bus.logged if isinstance(each, PingAccepted)]
        self.assertEqual([(each.url, each.source) for each in accepted], [(FEED, CALLER)])

    def test_normal_form(self) -> None:
        self.result(self.publish(url="HTTP://Feeds.example:80/./rss.xml"))
        self.assertEqual([ping.url for ping in self.pings()], [FEED])

    def test_what_is_refused_stores_nothing(self) -> None:
        for kind, blocked in (("topic", FEED), ("host", "feeds.example"), ("source", CALLER)):
            self.blocks.change([Block(kind, blocked, "spam", "alice", 1.0)])
            self.failureResultOf(self.publish(), Forbidden)
        self.failureResultOf(self.remove(), Forbidden)
        self.blocks.change([])
        self.failureResultOf(self.publish(url="ftp://feeds.example/"), TopicUnreadable)
        self.space.full = True
        self.failureResultOf(self.publish(), Unavailable)
        self.assertEqual((self.stored, self.pings(), self.bus.events), (0, [], []))


class RemoveTests(PublisherTestCase):
    def test_ends_the_topic(self) -> None:
        self.result(self.publish())
        self.subscribe()
        self.bus.events.clear()
        self.assertEqual(self.result(self.remove()), "stored")
        self.assertEqual((self.stored, self.walked()), (2, [FEED]))
        self.assertEqual(self.known().ended, "its author")
        (event,) = self.bus.events
        assert isinstance(event, TopicEnded)
        self.assertEqual((event.topic, event.reason), (FEED, "its author"))
        self.result(self.remove())
        self.assertEqual(self.kinds().count(TopicEnded), 1, "it ends once")

    def test_blocked_topic_and_full_disk(self) -> None:
        self.result(self.publish())
        self.blocks.change([Block("topic", FEED, "spam", "alice", 1.0)])
        self.space.full = True
        self.result(self.remove())
        self.assertEqual(self.known().ended, "its author")
