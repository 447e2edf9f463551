"""Tests the patterns of allowed topics, and topics that are not allowed for a while."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config import Topics
from rsscloud_broker.core import Access, Sweeper
from rsscloud_broker.errors import EndedTopic, Forbidden
from rsscloud_broker.model import Intent
from rsscloud_broker.policy.access import NOT_ALLOWED
from rsscloud_broker.policy.blocks import Blocks
from tests.core.house import CALLBACK, FEED, NOW, BrokerTestCase

OURS = "https://blogs.example/anna/rss.xml"
OTHER = "https://elsewhere.example/rss.xml?blogs.example"


class AccessTests(SynchronousTestCase):
    def test_open_by_default(self) -> None:
        access = Access(Topics(), Blocks())
        access.check_subscribe(OTHER)
        access.check_publish(OURS, OTHER)
        self.assertFalse(access.limited)

    def test_patterns_are_of_whole_urls(self) -> None:
        topics = Topics(("https://blogs.example/*",), ("*.xml", "http://a.example/[ab]"))
        access = Access(topics, Blocks())
        self.assertTrue(access.limited)
        self.assertTrue(access.may_subscribe(OURS))
        self.assertFalse(access.may_subscribe(OTHER))
        access.check_publish(OURS, "http://a.example/b")
        for topic in (OTHER, "http://a.example/c", f"{OURS}\n"):
            with self.assertRaises(Forbidden) as caught:
                access.check_publish(OURS, topic)
            self.assertIn(topic, str(caught.exception))

    def test_patterns_are_of_urls_in_normal_form(self) -> None:
        for pattern, topic in (
            ("HTTPS://Blogs.example:443/*", OURS),
            ("https://blogs.example", "https://blogs.example/"),
            ("HTTPS://Blogs.example*", OURS),
            ("https://*.Example:443/*", OURS),
            ("https://b.example/%7Ejoe/*", "https://b.example/~joe/feed"),
            ("https://bücher.example/é/*", "https://xn--bcher-kva.example/%C3%A9/feed"),
            ("https://b.example/[%7e]?/%2f", "https://b.example/~x/%2F"),
            ("*.xml", OURS),
        ):
            access = Access(Topics((pattern,)), Blocks())
            self.assertEqual(access.may_subscribe(topic), topic != "https://b.example/~x/%2F")
            self.assertFalse(access.may_subscribe("https://a.other/"))

    def test_patterns_can_change(self) -> None:
        access = Access(Topics(subscribe=()), Blocks())
        access.change(Topics(publish=("https://blogs.example/*",)))
        access.check_subscribe(OTHER)
        access.check_publish(OURS)
        self.assertRaises(Forbidden, access.check_publish, OTHER)
        self.assertFalse(access.limited)

    def test_none_at_all(self) -> None:
        access = Access(Topics((), ()), Blocks())
        self.assertFalse(access.may_subscribe(OURS))
        self.assertFalse(access.may_subscribe(""))
        self.assertRaises(Forbidden, access.check_publish, OURS)


class AllowedAgainTests(BrokerTestCase):
    """A topic ended because it was no longer allowed; now it is allowed again."""

    intent = Intent(FEED, CALLBACK, 90_000)

    def setUp(self) -> None:
        super().setUp()
        self.subscribe()
        access = Access(Topics(subscribe=()), Blocks())
        sweeper = Sweeper(self.store, self.bus, self.clock, access, self.detector.reader.forget)
        self.result(sweeper.sweep())
        self.result(self.broker.unsubscribe(self.intent))
        self.assertTrue(self.ended())

    def ended(self) -> str:
        topic = self.successResultOf(self.store.topic(FEED))
        return str(topic.ended)

    def test_it_goes_on_for_whoever_asks_or_waits(self) -> None:
        for subscribe in (self.broker.accept, self.broker.subscribe):
            self.result(subscribe(self.intent))
            self.assertEqual((len(self.subscriptions()), self.ended()), (1, ""))
            self.successResultOf(self.store.remove_subscription(FEED, CALLBACK))
            self.successResultOf(self.store.end_topic(FEED, NOT_ALLOWED, NOW))
            self.detector.reader.forget(FEED)

    def test_it_goes_on_when_it_is_pinged(self) -> None:
        self.assertTrue(self.result(self.broker.ping_topic(FEED, "")))
        self.assertEqual(self.ended(), "")

    def test_it_goes_on_when_it_is_published(self) -> None:
        self.assertEqual(self.result(self.broker.publish([FEED], "")), {})
        self.assertEqual((self.ended(), self.fetcher.fetched), ("", [FEED]))

    def test_one_that_ended_otherwise_does_not(self) -> None:
        self.successResultOf(self.store.revive_topic(FEED))
        self.successResultOf(self.store.end_topic(FEED, "it is gone", NOW))
        self.refusal(self.broker.subscribe(self.intent), EndedTopic)
        self.assertEqual(self.ended(), "it is gone")
