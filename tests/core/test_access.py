"""Patterns of topics."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config import Topics
from rsscloud_broker.core import Access
from rsscloud_broker.model import Forbidden

OURS = "https://blogs.example/anna/rss.xml"
OTHER = "https://elsewhere.example/rss.xml?blogs.example"


class AccessTests(SynchronousTestCase):
    def test_open_by_default(self) -> None:
        access = Access(Topics())
        access.check_subscribe(OTHER)
        access.check_publish(OURS, OTHER)
        self.assertFalse(access.limited)

    def test_patterns_are_of_whole_urls(self) -> None:
        access = Access(Topics(("https://blogs.example/*",), ("*.xml", "http://a.example/[ab]")))
        self.assertTrue(access.limited)
        self.assertTrue(access.may_subscribe(OURS))
        self.assertFalse(access.may_subscribe(OTHER))
        access.check_publish(OURS, "http://a.example/b")
        for topic in (OTHER, "http://a.example/c", f"{OURS}\n"):
            with self.assertRaises(Forbidden) as caught:
                access.check_publish(OURS, topic)
            self.assertIn(topic, str(caught.exception))

    def test_none_at_all(self) -> None:
        access = Access(Topics((), ()))
        self.assertFalse(access.may_subscribe(OURS))
        self.assertFalse(access.may_subscribe(""))
        self.assertRaises(Forbidden, access.check_publish, OURS)
