"""OPML as feed readers read it."""

from __future__ import annotations

from lxml import etree
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire.opml import encode


class EncodeTests(SynchronousTestCase):
    def test_a_list(self) -> None:
        feeds = [('http://a.example/?a=1&b="2"', "A <b> & 'c'"), ("http://b.example/", "")]
        root = etree.fromstring(encode("Feeds & <more>", feeds))
        self.assertEqual((root.tag, root.get("version")), ("opml", "2.0"))
        self.assertEqual(root.findtext("head/title"), "Feeds & <more>")
        first, second = root.findall("body/outline")
        expected = {
            "type": "rss",
            "text": "A <b> & 'c'",
            "title": "A <b> & 'c'",
            "xmlUrl": 'http://a.example/?a=1&b="2"',
        }
        self.assertEqual(dict(first.attrib), expected)
        expected = {"type": "rss", "text": "http://b.example/", "xmlUrl": "http://b.example/"}
        self.assertEqual(dict(second.attrib), expected)

    def test_it_goes_on_elsewhere(self) -> None:
        root = etree.fromstring(encode("t", [], "http://a.example/feeds.opml?after=1"))
        (more,) = root.findall("body/outline")
        self.assertEqual(more.get("type"), "include")
        self.assertEqual(more.get("url"), "http://a.example/feeds.opml?after=1")

    def test_characters_that_xml_cannot_carry(self) -> None:
        root = etree.fromstring(encode("a\0b", [("http://a.example/\x1b", "x\ud800\ny")]))
        self.assertEqual(root.findtext("head/title"), "ab")
        (feed,) = root.findall("body/outline")
        self.assertEqual((feed.get("xmlUrl"), feed.get("text")), ("http://a.example/", "x y"))
