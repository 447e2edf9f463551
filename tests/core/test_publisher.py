"""Topics that the broker serves itself are published together with what an application stores."""

from __future__ import annotations

from typing import Any

from sqlalchemy import insert, select
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
from rsscloud_broker.storage.schema import counter
from tests.core.house import FEED, CoreTestCase, FakeDiskSpace

CALLER = "192.0.2.7"


def content(text: str = "1") -> Content:
    return Content(f"<rss>{text}</rss>".encode(), "application/rss+xml")


class PublisherTestCase(CoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.space = FakeDiskSpace()
        self.publisher = Publisher(
            self.store,
            self.detector,
            self.bus,
            self.clock,
            Access(Topics(), self.blocks),
            self.space,
        )
        self.start()

    def operation(self, conn: Any) -> str:
        """Store a row, as an application does."""
        conn.execute(insert(counter).values(name=f"row {len(self.rows(conn))}", value=1))
        return "stored"

    def broken(self, conn: Any) -> None:
        """Store a row, and raise an error."""
        self.operation(conn)
        raise KeyError("a bug")

    def rows(self, conn: Any) -> list[str]:
        names = conn.execute(select(counter.c.name)).scalars()
        return [name for name in names if name.startswith("row")]

    def stored(self) -> int:
        """How many rows the application has stored."""
        found: list[str] = self.successResultOf(self.store._database.read(self.rows))
        return len(found)

    def publish(self, given: Content | None = None, operation: Any = None, url: str = FEED) -> Any:
        publishing = self.publisher.publish(
            url, given or content(), operation or self.operation, CALLER
        )
        return Deferred.fromCoroutine(publishing)

    def remove(self, operation: Any = None) -> Any:
        removing = self.publisher.remove(FEED, "its author", operation or self.operation, CALLER)
        return Deferred.fromCoroutine(removing)

    def walks(self) -> list[str]:
        return [walk.topic for walk in self.successResultOf(self.store.fanouts(100))]

    def ended(self, url: str = FEED) -> str:
        topic = self.successResultOf(self.store.topic(url))
        return str(topic.ended)

    def kinds(self) -> list[type]:
        return [type(event) for event in self.bus.events]


class PublishTests(PublisherTestCase):
    def test_stored_together_with_the_change(self) -> None:
        self.subscribe()
        self.assertEqual(self.successResultOf(self.publish()), "stored")
        self.assertEqual((self.stored(), self.walks()), (1, [FEED]))
        topic = self.successResultOf(self.store.topic(FEED))
        self.assertEqual((topic.digest, topic.size), (content().digest, len(content().body)))
        self.assertEqual(self.fetcher.fetched, [])

    def test_counts_as_a_ping(self) -> None:
        self.successResultOf(self.publish())
        (ping,) = self.pings()
        self.assertEqual((ping.name, ping.url, ping.rss_url), (FEED, FEED, FEED))
        self.assertEqual(self.kinds(), [PingReceived, TopicChanged])
        fetched, accepted = self.bus.logged
        assert isinstance(fetched, TopicFetched) and isinstance(accepted, PingAccepted)
        self.assertEqual((fetched.changed, accepted.source), (True, CALLER))

    def test_operation_that_raises_stores_nothing(self) -> None:
        self.subscribe()
        self.failureResultOf(self.publish(operation=self.broken), KeyError)
        self.assertEqual((self.stored(), self.walks(), self.pings()), (0, [], []))
        self.assertEqual((self.bus.events, self.bus.logged), ([], []))
        self.successResultOf(self.publish())
        self.assertEqual((self.stored(), self.walks()), (1, [FEED]))

    def test_several_are_published_together(self) -> None:
        atom = "http://broker.example/atom.xml"
        contents = {FEED: content("1"), atom: content("2")}
        publishing = self.publisher.publish_all(contents, self.operation, CALLER)
        self.assertEqual(self.successResultOf(publishing), "stored")
        changed = [each.topic for each in self.bus.events if isinstance(each, TopicChanged)]
        self.assertEqual(changed, [FEED, atom])
        self.assertEqual([ping.name for ping in self.pings()], [FEED])  # the site changed once
        accepted = [each for each in self.bus.logged if isinstance(each, PingAccepted)]
        self.assertEqual([(each.url, each.source) for each in accepted], [(FEED, CALLER)])

    def test_normal_form(self) -> None:
        self.successResultOf(self.publish(url="HTTP://Feeds.example:80/./rss.xml"))
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
        self.assertEqual((self.stored(), self.pings(), self.bus.events), (0, [], []))


class RemoveTests(PublisherTestCase):
    def test_ends_the_topic(self) -> None:
        self.successResultOf(self.publish())
        self.subscribe()
        self.bus.events.clear()
        self.assertEqual(self.successResultOf(self.remove()), "stored")
        self.assertEqual((self.stored(), self.ended(), self.walks()), (2, "its author", [FEED]))
        (event,) = self.bus.events
        assert isinstance(event, TopicEnded)
        self.assertEqual((event.topic, event.reason), (FEED, "its author"))
        self.successResultOf(self.remove())
        self.assertEqual(self.kinds().count(TopicEnded), 1, "it ends once")

    def test_blocked_topic_and_full_disk(self) -> None:
        self.successResultOf(self.publish())
        self.blocks.change([Block("topic", FEED, "spam", "alice", 1.0)])
        self.space.full = True
        self.successResultOf(self.remove())
        self.assertEqual(self.ended(), "its author")
