"""Documents of other people's feeds are read as they are meant, and what is no feed is refused."""

from __future__ import annotations

import json
from pathlib import Path
from time import process_time

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.interfaces import Position
from rsscloud_broker.simplefeed.documents import (
    MAX_ENTRIES,
    AtomDocument,
    NotAFeed,
    Order,
    index_after,
    parse,
)
from rsscloud_broker.simplefeed.entries import Entry, EntryContent, Person, encode_json
from tests.simplefeed.logs import some

FIXTURES = Path(__file__).parent / "fixtures"
BASE = "http://b.example/y/"
_FEED = '<feed xmlns="http://www.w3.org/2005/Atom" {}>{}</feed>'


def feed(inside: str, attributes: str = "", url: str = "http://a.example/x/recent") -> AtomDocument:
    return parse(_FEED.format(attributes, inside).encode(), url, {})


def entry(identity: str, updated: str = "", more: str = "") -> str:
    return f"<entry><id>{identity}</id><updated>{updated}</updated>{more}</entry>"


def only(inside: str) -> Entry:
    (found,), _ = feed(f"<entry>{inside}</entry>").entries(True)
    return found


class LinkTests(SynchronousTestCase):
    def test_links(self) -> None:
        """Some are relative, and some relations are URIs."""
        uri = "http://www.iana.org/assignments/relation/prev-archive"
        for link, attributes, expected in (
            ('rel="prev-archive" href="3#top"', "", "http://a.example/x/3"),
            ('rel="prev-archive" href="3"', f'xml:base="{BASE}"', f"{BASE}3"),
            (f'rel="{uri}" href="/3"', "", "http://a.example/3"),
            ('rel="prev-archive"', "", None),
            ('rel="prev-archive" href="http://[/"', "", None),
        ):
            links = feed(f"<link {link}/>", attributes).links
            self.assertEqual(links.get("prev-archive"), expected)
            self.assertIsNone(links.get("next-archive"))

    def test_relative_links_of_entries(self) -> None:
        """They are relative to the base of the feed, of the entry or of themselves."""
        link = '<link href="1"/><link rel="via" xml:base="/z/" href="2"/>'
        inside = entry("x", more=f'{link}<content type="image/png" src="3"/>')
        for attributes, base in (
            ("", "http://a.example/x"),
            (f'xml:base="{BASE}"', "http://b.example/y"),
        ):
            (found,) = feed(inside, attributes).found
            site = base.rpartition("/")[0]
            self.assertEqual([each.href for each in found.links], [f"{base}/1", f"{site}/z/2"])
            assert found.content is not None
            self.assertEqual(found.content.src, f"{base}/3")

    def test_links_in_an_entry_with_a_base(self) -> None:
        """It is within that of the feed, and those of the links are within it."""
        link = '<link href="1"/><link xml:base="w/" href="2"/>'
        inside = f'<entry xml:base="z/">{link}</entry>'
        (found,) = feed(inside, f'xml:base="{BASE}"').found
        self.assertEqual([each.href for each in found.links], [f"{BASE}z/1", f"{BASE}z/w/2"])

    def test_very_long_bases(self) -> None:
        """The time that they take does not grow with the links, but for that of reading them."""
        link, path = '<link href="1"/>', "y" * 2_000_000
        inside = f"<entry>{100 * link}</entry>" * 100
        began_at = process_time()
        feed(inside, f'xml:base="http://b.example/{path}"')
        self.assertLess(process_time() - began_at, 5.0)

    def test_permanent_url(self) -> None:
        archive = '<a:archive xmlns:a="http://purl.org/syndication/history/1.0"/>'
        for inside, expected in (
            ("", ""),
            ('<link rel="via" href="/4"/>', "http://a.example/4"),
            ('<link rel="next-archive" href="/4"/>', "http://a.example/x/recent"),
            (archive, "http://a.example/x/recent"),
        ):
            self.assertEqual(feed(inside).permanent, expected)


class EntryTests(SynchronousTestCase):
    def test_order(self) -> None:
        """It is told by the times, if they tell; what stands there twice counts once."""
        one, two, three, _, five = (
            entry(f"{day}", f"2013-01-0{day}T00:00:00Z") for day in range(1, 6)
        )
        later = entry("1", "2013-01-02T00:00:00Z")
        no_times = entry("1") + entry("2")
        for inside, assumed, ids, order in (
            (two + one, True, "12", Order(newest_first=True, known=True)),
            (two + one, False, "12", Order(newest_first=True, known=True)),
            (one + two, True, "12", Order(newest_first=False, known=True)),
            (one + two, False, "12", Order(newest_first=False, known=True)),
            (no_times, True, "21", Order(newest_first=True, known=False)),
            (no_times, False, "12", Order(newest_first=False, known=False)),
            (two + five + one, True, "152", Order(newest_first=True, known=False, mixed=True)),
            (three + five + two + one, False, "1253", Order(True, known=True, mixed=True)),
            (no_times + entry("1"), True, "12", Order(True, known=False, repeated="1")),
            (later + one, True, "11", Order(newest_first=True, known=True)),  # two versions
        ):
            found, told = feed(inside).entries(assumed)
            self.assertEqual(("".join(each.id for each in found), told), (ids, order))

    def test_times_at_the_ends_of_the_calendar(self) -> None:
        for text, expected in (
            ("9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59.000000Z"),
            ("9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59.000000Z"),
            ("0001-01-01T00:00:00", "0001-01-01T00:00:00.000000Z"),
            ("0001-01-01T00:00:00+12:00", "0001-01-01T00:00:00.000000Z"),
        ):
            updated, published = f"<updated>{text}</updated>", f"<published>{text}</published>"
            written = json.loads(encode_json(only(updated + published), "http://a.example/3"))
            self.assertEqual((written["updated"], written["published"]), (expected, expected))

    def test_contents_of_each_form(self) -> None:
        for content, expected in (
            (">a &lt; b", EntryContent("text", "a < b")),
            (' type="html">&lt;b&gt;', EntryContent("html", "<b>")),
            (' type="image/png">AAEC\nAw==', EntryContent("image/png", data=b"\0\1\2\3")),
            (' type="a/b" src="c.png">', EntryContent("a/b", src="http://a.example/x/c.png")),
            (' type="a/json">{"a":1}', EntryContent("a/json", '{"a":1}')),
            (
                ' type="a/xml"><a xmlns="">1</a> &amp; <b xmlns="urn:b"/>',
                EntryContent("a/xml", '<a>1</a> &amp; <b xmlns="urn:b"/>'),
            ),
        ):
            found = only(f"<content{content}</content>").content
            assert found is not None
            # Some declarations repeat those around them.
            evened = evolve(found, text=found.text.replace(' xmlns=""', ""))
            self.assertEqual(evened, expected)

    def test_ict4h(self) -> None:
        """The forms of ICT4H's atomfeed: oldest first, and texts where Atom demands elements."""
        found = parse((FIXTURES / "ict4h.xml").read_bytes(), "http://a.example/recent", {})
        self.assertEqual(found.links.get("prev-archive"), "http://a.example/feeds/1")
        self.assertEqual(found.permanent, "http://a.example/feeds/2")
        entries, order = found.entries(True)
        self.assertEqual([each.title for each in entries], ["Patient", "Encounter", "Escaped"])
        self.assertFalse(order.newest_first)
        texts = [each.content.text for each in entries if each.content]
        path = "/openmrs/ws/rest/v1/patient/1?v=full"
        self.assertEqual(texts, [path, '{"username":"Bill"}', "/patient/2"])
        self.assertEqual({each.content.form for each in entries if each.content}, {"text"})
        self.assertEqual(entries[0].categories[0].term, "patient")

    def test_what_is_missing(self) -> None:
        self.assertEqual(only('<link href="/a"/><title>t</title>').id, "http://a.example/a")
        self.assertEqual(only("<title>t</title>").id, "t")
        self.assertEqual(only("<updated>yesterday</updated>").updated, 0.0)
        self.assertEqual(only("<published>1970-01-01T00:00:02Z</published>").updated, 2.0)

    def test_charset_of_the_answer(self) -> None:
        """It counts if the document declares none."""
        body = _FEED.format("", "<entry><title>Caf\xe9</title></entry>").encode("latin-1")
        headers = {"content-type": "application/atom+xml; charset=ISO-8859-1"}
        for document in (body, b'<?xml version="1.0" encoding="iso-8859-1"?>' + body):
            (found,) = parse(document, "http://a.example/", headers).found
            self.assertEqual(found.title, "Caf\xe9")
        (found,) = parse(body.decode("latin-1").encode(), "http://a.example/", {}).found
        self.assertEqual(found.title, "Caf\xe9")

    def test_parts(self) -> None:
        found = only(
            '<title type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml">a <b>c</b></div></title>'
            "<author><name>j</name><email>j@a</email></author><summary>s</summary>"
            "<updated>1970-01-01T01:00:01+01:00</updated>"
        )
        self.assertEqual((found.title, found.summary, found.updated), ("a c", "s", 1.0))
        self.assertEqual(found.author, Person("j", "", "j@a"))


class PositionTests(SynchronousTestCase):
    def test_first_entry_after_a_position(self) -> None:
        one, two, three = some(3)
        self.assertEqual(index_after([one, two, three], Position(two.id, two.updated)), 2)
        self.assertEqual(index_after([one, two, three], Position(two.id, 0.0)), 2)
        self.assertIsNone(index_after([one, three], Position(two.id, two.updated)))

    def test_positions_in_documents(self) -> None:
        found = feed(entry("1", "1970-01-01T00:00:02Z") + "<entry><title>t</title></entry>")
        self.assertTrue(found.has(Position("1", 2.0)))
        self.assertFalse(found.has(Position("1", 3.0)))
        self.assertTrue(found.has_id("1"))
        self.assertTrue(found.has(Position("t", 0.0)))
        self.assertFalse(found.has_id("2"))


class RefusalTests(SynchronousTestCase):
    def test_too_many_entries(self) -> None:
        """The broker goes through them while everybody waits."""
        self.assertEqual(len(feed("<entry/>" * MAX_ENTRIES).found), MAX_ENTRIES)
        with self.assertRaisesRegex(NotAFeed, "10,001 entries"):
            feed("<entry/>" * (MAX_ENTRIES + 1))

    def test_too_many_parts_are_cut(self) -> None:
        found = only('<link href="/"/>' * 200 + '<category term="x"/>' * 200 + "<title>T</title>")
        self.assertEqual((len(found.links), len(found.categories), found.title), (100, 100, "T"))

    def test_no_feeds(self) -> None:
        bomb = b"<!DOCTYPE a [<!ENTITY b 'bbbbbbbb'><!ENTITY c '&b;&b;&b;&b;'>]><feed>&c;</feed>"
        deep = _FEED.format("", "<a>" * 220 + "</a>" * 220).encode()
        for body, reason in (
            (b"", "not XML"),
            (b"Please sign in", "not XML"),
            (b"<html/>", "its root element is 'html' and not atom:feed"),
            (b"<rss><channel/></rss>", "its root element is 'rss'"),
            (b"<feed/>", "not an Atom feed"),
            (bomb, "DOCTYPE"),
            (deep, "nest"),
        ):
            error = self.assertRaises(NotAFeed, parse, body, "http://a.example/", {})
            self.assertIn(reason, str(error))
