"""The bytes of the test feed."""

from __future__ import annotations

from attrs import evolve
from lxml import etree
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.test_feed.document import FeedInfo, encode, in_words
from rsscloud_broker.apps.test_feed.items import TestItem
from rsscloud_broker.wire.cloud import Cloud, clouds_of

CLOUD = Cloud("broker.example", 5337, "/rsscloud/pleaseNotify", "", "http-post")
ABOUT = FeedInfo(
    "http://broker.example/test/rss.xml",
    "http://broker.example/test",
    900,
    "http://broker.example/websub",
    CLOUD,
)
ITEMS = [TestItem(1_000_001_700, "urn:uuid:b"), TestItem(1_000_000_800, "urn:uuid:a")]


class DocumentTests(SynchronousTestCase):
    def test_items(self) -> None:
        channel = etree.fromstring(encode(ABOUT, ITEMS)).find("channel")
        assert channel is not None
        self.assertEqual(channel.findtext("title"), "Test feed of rsscloud-broker")
        self.assertEqual(channel.findtext("link"), ABOUT.page)
        self.assertEqual(channel.findtext("ttl"), "15")
        self.assertEqual(channel.findtext("lastBuildDate"), "Sun, 09 Sep 2001 02:15:00 GMT")
        first, second = channel.findall("item")
        self.assertEqual(first.findtext("title"), "02:15:00 UTC on 9 September 2001")
        self.assertEqual(first.findtext("pubDate"), "Sun, 09 Sep 2001 02:15:00 GMT")
        guid = second.find("guid")
        assert guid is not None
        self.assertEqual((guid.text, guid.get("isPermaLink")), ("urn:uuid:a", "false"))

    def test_cloud_and_hub(self) -> None:
        feed = encode(ABOUT, ITEMS)
        self.assertEqual(clouds_of(feed), [CLOUD])
        links = etree.fromstring(feed).findall("channel/{http://www.w3.org/2005/Atom}link")
        self.assertEqual(
            [(link.get("rel"), link.get("href")) for link in links],
            [("self", ABOUT.url), ("hub", "http://broker.example/websub")],
        )

    def test_without_cloud_and_hub(self) -> None:
        feed = encode(evolve(ABOUT, hub="", cloud=None), ITEMS)
        self.assertEqual(clouds_of(feed), [])
        self.assertNotIn(b'"hub"', feed)

    def test_same_items_make_the_same_bytes(self) -> None:
        feed = encode(ABOUT, ITEMS)
        self.assertEqual(encode(ABOUT, list(ITEMS)), feed)
        self.assertNotEqual(encode(ABOUT, ITEMS[1:]), feed)

    def test_periods_in_words(self) -> None:
        words = {each: in_words(each) for each in (1, 10, 60, 90, 900, 3600, 7200)}
        self.assertEqual(
            list(words.values()),
            [
                *("every second", "every 10 seconds", "every minute", "every 90 seconds"),
                *("every 15 minutes", "every hour", "every 2 hours"),
            ],
        )
