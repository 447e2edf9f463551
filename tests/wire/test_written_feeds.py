"""Feeds that are written as RSS, Atom and JSON Feed are read by others as they were meant."""

from __future__ import annotations

import json
from typing import Any

import feedparser
from attrs import evolve
from lxml import etree
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire import atom_feed, cloud, json_feed, rss_feed
from rsscloud_broker.wire.feed import read_feed
from rsscloud_broker.wire.feed_document import (
    FeedDocument,
    FeedEnclosure,
    FeedEntry,
    FeedOutlineItem,
    short_title,
)
from rsscloud_broker.wire.rss_feed import RSSCLOUD, SOURCE

HOME = "https://broker.example/people/dave"
HUB = "https://broker.example/websub"
CLOUD = cloud.from_url("https://broker.example/rsscloud/pleaseNotify")
AT = 1_790_683_200.25

RICH = FeedEntry(
    id=f"{HOME}/2",
    url=f"{HOME}/2",
    link="https://other.example/?a=1&b=2",
    title="Tom & Jerry <3",
    text='1 < 2 & "so on" ]]> 🇩🇪',
    html='1 &lt; 2 &amp; "so on" ]]&gt; 🇩🇪',
    full_html='1 &lt; 2 &amp; "so on" ]]&gt; 🇩🇪<ul><li>a</li></ul>',
    published=AT,
    updated=AT + 60,
    categories=("news", "R&D"),
    enclosure=FeedEnclosure("https://files.example/a.mp3?x&y", "audio/mpeg", 4711),
    items=(
        FeedOutlineItem(
            "a", "a", items=(FeedOutlineItem("b", "b", "T", "https://b.example/?c&d"),)
        ),
        FeedOutlineItem("c & d", "c &amp; d"),
    ),
)
PLAIN = FeedEntry("old:1", f"{HOME}/1", "", "", "Hello", "Hello", "Hello", AT - 9, AT - 9)


def document(*entries: FeedEntry, file: str = "rss.xml") -> FeedDocument:
    head = (HOME, "dave", "Messages by dave", HOME, f"{HOME}/{file}", "dave", "broker.example")
    return FeedDocument(*head, AT + 60, HUB, CLOUD, entries)


class WrittenTests(SynchronousTestCase):
    def parsed(self, feed: bytes, media_type: str) -> Any:
        """What feedparser finds in a feed, which it must not complain about."""
        found = feedparser.parse(feed, response_headers={"content-type": media_type})
        self.assertFalse(found.bozo, found.get("bozo_exception"))
        return found

    def test_rss(self) -> None:
        feed = rss_feed.encode(document(RICH, PLAIN))
        found = self.parsed(feed, rss_feed.MEDIA_TYPE)
        self.assertEqual(found.version, "rss20")
        self.assertEqual((found.feed.title, found.feed.link), ("dave", HOME))
        self.assertEqual(found.feed.subtitle, "Messages by dave")
        links = {each["rel"]: each["href"] for each in found.feed.links}
        self.assertEqual((links["self"], links["hub"]), (f"{HOME}/rss.xml", HUB))
        cloud = {name.lower(): value for name, value in CLOUD.attributes.items()}
        self.assertEqual(dict(found.feed.cloud), cloud)
        rich, plain = found.entries
        self.assertEqual(rich.id, RICH.id)
        self.assertEqual((rich.title, rich.link), (RICH.title, RICH.link))
        self.assertEqual(rich.summary, RICH.html)
        self.assertEqual(rich.content[0].value, RICH.full_html)
        self.assertEqual([each.term for each in rich.tags], ["news", "R&D"])
        (file,) = rich.enclosures
        url = "https://files.example/a.mp3?x&y"
        self.assertEqual((file.href, file.type, file.length), (url, "audio/mpeg", "4711"))
        self.assertEqual(rich.published, "Tue, 29 Sep 2026 12:00:00 GMT")
        self.assertEqual((plain.id, plain.link, plain.summary), ("old:1", PLAIN.url, "Hello"))
        self.assertNotIn("title", plain)
        self.assertNotIn("content", plain)

    def test_style_sheet(self) -> None:
        """It stands before the elements, for browsers; nothing else of the feed changes."""
        for encode in (rss_feed.encode, atom_feed.encode):
            root = etree.fromstring(encode(document(RICH)))
            instruction = root.getprevious()
            self.assertIsInstance(instruction, etree._ProcessingInstruction)
            assert instruction is not None
            self.assertEqual(instruction.text, 'type="text/css" href="/changes.css"')
            self.assertIsNone(instruction.getprevious())

    def test_rss_guids(self) -> None:
        root = etree.fromstring(rss_feed.encode(document(RICH, PLAIN)))
        said = [(each.text, each.get("isPermaLink")) for each in root.iter("guid")]
        self.assertEqual(said, [(RICH.id, "true"), ("old:1", "false")])

    def test_sub_items(self) -> None:
        root = etree.fromstring(rss_feed.encode(document(RICH)))
        item = root.find("channel/item")
        assert item is not None
        below = f"{{{RSSCLOUD}}}item"
        first, second = item.findall(below)
        self.assertEqual(first.findtext("description"), "a")
        self.assertEqual(second.findtext("description"), "c &amp; d")  # HTML, as in every item
        (inner,) = first.findall(below)
        texts = [inner.findtext(name) for name in ("title", "link", "description")]
        self.assertEqual(texts, ["T", "https://b.example/?c&d", "b"])

    def test_source_elements(self) -> None:
        root = etree.fromstring(rss_feed.encode(document(RICH)))
        for name, text in (("cloud", CLOUD.url), ("self", f"{HOME}/rss.xml"), ("account", "dave")):
            self.assertEqual(root.findtext(f"channel/{{{SOURCE}}}{name}"), text)
        top = root.find(f"channel/item/{{{SOURCE}}}outline")
        assert top is not None
        outline = f"{{{SOURCE}}}outline"
        self.assertEqual([each.get("text") for each in top.findall(outline)], ["a", "c &amp; d"])
        (inner,) = top.findall(f"{outline}/{outline}")
        self.assertEqual((inner.get("type"), inner.get("url")), ("link", "https://b.example/?c&d"))

    def test_the_broker_finds_hub_and_cloud(self) -> None:
        for feed, kind in (
            (rss_feed.encode(document(RICH)), "rss 2.0"),
            (atom_feed.encode(document(RICH)), "atom"),
            (json_feed.encode(document(RICH)), "json"),
        ):
            facts = read_feed(feed)
            self.assertIn(kind, facts.format)
            self.assertEqual((facts.title, facts.hubs, facts.problems), ("dave", (HUB,), ()))
            self.assertEqual(facts.self_link, f"{HOME}/rss.xml")
            self.assertEqual(facts.entry_ids, (RICH.id,))
        self.assertEqual(read_feed(rss_feed.encode(document())).clouds, (CLOUD,))

    def test_neither_hub_nor_cloud(self) -> None:
        bare = evolve(document(PLAIN), hub="", cloud=None)
        for encode in (rss_feed.encode, atom_feed.encode, json_feed.encode):
            facts = read_feed(encode(bare))
            self.assertEqual((facts.hubs, facts.clouds), ((), ()))

    def test_atom(self) -> None:
        feed = atom_feed.encode(document(RICH, PLAIN, file="atom.xml"))
        found = self.parsed(feed, atom_feed.MEDIA_TYPE)
        self.assertEqual(found.version, "atom10")
        self.assertEqual((found.feed.id, found.feed.updated), (HOME, "2026-09-29T12:01:00Z"))
        self.assertEqual(found.feed.author, "dave")
        rich, plain = found.entries
        self.assertEqual((rich.id, rich.title), (RICH.id, RICH.title))
        times = ("2026-09-29T12:00:00Z", "2026-09-29T12:01:00Z")
        self.assertEqual((rich.published, rich.updated), times)
        self.assertEqual(rich.content[0].value, RICH.full_html)
        links = {each.rel: each for each in rich.links}
        self.assertEqual(links["alternate"].href, RICH.url)
        self.assertEqual(links["related"].href, RICH.link)
        file = links["enclosure"]
        self.assertEqual((file.type, file.length), ("audio/mpeg", "4711"))
        self.assertEqual((plain.id, plain.title), ("old:1", "Hello"))

    def test_atom_has_what_its_specification_asks_for(self) -> None:
        """RFC 4287, sections 4.1.1 and 4.1.2."""
        root = etree.fromstring(atom_feed.encode(document(RICH, PLAIN, file="atom.xml")))

        def number(of: etree._Element, name: str) -> int:
            return len(of.findall(f"{{http://www.w3.org/2005/Atom}}{name}"))

        for name in ("id", "title", "updated", "author"):  # the author counts for all entries
            self.assertEqual(number(root, name), 1, name)
        for entry in root.findall("{http://www.w3.org/2005/Atom}entry"):
            for name in ("id", "title", "updated", "content"):
                self.assertEqual(number(entry, name), 1, name)
            self.assertLessEqual(number(entry, "published"), 1)

    def test_json(self) -> None:
        feed = json.loads(json_feed.encode(document(RICH, PLAIN, file="feed.json")))
        self.assertEqual(feed["version"], "https://jsonfeed.org/version/1.1")
        self.assertEqual(feed["hubs"], [{"type": "WebSub", "url": HUB}])
        rich, plain = feed["items"]
        url = "https://files.example/a.mp3?x&y"
        file = {"url": url, "mime_type": "audio/mpeg", "size_in_bytes": 4711}
        expected = {
            "id": RICH.id,
            "url": RICH.url,
            "external_url": RICH.link,
            "title": RICH.title,
            "content_html": RICH.full_html,
            "content_text": RICH.text,
            "date_published": "2026-09-29T12:00:00Z",
            "date_modified": "2026-09-29T12:01:00Z",
            "tags": ["news", "R&D"],
            "attachments": [file],
        }
        self.assertEqual(rich, expected)
        self.assertEqual(plain["id"], "old:1")
        self.assertNotIn("title", plain)

    def test_titles_of_entries_without_one(self) -> None:
        self.assertEqual(short_title(evolve(PLAIN, text="a\n b")), "a b")
        self.assertEqual(short_title(evolve(PLAIN, text="")), PLAIN.url)
        self.assertEqual(len(short_title(evolve(PLAIN, text="x" * 200))), 80)
