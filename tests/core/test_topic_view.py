"""Tests of what pages may read of topics, subscriptions and pings."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred

from rsscloud_broker.core import TopicView
from rsscloud_broker.model import Ping
from tests.core.house import CALLBACK, FEED, NOW, BrokerTestCase


class TopicViewTests(BrokerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.view = TopicView(self.store, self.clock)

    def test_an_overview(self) -> None:
        """It is read once a second."""
        self.assertIsNone(self.result(self.view.overview(FEED)))
        self.subscribe()
        self.assertIsNone(self.result(self.view.overview(FEED)))
        self.clock.advance(1.1)
        overview = self.result(self.view.overview("HTTP://feeds.example:80/rss.xml"))
        assert overview is not None
        self.assertEqual(overview.status.topic.url, FEED)
        self.assertEqual(overview.subscriptions, {CALLBACK.protocol: 1})

    def test_the_list(self) -> None:
        self.subscribe()
        (summary,) = self.result(self.view.watched(0, 10))
        self.assertEqual((summary.url, summary.subscriptions), (FEED, {CALLBACK.protocol: 1}))
        self.assertEqual(self.result(self.view.watched(summary.id, 10)), ())
        self.subscribe("http://other.example/feed")
        self.assertEqual(len(self.result(self.view.watched(0, 10))), 1)
        self.clock.advance(60.0 + 1)
        self.assertEqual(len(self.result(self.view.watched(0, 10))), 2)

    def test_parts_of_the_list_are_read_one_after_the_other(self) -> None:
        reads: list[Deferred[list[Any]]] = []

        def read(after: int, limit: int) -> Deferred[list[Any]]:
            reads.append(Deferred())
            return reads[-1]

        self.patch(self.store, "topic_summaries", read)
        asking = [Deferred.fromCoroutine(self.view.watched(after, 10)) for after in range(3)]
        for number in range(3):
            self.assertEqual(len(reads), number + 1)
            reads[number].callback([])
            self.assertEqual(self.result(asking[number]), ())

    def test_pings_without_a_name_have_the_title_of_their_topic(self) -> None:
        self.subscribe()
        self.result(self.store.record_feed(FEED, {"title": "A weblog"}))
        for number, (name, url) in enumerate(((FEED, FEED), (FEED, "http://site.example/"))):
            self.result(self.store.add_ping(Ping(name, url, NOW - number), 0))
        names = [ping.name for ping in self.result(self.view.pings(None, 2))]
        self.assertEqual(names, ["A weblog", FEED])

    def test_pings(self) -> None:
        for number in range(5):
            ping = Ping(f"Site {number}", "http://site.example/", NOW - 10 + number)
            self.result(self.store.add_ping(ping, 0))
        newest = self.result(self.view.pings(None, 2))
        self.assertEqual([ping.name for ping in newest], ["Site 4", "Site 3"])
        self.assertIs(self.result(self.view.pings(None, 2)), newest)  # it is read once a second
        last = newest[-1]
        older = self.result(self.view.pings((last.received_at, last.id), 2))
        self.assertEqual([ping.name for ping in older], ["Site 2", "Site 1"])
        self.assertEqual(evolve(older[0], id=0).received_at, NOW - 8)
