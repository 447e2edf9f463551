"""Feeds of all formats: well-formed, malformed, and malicious."""

from __future__ import annotations

import codecs
import time
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire.cloud import Cloud
from rsscloud_broker.wire.feed import read_feed, xml_redirect
from rsscloud_broker.wire.feed_facts import FeedFacts
from rsscloud_broker.wire.feed_hints import Hints
from rsscloud_broker.wire.feed_tree import MAX_BYTES, UnreadableFeed

FEEDS = Path(__file__).parent.parent / "fixtures" / "feeds"

#: Seconds that an attack may take on a slow and busy machine; a full parse takes minutes.
LONGEST = 10.0


def facts_of(name: str) -> FeedFacts:
    return read_feed((FEEDS / name).read_bytes())


def rss(inside: str, before: str = '<?xml version="1.0"?>') -> bytes:
    return f'{before}<rss version="2.0"><channel><title>T</title>{inside}</channel></rss>'.encode()


def item(number: int, description: str = "") -> str:
    return f"<item><guid>g{number}</guid><description>{description}</description></item>"


class FormatTests(SynchronousTestCase):
    """Well-formed feeds of every format."""

    def test_formats_titles_and_home_pages(self) -> None:
        lighthouse, attic = "https://lighthouse.example.org", "Записки \u0441 чердака"
        cases = {
            "rss091.xml": ("rss 0.91", "Harbour Notes", "http://harbour.example.org/"),
            "rss092-cloud.xml": ("rss 0.92", "Garden Radio", "http://garden.example.com/"),
            "rss10.rdf": ("rss 1.0", "Town Library", "http://library.example.org/"),
            "rss20-cloud.xml": ("rss 2.0", "Night Train Diary", "http://nighttrain.example.org/"),
            "rss20-hints.xml": ("rss 2.0", "Lighthouse & Buoy", f"{lighthouse}/?lang=en&page=1"),
            "rss20-latin1.xml": ("rss 2.0", "Café de la Gare", "http://cafe.example.fr/"),
            "rss20-windows-1251.xml": ("rss 2.0", attic, "http://cherdak.example.ru/"),
            "atom.xml": ("atom", "Observatory Log", "https://observatory.example.org/log"),
            "atom-hub.xml": ("atom", "Bees & Hives", "https://bees.example.org/"),
            "atom03.xml": ("atom", "Old Orchard", "http://orchard.example.com/"),
            "feed.json": ("json feed", "Paper Boats", "https://boats.example.org/"),
        }
        for name, expected in cases.items():
            facts = facts_of(name)
            self.assertEqual((facts.format, facts.title, facts.link), expected, name)

    def test_good_feeds_have_no_problems(self) -> None:
        faulty = {"malformed.xml", "malformed-cms.xml", "rss20-bad-hints.xml", "feed.json"}
        for path in FEEDS.iterdir():
            if path.name not in faulty:
                self.assertEqual(facts_of(path.name).problems, (), path)

    def test_entries(self) -> None:
        cases = {
            "rss091.xml": (
                "http://harbour.example.org/1999/09/18#mathilde",
                "http://harbour.example.org/tides/1999-10.html",
            ),
            "rss10.rdf": (
                "http://library.example.org/books/8811",
                "http://library.example.org/books/8812",
            ),
            "rss20-hints.xml": ("lighthouse-17", "https://lighthouse.example.org/lens"),
            "atom-hub.xml": ("urn:bees:2", "https://bees.example.org/1"),
            "atom03.xml": ("tag:orchard.example.com,2004:1",),
            "feed.json": ("https://boats.example.org/3", "2", "https://boats.example.org/1"),
            "rss092-cloud.xml": (),
        }
        for name, expected in cases.items():
            self.assertEqual(facts_of(name).entry_ids, expected, name)

    def test_entries_are_bounded(self) -> None:
        facts = read_feed(rss("".join(map(item, range(500 + 100)))))
        self.assertEqual(len(facts.entry_ids), 500)
        self.assertEqual(facts.entry_ids[-1], "g499")

    def test_self_links_and_hubs(self) -> None:
        hub = "https://hub.example.net/"
        cases: dict[str, tuple[str, tuple[str, ...]]] = {
            "rss20-hints.xml": (
                "https://lighthouse.example.org/feed.xml",
                (hub, "https://second-hub.example.net/"),
            ),
            "atom-hub.xml": ("https://bees.example.org/atom", (hub,)),
            "feed.json": ("https://boats.example.org/feed.json", (hub,)),
            "rss20-source-cloud.xml": ("https://kitchen.example.net/rss.xml", ()),
            "rss091.xml": ("", ()),
        }
        for name, expected in cases.items():
            facts = facts_of(name)
            self.assertEqual((facts.self_link, facts.hubs), expected, name)

    def test_links_within_a_base(self) -> None:
        """An element that is around a link, or the link itself, says what it is relative to."""
        head = (
            '<link href="./"/><link rel="self" href="/atom"/><link rel="hub" href="http://[/"/>'
            '<link rel="hub" xml:base="http://hub.example/a/" href="b"/>'
        )
        for base, site in (("http://a.example/blog/", "http://a.example"), ("/blog/", "")):
            feed = f'<feed xmlns="http://www.w3.org/2005/Atom" xml:base="{base}">{head}</feed>'
            facts = read_feed(feed.encode())
            self.assertEqual((facts.link, facts.self_link), (f"{site}/blog/", f"{site}/atom"))
            self.assertEqual(facts.hubs, ("http://hub.example/a/b",))

    def test_clouds(self) -> None:
        train = Cloud("rpc.nighttrain.example.org", 5337, "/rsscloud/pleaseNotify", "", "http-post")
        self.assertEqual(facts_of("rss20-cloud.xml").clouds, (train,))
        json = facts_of("feed.json")
        urls = [cloud.url for cloud in json.clouds]
        self.assertEqual(urls, ["https://cloud.example.net/pleaseNotify"])
        self.assertIn("'not a url' must begin with http", json.problems[0])

    def test_a_cloud_in_an_entry_is_content(self) -> None:
        element = '<cloud domain="d" port="80" path="/" protocol="soap"/>'
        self.assertEqual(read_feed(rss(f"<item>{element}</item>")).clouds, ())

    def test_hints(self) -> None:
        cases = {
            "rss091.xml": Hints(skip_hours=frozenset({0, 2})),
            "rss10.rdf": Hints(update_seconds=43_200.0, update_base=978_339_600.0),
            "rss20-cloud.xml": Hints(ttl_minutes=60),
            "rss20-hints.xml": Hints(90, frozenset({0, 1, 23}), frozenset({5, 6}), 900.0),
            "atom.xml": Hints(),
            "feed.json": Hints(),
        }
        for name, hints in cases.items():
            self.assertEqual(facts_of(name).hints, hints, name)

    def test_the_frequency_of_podcasts_is_no_hint(self) -> None:
        """It says how often there is an episode, for people: https://podcastindex.org/namespace/1.0"""
        podcast = (
            '<podcast:updateFrequency xmlns:podcast="https://podcastindex.org/namespace/1.0"'
            ' rrule="FREQ=HOURLY">Often</podcast:updateFrequency>'
        )
        facts = read_feed(rss(podcast))
        self.assertEqual((facts.hints, facts.problems), (Hints(), ()))
        period = '<x:updatePeriod xmlns:x="{}">hourly</x:updatePeriod>'
        for space in ("http://purl.org/rss/1.0/modules/syndication", "http://syndication.example/"):
            facts = read_feed(rss(podcast + period.format(space)))
            self.assertEqual((facts.hints, facts.problems), (Hints(update_seconds=3600.0), ()))

    def test_invalid_hints_are_told_and_ignored(self) -> None:
        facts = facts_of("rss20-bad-hints.xml")
        self.assertEqual(facts.hints, Hints(skip_hours=frozenset({3}), skip_days=frozenset({0})))
        told = "\n".join(facts.problems)
        for problem in (
            "ttl of -5 is ignored: it must be a number of minutes from 1 to",
            "an hour in skipHours of 99 is ignored",
            "an hour in skipHours of noon is ignored",
            "a day in skipDays of Funday is ignored: days are Monday, Tuesday",
            "updatePeriod of fortnightly is ignored: it must be one of hourly, daily",
            "updateFrequency of often is ignored",
            "updateBase of yesterday is ignored",
            "port 'many' is not a number",
        ):
            self.assertIn(problem, told)
        self.assertEqual(facts.entry_ids, ("tick",))

    def test_feeds_of_odd_shapes(self) -> None:
        cases = {
            b'<rss version="2.0"/>': ("rss 2.0", ""),
            b"<rss><channel><title>T</title></channel></rss>": ("rss 2.0", "T"),
            b'<rss version="2.0.11"><channel/></rss>': ("rss 2.0", ""),
            b'<rss version="0.94"><channel><title/></channel></rss>': ("rss 0.94", ""),
            b'<feed xmlns="urn:mine"><title>T</title></feed>': ("atom", "T"),
            b'<rss version="2.0" xmlns="http://backend.userland.com/rss2"><channel>'
            b"<title>T</title></channel></rss>": ("rss 2.0", "T"),
            b'<r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
            b'xmlns="http://my.netscape.com/rdf/simple/0.9/"><channel><title>T</title></channel>'
            b"<item><link>http://a/1</link></item></r:RDF>": ("rss 0.90", "T"),
        }
        for feed, expected in cases.items():
            facts = read_feed(feed)
            self.assertEqual((facts.format, facts.title), expected, feed)

    def test_long_values(self) -> None:
        item = f"<item><guid>{'y' * 5000}</guid></item>"
        facts = read_feed(rss(f"<link>http://a/{'x' * 5000}</link>{item}"))
        self.assertEqual((facts.link, len(facts.entry_ids[0])), ("", 1000))
        long_link = f"http://a/{'x' * 3000}"
        self.assertEqual(read_feed(rss(f"<link>{long_link}</link>")).link, long_link)


class EncodingTests(SynchronousTestCase):
    """The title is read in any encoding, even if the declaration or HTTP names a wrong one."""

    def test_encodings(self) -> None:
        feed = "<rss version='2.0'><channel><title>Жар é</title></channel></rss>"
        western = feed.replace("Жар", "Zar")
        declared = "<?xml version='1.0' encoding='{}'?>"
        cases = {
            "utf-8": (feed.encode(), "", "Жар é"),
            "with a mark": (codecs.BOM_UTF8 + feed.encode(), "", "Жар é"),
            "utf-16": (feed.encode("utf-16"), "", "Жар é"),
            "utf-16, declared": ((declared.format("utf-16") + feed).encode("utf-16"), "", "Жар é"),
            "by HTTP": (western.encode("latin-1"), 'text/xml; charset="iso-8859-1"', "Zar é"),
            "utf-8, not": ((declared.format("utf-8") + western).encode("latin-1"), "", "Zar é"),
            "latin-1 that is called nothing": (western.encode("latin-1"), "text/xml", "Zar é"),
            "unknown": ((declared.format("x-mine") + feed).encode(), "a/b; charset=no", "Жар é"),
            "no encoding": ((declared.format("punycode") + feed).encode(), "", "Жар é"),
            "ascii, not": ((declared.format("us-ascii") + western).encode("cp1252"), "", "Zar é"),
        }
        for name, (document, content_type, title) in cases.items():
            self.assertEqual(read_feed(document, content_type).title, title, name)


class MalformedTests(SynchronousTestCase):
    """A malformed feed is read as well as possible, and the problem is reported."""

    def test_utf_8_that_is_called_utf_16(self) -> None:
        """.NET writes that; half of all such feeds can be decoded by it, into nonsense."""
        for title in ("Café", "Cafés"):
            feed = rss(f"<description>{title}&nbsp;</description>", "<?xml encoding='UTF-16'?>")
            self.assertEqual(read_feed(feed).title, "T", title)

    def test_a_cloud_whose_prefix_is_not_declared(self) -> None:
        usual = '<cloud domain="a.example" port="80" path="/p" protocol="http-post"/>'
        facts = read_feed(rss(f"{usual}<source:cloud>https://b.example/p</source:cloud>"))
        expected = ["https://b.example/p", "http://a.example/p"]
        self.assertEqual([each.url for each in facts.clouds], expected)

    def test_feeds_of_a_broken_script_and_of_a_hand(self) -> None:
        facts = facts_of("malformed-cms.xml")
        self.assertEqual((facts.format, facts.title), ("rss 2.0", "Fish & Chips — a diary"))
        self.assertEqual(facts.link, "http://fish.example.co.uk/?a=1&b=2")
        self.assertEqual(facts.hints, Hints(30, skip_days=frozenset({6}), update_seconds=86_400.0))
        self.assertEqual([cloud.domain for cloud in facts.clouds], ["rpc.fish.example.co.uk"])
        self.assertEqual(facts.entry_ids, ("fish-2", "http://fish.example.co.uk/?p=1&c=2"))
        self.assertRegex(facts.problems[0], "not well-formed, .*: line ")
        facts = facts_of("malformed.xml")
        self.assertEqual((facts.title, facts.link), ("Rock & Roll", "http://rock.example.com/"))
        self.assertEqual([cloud.domain for cloud in facts.clouds], ["rpc.rock.example.com"])

    def test_common_faults(self) -> None:
        two = item(1) + item(2)
        hints = "<ttl>60</ttl>"
        cases = {
            "a bare ampersand": rss(hints + item(1, "salt & pepper") + item(2)),
            "an entity of HTML": rss(hints + item(1, "caf&eacute;") + item(2)),
            "an entity of nobody": rss(hints + item(1, "&bogus;") + item(2)),
            "unclosed HTML": rss(hints + item(1, "a<br>b<p>c") + item(2)),
            "an unclosed element": rss(item(1, "<own>") + item(2) + hints),
            "control characters": rss(hints + item(1, "a\x01\x0bb") + item(2)),
            "references to control characters": rss(hints + item(1, "&#1;&#999999999;") + item(2)),
            "less-than": rss(hints + item(1, "1 < 2") + item(2)),
            "cut off": rss(hints + two + "<item><title>and th").partition(b"</channel>")[0],
            "an undeclared prefix": rss(hints + "<dc:creator>me</dc:creator>" + two),
            "a message of PHP": rss(hints + two, "<b>Oh</b>: <i>no</i>\n<?xml version='1.0'?>"),
            "two declarations": rss(hints + two, "<?xml version='1.0'?><?xml version='1.0'?>"),
            "a stray end": rss(hints + item(1, "x</b></i>") + item(2)),
            "a script after it": rss(hints + two) + b"<script>alert(1)</script>",
            "an attribute twice": rss(hints + item(1, '<x a="1" a="2"/>') + item(2)),
            "CDATA without an end": rss(hints + item(1, "<![CDATA[x") + item(2)),
            "a DOCTYPE": rss(hints + two, '<!DOCTYPE rss PUBLIC "-//x" "http://x.example/a.dtd">'),
            "a DOCTYPE, and HTML": rss(
                hints + item(1, "&eacute;") + item(2), '<!DOCTYPE rss SYSTEM "rss.dtd">'
            ),
            "parameter entities": rss(
                hints + two, '<!DOCTYPE rss [<!ENTITY % x PUBLIC "-//W3C" "http://x/a.ent">\n%x;]>'
            ),
        }
        for name, feed in cases.items():
            facts = read_feed(feed)
            self.assertEqual((facts.title, facts.entry_ids), ("T", ("g1", "g2")), name)
            self.assertEqual(facts.hints.ttl_minutes, 60)

    def test_references_to_what_is_no_character(self) -> None:
        """libxml2 makes bytes of some of them that are not UTF-8."""
        for number in ("#xD800", "#57343", "#x0", "#0", "#xFFFF", "#x110000", "#9999999"):
            body = (
                f"<rss><channel><title>A&{number}; &b</title>"
                f'<link rel="hub" href="http://h.example/&{number};"/></channel></rss>'
            )
            facts = read_feed(body.encode(), "text/xml")
            self.assertEqual((facts.title, facts.hubs), ("A &b", ("http://h.example/",)), number)

    def test_a_doctype_alone_is_no_fault(self) -> None:
        feed = rss("", '<!DOCTYPE rss PUBLIC "-//x" "http://x.example/rss.dtd">')
        self.assertEqual(read_feed(feed).problems, ())

    def test_the_title_of_an_entry_is_not_that_of_the_feed(self) -> None:
        feed = b"<rss version='2.0'><channel><item><title>No & no</title></item><title>T</title>"
        self.assertEqual(read_feed(feed).title, "T")

    def test_many_unclosed_paragraphs(self) -> None:
        facts = read_feed(rss("".join(item(number, "<p>x") for number in range(400))))
        self.assertEqual(len(facts.entry_ids), 400)


class UnreadableTests(SynchronousTestCase):
    """Documents that are not feeds are refused with the reason."""

    def test_reasons(self) -> None:
        cases = {
            b"": "it is empty",
            b" \r\n": "it is empty",
            b"hello": "neither RSS nor Atom",
            b"\x89PNG\r\n\x1a\n\0\0\xff": "neither RSS nor Atom",
            b"<html><body><p>Hello</p></body></html>": "its root element is html",
            b"<!DOCTYPE html><html><body><br></body></html>": "neither RSS nor Atom",
            b"<!-- <rss version='2.0'> --><html>&</html>": "neither RSS nor Atom",
            b"<opml version='2.0'><head/><body/></opml>": "its root element is opml",
            b'<RDF xmlns="http://www.w3.org/1999/02/22-rdf-syntax-ns#"/>': "RDF, but no RSS",
            b'{"a": 1}': "its version does not say that it is a JSON Feed",
            b'{"version": ["https://jsonfeed.org/version/1"]}': "its version does not say",
            b'{"version": ': "it is not JSON",
            b'{"a":' + b"[" * 100_000: "it is not JSON",
            b'{"a": "\xff"}': "it is not JSON",
            b"<rss>" + b" " * MAX_BYTES: "larger than",
            b'{"a": ' + b" " * MAX_BYTES: "larger than",
        }
        for document, reason in cases.items():
            with self.assertRaisesRegex(UnreadableFeed, reason):
                read_feed(document)

    def test_json_of_other_types(self) -> None:
        facts = read_feed(
            b'{"version": "https://jsonfeed.org/version/1", "title": 5, "feed_url": null,'
            b' "hubs": [1, {"type": [], "url": {}}, {"type": "WebSub"}],'
            b' "items": [null, {"id": true}, {"id": 1.5}]}'
        )
        self.assertEqual((facts.title, facts.hubs, facts.entry_ids), ("5", (), ("1.5",)))

    @settings(max_examples=200)
    @given(
        st.binary(max_size=300)
        | st.text(max_size=300).map(str.encode)
        | st.lists(
            st.sampled_from(
                (
                    *("<rss>", "</rss>", "<channel>", "</channel>", "<item>", "</item>", "a", "&"),
                    *("<skipHours>", "<hour>7", "<ttl>", "<title>", "<link", ">", "[", "]", "\x00"),
                    *("<![CDATA[", "]]>", "<!--", "-->", "<!DOCTYPE ", "<feed ", "xmlns='x'"),
                    "<cloud port='1'",
                )
            ),
            max_size=30,
        ).map(lambda parts: f"<rss>{''.join(parts)}".encode())
    )
    def test_any_bytes_give_facts_or_a_reason(self, body: bytes) -> None:
        try:
            facts = read_feed(body)
        except UnreadableFeed as error:
            self.assertTrue(error.reason)
        else:
            self.assertTrue(facts.format)


class AttackTests(SynchronousTestCase):
    """Documents that try to cost much time or memory, or to read files."""

    def quickly(self, body: bytes) -> str:
        """Read a feed within a time limit; return its title, or why it is unreadable."""
        started = time.process_time()
        try:
            return read_feed(body).title
        except UnreadableFeed as error:
            return error.reason
        finally:
            self.assertLess(time.process_time() - started, LONGEST)

    def test_entities_are_refused(self) -> None:
        laughs = '<!ENTITY a0 "lol">' + "".join(
            f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10)
        )
        documents = {
            "billion laughs": rss("&a9;", f"<?xml version='1.0'?><!DOCTYPE rss [{laughs}]>"),
            "quadratic": rss("&a;" * 100_000, f'<!DOCTYPE rss [<!ENTITY a "{"x" * 50_000}">]>'),
            "a file": rss("&a;", '<!DOCTYPE rss [<!ENTITY a SYSTEM "file:///etc/passwd">]>'),
            "in UTF-16": rss("&a9;", f"<!DOCTYPE rss [{laughs}]>").decode().encode("utf-16"),
            "after a comment": rss("&a;", f'<!-- {"x" * 60_000} --><!DOCTYPE r [<!ENTITY a "b">]>'),
            "large": rss("&a;" * 1000, f'<!DOCTYPE rss [<!ENTITY a "{"x" * 5_000_000}">]>'),
        }
        for name, document in documents.items():
            self.assertIn("entities of its own", self.quickly(document), name)

    def test_an_external_dtd_is_not_fetched(self) -> None:
        self.assertEqual(self.quickly(rss("", '<!DOCTYPE rss SYSTEM "file:///dev/zero">')), "T")

    def test_large_documents_of_one_thing(self) -> None:
        head = b'<rss version="2.0"><channel><title>T</title>'
        units = (
            *(b"<", b"&", b"<a>", b"<p ", b"<a/>", b"<!--", b"<![CDATA[", b"&abcdefghij", b"<rss>"),
            *(b"<item>", b"</a>", b"<?x ", b"<!DOCTYPE x [", b"<cloud>", b'a="1" ', b"\0", b"]]>"),
        )
        for unit in units:
            self.assertEqual(self.quickly(head + unit * ((MAX_BYTES - 100) // len(unit))), "T")
            self.quickly(unit * (MAX_BYTES // 5 // len(unit)))

    def test_many_attributes(self) -> None:
        attributes = b"".join(b'a%d="x" ' % number for number in range(90_000))
        body = b"<rss><channel><title>T</title><cloud " + attributes + b"/></channel></rss>"
        self.assertEqual(self.quickly(body), "T")

    def test_many_invalid_hints(self) -> None:
        hours = "<hour>99</hour>" * 10_000
        facts = read_feed(rss(f"<skipHours>{hours}</skipHours>" * 10))
        self.assertLessEqual(len(facts.problems), 20)


class RedirectTests(SynchronousTestCase):
    """The redirect document, which means the same as a 301 or a 410."""

    def test_moved(self) -> None:
        new = "http://new.example.org/rss?a=1&b=2"
        escaped = new.replace("&", "&amp;")
        plain = f"<redirect><newLocation>{escaped}</newLocation></redirect>"
        cases = {
            "plain": plain.encode(),
            "with a declaration": f'<?xml version="1.0"?>\n{plain}'.encode(),
            "with a comment": f'<?xml version="1.0"?>\n<!-- moved --> \n{plain}'.encode(),
            "with a mark": codecs.BOM_UTF8 + plain.encode(),
            "utf-16": plain.encode("utf-16"),
            "with white space": plain.replace(new[:4], f"\n\t{new[:4]}").encode(),
            "in a section": plain.replace(escaped, f"<![CDATA[{new}]]>").encode(),
            "never closed": f"<redirect>\n<newLocation>{new}<newLocation>\n</redirect>".encode(),
        }
        for name, document in cases.items():
            self.assertEqual(xml_redirect(document), new, name)

    def test_gone(self) -> None:
        for document in (
            b"<redirect><newLocation/></redirect>",
            b'<?xml version="1.0"?><redirect>\n  <newLocation> </newLocation>\n</redirect>',
            b"<redirect><newLocation><!-- no more --></newLocation></redirect>",
        ):
            self.assertEqual(xml_redirect(document), "", document)

    def test_no_redirect(self) -> None:
        for document in (
            b"",
            b"<redirect/>",
            b"<redirect><newLocation><b/></newLocation></redirect>",
            b"<redirect><newLocation></redirect>",  # a malformed document must not end a feed
            b"<redirect><newLocation/>",
            b"<redirection><newLocation>http://a/</newLocation></redirection>",
            b"<rss><redirect><newLocation>http://a/</newLocation></redirect> & </rss>",
            b"text <redirect><newLocation>http://a/</newLocation></redirect>",
            b"<redirect><newLocation>http://a/</newLocation></redirect>" + b" " * 20_000,
            b'<!DOCTYPE r [<!ENTITY a "http://a/">]><redirect><newLocation>&a;</newLocation></redirect>',
            b"<redirect>" + b"<a>" * 3000,
            b"<redirect>\xff\xfe\0",
        ):
            self.assertIsNone(xml_redirect(document), document[:60])
        for path in FEEDS.iterdir():
            self.assertIsNone(xml_redirect(path.read_bytes()))

    @given(st.binary(max_size=100).map(lambda rest: b"<redirect>" + rest))
    def test_any_bytes_never_end_a_feed_by_accident(self, body: bytes) -> None:
        self.assertNotEqual(xml_redirect(body), "")

    def test_feeds_are_not_parsed_for_it(self) -> None:
        body = b"<rss><channel>" + b"<item/>" * 1_000_000
        started = time.process_time()
        for _ in range(1000):
            self.assertIsNone(xml_redirect(body))
        self.assertLess(time.process_time() - started, LONGEST)
        self.assertIsNone(xml_redirect(b"<!--a-->" * 2000))
