"""Readers see that the broker cannot fetch a feed."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from rsscloud_broker.errors import TopicUnreadable
from rsscloud_broker.interfaces import IEventSink
from tests.apps.river.house import BLOG, NAMES_HUB, RiverCase, rss


class FetchResultsTests(RiverCase):
    def setUp(self) -> None:
        super().setUp()
        self.pages[BLOG] = rss("one", head=NAMES_HUB)
        self.house.follow()
        self.house.verify(self.house.asked()[-1])

    def fetch(self, url: str = BLOG) -> None:
        fetching: Deferred[Any] = self.house.broker._detector.check_now(url)
        fetching.addErrback(lambda failure: failure.trap(TopicUnreadable))
        self.house.pass_time(2)
        self.successResultOf(fetching)

    def status(self) -> str:
        return self.house.feed().status

    def test_interface(self) -> None:
        for sink in self.house.app.sinks:
            verifyObject(IEventSink, sink)

    def test_a_feed_that_cannot_be_fetched(self) -> None:
        page = self.pages.pop(BLOG)
        self.fetch()
        self.assertIn("; the last fetch failed: ", self.status())
        self.assertIn("notified by the hub", self.status())
        self.pages[BLOG] = page  # the same as before: the river gets nothing new
        self.fetch()
        self.assertNotIn("failed", self.status())

    def test_what_cannot_be_read_as_a_feed_is_still_said(self) -> None:
        self.house.poll(page=b"no feed")
        for _ in range(2):
            self.assertIn("cannot be read as a feed", self.status())
            self.fetch()
            self.pages.pop(BLOG, None)
        self.assertIn("cannot be read as a feed", self.status())

    def test_topics_that_nobody_reads_here(self) -> None:
        self.fetch("http://other.example/rss.xml")
        self.assertNotIn("failed", self.status())
