"""Reading documents: items in all formats, and what bad ones may not do."""

from __future__ import annotations

import contextlib
from html import escape

from lxml import html
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.river import reading, trimming
from rsscloud_broker.apps.river.cleaning import MAX_CLEANED, MAX_HTML, safe_html
from rsscloud_broker.apps.river.model import Item, ItemEnclosure, Offer, SubItem
from rsscloud_broker.apps.river.reading import header_offers, read_document
from rsscloud_broker.wire.feed_tree import UnreadableFeed
from rsscloud_broker.wire.text import legal
from tests.xss_payloads import ACTIVE, INERT

URL = "http://blog.example/feeds/rss.xml"


def rss(items: str, head: str = "") -> bytes:
    return (
        '<?xml version="1.0" encoding="UTF-8"?><rss version="2.0" '
        'xmlns:atom="http://www.w3.org/2005/Atom" xmlns:rssCloud="http://rsscloud.example/ns" '
        'xmlns:content="http://purl.org/rss/1.0/modules/content/">'
        f"<channel><title>A blog</title>{head}{items}</channel></rss>"
    ).encode()


def entries(body: bytes, kind: str = "application/rss+xml") -> list[Item]:
    return list(read_document(body, kind, URL).entries)


def only(items: str) -> Item:
    """The only item of an RSS feed."""
    (entry,) = entries(rss(items))
    return entry


class FormatTests(SynchronousTestCase):
    def test_rss(self) -> None:
        entry = only(
            "<item><title>A &amp;amp; B</title><link>/posts/1</link>"
            '<guid isPermaLink="false">tag:1</guid>'
            "<pubDate>Thu, 01 Oct 2026 10:00:00 +0200</pubDate>"
            "<description>short</description>"
            "<content:encoded><![CDATA[<p>All <b>of</b> it</p>]]></content:encoded>"
            '<enclosure url="/a.mp3" length="1024" type="Audio/MPEG"/></item>'
        )
        expected = Item(
            *(0, 0, "tag:1", "A & B", "<p>All <b>of</b> it</p>", "http://blog.example/posts/1"),
            enclosures=(ItemEnclosure("http://blog.example/a.mp3", "audio/mpeg", 1024),),
            published_at=1_790_841_600.0,
        )
        self.assertEqual(entry, expected)

    def test_atom(self) -> None:
        body = (
            '<feed xmlns="http://www.w3.org/2005/Atom" xml:base="http://other.example/">'
            '<title>T</title><link rel="hub" href="http://hub.example/"/>'
            '<link rel="self" href="http://blog.example/self"/>'
            '<entry><id>urn:1</id><title type="text">5 &lt; 6</title><link href="/1"/>'
            "<updated>2026-10-01T08:00:00Z</updated>"
            '<content type="html">&lt;a href="x"&gt;x&lt;/a&gt;</content></entry>'
            '<entry><id>urn:2</id><title>Plain</title><link href="/2"/>'
            "<updated>2026-10-02T08:00:00Z</updated><summary>a &amp; b</summary></entry></feed>"
        )
        document = read_document(body.encode(), "application/atom+xml", URL)
        second, first = document.entries  # the newer one comes first
        self.assertEqual((first.guid, first.link), ("urn:1", "http://other.example/1"))
        self.assertEqual(first.published_at, 1_790_841_600.0)
        self.assertIn('<a href="http://other.example/x"', first.text_html)
        self.assertEqual(second.text_html, "a &amp; b")
        hub = Offer("websub", "http://hub.example/", "http://blog.example/self")
        self.assertEqual(document.offers, (hub,))

    def test_text_of_atom_is_no_html(self) -> None:
        """What is between the signs is text as well; in RSS it is markup."""
        written = "if a &lt;b> and c&lt;/b> &amp;amp; d"
        for kind in ("", ' type="text"', ' type="text/plain"'):
            for name in ("summary", "content"):
                (entry,) = entries(
                    '<feed xmlns="http://www.w3.org/2005/Atom"><title>T</title><entry>'
                    f"<id>urn:1</id><title{kind}>{written}</title>"
                    f"<{name}{kind}>{written}</{name}></entry></feed>".encode(),
                    "application/atom+xml",
                )
                self.assertEqual(entry.title, "if a <b> and c</b> &amp; d", f"{name}{kind}")
                self.assertEqual(entry.text_html, "if a &lt;b&gt; and c&lt;/b&gt; &amp;amp; d")
        entry = only(f"<item><title>{written}</title><description>{written}</description></item>")
        texts = ("if a  and c & d", "if a <b> and c</b> &amp; d")
        self.assertEqual((entry.title, entry.text_html), texts)

    def test_rdf(self) -> None:
        (entry,) = entries(
            b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
            b'xmlns="http://purl.org/rss/1.0/"><channel rdf:about="x"><title>T</title></channel>'
            b'<item rdf:about="http://a.example/1"><title>One</title><link>http://a.example/1</link>'
            b"</item></rdf:RDF>"
        )
        self.assertEqual((entry.title, entry.guid), ("One", "http://a.example/1"))

    def test_media_rss(self) -> None:
        """YouTube, for instance, has its descriptions in a group."""
        media = 'xmlns:media="http://search.yahoo.com/mrss/"'
        (entry, other) = entries(
            rss(
                f"<item><guid>1</guid><media:group {media}><media:title>A film</media:title>"
                '<media:content url="http://a.example/v" type="video/mp4"/>'
                "<media:description>Of ducks</media:description></media:group></item>"
                f"<item><guid>2</guid><title>Mine</title><media:content {media} url='/i.png'>"
                "<media:title>Theirs</media:title></media:content></item>"
            )
        )
        self.assertEqual((entry.title, entry.text_html), ("A film", "Of ducks"))
        self.assertEqual(other.title, "Mine")

    def test_prefixes_that_are_not_declared(self) -> None:
        (entry,) = entries(
            b"<rss><channel><item><title>R & D</title><description>short</description>"
            b"<content:encoded>&lt;p&gt;All&lt;/p&gt;</content:encoded><x:y:title>?</x:y:title>"
            b"<dc:date>2026-10-01</dc:date></item></channel></rss>"
        )
        self.assertEqual((entry.title, entry.text_html), ("R & D", "<p>All</p>"))
        self.assertIsNotNone(entry.published_at)

    def test_namespaces_that_are_no_uris(self) -> None:
        """White space around one is a slip; of others the elements are left out, if need be."""
        item = "<item><title>A</title><x:encoded>text</x:encoded></item>"
        right = "http://purl.org/rss/1.0/modules/content/"
        for namespace, text in (
            (f"{right} ", "text"),
            (f"\n {right}", "text"),
            ("http:\\\\purl.org", ""),
            ("a {b}c", ""),
        ):
            body = f'<rss version="2.0" xmlns:x="{namespace}"><channel>{item}</channel></rss>'
            (entry,) = entries(body.encode())
            self.assertEqual((entry.title, entry.text_html), ("A", text), namespace)
        atom = '<feed xmlns="%s"><entry><id>urn:1</id><title>5 &lt; 6</title></entry></feed>'
        for namespace in ("http://www.w3.org/2005/Atom ", "not Atom"):
            (entry,) = entries((atom % namespace).encode())
            self.assertEqual(entry.guid, "urn:1")

    def test_json_whose_items_are_none(self) -> None:
        for items in (b"5", b"true", b'"x"', b"{}", b"null"):
            body = b'{"version": "https://jsonfeed.org/version/1.1", "title": "T", "items": %s}'
            self.assertEqual(list(entries(body % items, "application/feed+json")), [])

    def test_json(self) -> None:
        body = (
            b'{"version": "https://jsonfeed.org/version/1.1", "title": "T", "items": ['
            b'{"id": 7, "url": "/7", "title": "Seven", "content_html": "<p>x<script>y</script>",'
            b' "date_published": "2026-10-01T08:00:00Z", "attachments": [{"url": "/a.png", '
            b'"mime_type": "image/png", "size_in_bytes": 9}, "nonsense"]},'
            b'{"content_text": "a < b", "date_published": "no date"}, "nonsense"]}'
        )
        first, second = entries(body, "application/feed+json")
        expected = Item(
            *(0, 0, "7", "Seven", "<p>x</p>", "http://blog.example/7"),
            enclosures=(ItemEnclosure("http://blog.example/a.png", "image/png", 9),),
            published_at=1_790_841_600.0,
        )
        self.assertEqual(first, expected)
        self.assertEqual((second.text_html, second.published_at), ("a &lt; b", None))

    def test_hubs_and_clouds_in_the_order_of_preference(self) -> None:
        head = (
            '<cloud domain="c.example" port="80" path="/p" registerProcedure="" protocol="soap"/>'
            '<atom:link rel="hub" href="/hub"/><atom:link rel="hub" href="javascript:x"/>'
        )
        hub, cloud = read_document(rss("", head), "", URL).offers
        self.assertEqual(hub, Offer("websub", "http://blog.example/hub", URL))
        self.assertEqual((cloud.kind, cloud.url), ("rsscloud", "http://c.example/p"))

    def test_hubs_in_headers(self) -> None:
        hub = Offer("websub", "http://blog.example/hub", URL, in_header=True)
        self.assertEqual(header_offers('</hub>; rel="hub"', URL), (hub,))
        self.assertEqual(header_offers("no link", URL), ())


class IdentityTests(SynchronousTestCase):
    def guids(self, items: str) -> list[str]:
        return [entry.guid for entry in entries(rss(items))]

    def test_guid_else_link_else_hash(self) -> None:
        link = "<link>http://a.example/</link>"
        self.assertEqual(self.guids(f"<item><guid>urn:g</guid>{link}</item>"), ["urn:g"])
        self.assertEqual(self.guids(f"<item>{link}</item>"), ["http://a.example/"])
        one, two = self.guids("<item><title>a</title></item><item><title>b</title></item>")
        self.assertTrue(one.startswith("sha256:") and two.startswith("sha256:"))
        self.assertNotEqual(one, two)

    def test_items_without_a_guid_that_share_a_link(self) -> None:
        """None is taken for another version of another one, and each stays the same."""
        a, b, c = (
            f"<item><title>{name}</title><link>http://a.example/</link></item>" for name in "abc"
        )
        before = self.guids(b + a)
        self.assertEqual(len(set(before)), 2)
        self.assertEqual(self.guids(c + b + a)[1:], before)
        with_id = "<item><guid>urn:g</guid><link>http://a.example/</link></item>"
        self.assertEqual(self.guids(with_id + a), ["urn:g", "http://a.example/"])

    def test_each_once(self) -> None:
        entry = only("<item><guid>g</guid><title>new</title></item><item><guid>g</guid></item>")
        self.assertEqual(entry.title, "new")

    def test_endless_ids_become_hashes(self) -> None:
        one, two = self.guids(
            f"<item><guid>{'x' * 9999}</guid></item><item><guid>{'x' * 9998}</guid></item>"
        )
        self.assertTrue(one.startswith("sha256:"))
        self.assertNotEqual(one, two)


class HierarchyTests(SynchronousTestCase):
    def test_sub_items_nest(self) -> None:
        entry = only(
            "<item><title>Top</title><description>top</description>"
            "<rssCloud:item><title>One</title><link>/1</link>"
            "<rssCloud:item><description>&lt;b&gt;deep&lt;/b&gt;</description></rssCloud:item>"
            "</rssCloud:item><rssCloud:item><title>Two</title></rssCloud:item></item>"
        )
        self.assertEqual((entry.title, entry.text_html), ("Top", "top"))
        one = SubItem("One", "", "http://blog.example/1", (SubItem("", "<b>deep</b>"),))
        self.assertEqual(entry.items, (one, SubItem("Two")))

    def test_bounds(self) -> None:
        depth = trimming.MAX_DEPTH + 30
        deep = "<rssCloud:item>" * depth + "</rssCloud:item>" * depth
        levels, items = 0, only(f"<item>{deep}</item>").items
        while items:
            levels, items = levels + 1, items[0].items
        self.assertEqual(levels, trimming.MAX_DEPTH)
        many = "<rssCloud:item><title>x</title></rssCloud:item>" * (trimming.MAX_NUMBER + 9)
        self.assertEqual(len(only(f"<item>{many}</item>").items), trimming.MAX_NUMBER)
        large = f"<rssCloud:item><description>{'x' * 40_000}</description></rssCloud:item>" * 9
        self.assertEqual(len(only(f"<item>{large}</item>").items), 3)


class BadDocumentTests(SynchronousTestCase):
    def test_links_that_would_fill_the_memory_are_left_out(self) -> None:
        base = f"http://a.example/{'x' * 1990}/"
        html = "<p>Hi</p>" + "<img src=a>" * (MAX_HTML // 11)
        self.assertEqual(safe_html(html, base), "Hi")
        self.assertLessEqual(len(safe_html("<a href=b>x</a>" * 10_000, base)), MAX_CLEANED)

    def test_scripts_and_styles_are_taken_out(self) -> None:
        for payload in (*ACTIVE, *INERT):
            escaped = escape(legal(payload.decode("utf-8", "replace")))
            items = (
                f"<item><title>{escaped}</title><description>{escaped}</description>"
                f"<link>{escaped}</link><rssCloud:item><description>{escaped}</description>"
                "</rssCloud:item></item>"
            )
            for entry in entries(rss(items)):
                for text in (entry.text_html, *(each.text_html for each in entry.items)):
                    self.assert_harmless(text)
                self.assertRegex(entry.link, r"\A(https?://.*)?\Z")

    def assert_harmless(self, text: str) -> None:
        page = html.fragment_fromstring(text, create_parent="div")
        for element in page.iter():
            self.assertNotIn(element.tag, {"script", "style", "iframe", "object", "svg", "form"})
            for name, value in element.attrib.items():
                self.assertFalse(name.startswith("on") or name == "style", text)
                if name in {"href", "src"}:
                    self.assertRegex(value, r"\Ahttps?://")
            if element.tag == "a":
                self.assertIn("noopener", element.get("rel", ""))

    def test_links_and_images_are_absolute(self) -> None:
        entry = only(
            "<item><description>&lt;img src='/i.png' width='9' height='9e9' onload='x()'&gt;"
            "&lt;a href='data:text/html,x' style='x'&gt;y&lt;/a&gt;</description></item>"
        )
        self.assertEqual(
            entry.text_html,
            '<img src="http://blog.example/i.png" width="9">'
            '<a rel="nofollow noopener noreferrer">y</a>',
        )

    def test_javascript_links_and_enclosures_are_left_out(self) -> None:
        entry = only(
            "<item><link>javascript:alert(1)</link><title>x</title>"
            '<enclosure url="file:///etc/passwd" length="-1" type="x"/>'
            '<enclosure url="http://a.example/b" length="99999999999999999999"/></item>'
        )
        self.assertEqual(entry.link, "")
        self.assertEqual(entry.enclosures, (ItemEnclosure("http://a.example/b"),))

    def test_refused(self) -> None:
        bomb = '<!DOCTYPE rss [<!ENTITY a "{}">]><rss><channel><title>&a;</title></channel></rss>'
        external = '<!DOCTYPE rss [<!ENTITY a SYSTEM "file:///etc/passwd">]><rss>&a;</rss>'
        for body in (b"", b"hello", b"<html/>", bomb.format("x" * 99).encode(), external.encode()):
            self.assertRaises(UnreadableFeed, read_document, body, "", URL)

    def test_endless_texts_are_cut(self) -> None:
        title, text = "t" * 9999, "&lt;b&gt;x" * 99_999
        entry = only(f"<item><title>{title}</title><description>{text}</description></item>")
        self.assertEqual(len(entry.title), 500)
        self.assertLess(len(entry.text_html), 5 * MAX_HTML)

    def test_texts_that_become_much_longer_are_left_out(self) -> None:
        """Long absolute links make a hundred kilobytes of two; the newest items are kept."""
        links = escape('<a href="x">y</a>' * 10)
        items = "".join(
            f'<item xml:base="http://a.example/{"b" * 1900}/"><guid isPermaLink="false">{number}'
            f"</guid><description>{links}</description></item>"
            for number in range(5)
        )
        self.patch(reading, "MAX_TEXT", 50_000)
        self.assertEqual([entry.guid for entry in entries(rss(items))], ["0", "1"])

    def test_many_items_are_read_from_both_ends(self) -> None:
        items = "".join(f'<item><guid isPermaLink="false">{n}</guid></item>' for n in range(3000))
        found = entries(rss(items))
        self.assertEqual(len(found), reading.MAX_ENTRIES)
        self.assertEqual((found[0].guid, found[-1].guid), ("0", "2999"))

    def test_levels_without_end(self) -> None:
        deep = "<rssCloud:item>" * 100_000 + "</rssCloud:item>" * 100_000
        with contextlib.suppress(UnreadableFeed):
            self.assertEqual(only(f"<item><title>x</title>{deep}</item>").title, "x")

    def test_malformed_feeds_are_read_as_well_as_may_be(self) -> None:
        (entry,) = entries(b"<rss><channel><title>T & U</title><item><title>A & B</title></item>")
        self.assertEqual(entry.title, "A & B")
