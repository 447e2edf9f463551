"""The bytes of the test feed."""

from __future__ import annotations

from attrs import evolve
from lxml import etree
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.test_feed.document import FeedInfo, encode, in_words
from rsscloud_broker.apps.test_feed.items import TestItem
from rsscloud_broker.wire.cloud import Cloud, clouds_of

CLOUD = Cloud("broker.example", 5337, "/rsscloud/pleaseNotify", "", "http-post")
PAGE, HUB = "http://broker.example/test", "http://broker.example/websub"
ABOUT = FeedInfo(f"{PAGE}/rss.xml", PAGE, 900, HUB, CLOUD)
ITEMS = [TestItem(1_000_001_700, "urn:uuid:b"), TestItem(1_000_000_800, "urn:uuid:a")]


class DocumentTests(SynchronousTestCase):
    def test_items(self) -> None:
        channel = etree.fromstring(encode(ABOUT, ITEMS)).find("channel")
        assert channel is not None
        first, second = channel.findall("item")
        for element, name, text in (
            (channel, "title", "Test feed of rsscloud-broker"),
            (channel, "link", ABOUT.page),
            (channel, "ttl", "15"),
            (channel, "lastBuildDate", "Sun, 09 Sep 2001 02:15:00 GMT"),
            (first, "title", "02:15:00 UTC on 9 September 2001"),
            (first, "pubDate", "Sun, 09 Sep 2001 02:15:00 GMT"),
        ):
            self.assertEqual(element.findtext(name), text)
        guid = second.find("guid")
        assert guid is not None
        self.assertEqual((guid.text, guid.get("isPermaLink")), ("urn:uuid:a", "false"))

    def test_cloud_and_hub(self) -> None:
        feed = encode(ABOUT, ITEMS)
        self.assertEqual(clouds_of(feed), [CLOUD])
        links = etree.fromstring(feed).findall("channel/{http://www.w3.org/2005/Atom}link")
        named = [(link.get("rel"), link.get("href")) for link in links]
        self.assertEqual(named, [("self", ABOUT.url), ("hub", HUB)])
        feed = encode(evolve(ABOUT, hub="", cloud=None), ITEMS)
        self.assertEqual(clouds_of(feed), [])
        self.assertNotIn(b'"hub"', feed)

    def test_periods_in_words(self) -> None:
        for seconds, words in (
            *((1, "every second"), (10, "every 10 seconds"), (60, "every minute")),
            *((90, "every 90 seconds"), (900, "every 15 minutes"), (3600, "every hour")),
        ):
            self.assertEqual(in_words(seconds), words)
