from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire import resourcesync
from rsscloud_broker.wire.resourcesync import (
    CHANGE,
    CHANGES,
    FRAMEWORK,
    SITEMAP,
    TERMS,
    USUAL_CHANGES,
    InvalidDocument,
    Ln,
    ResourceDocument,
    ResourceEntry,
    decode,
    decode_notification,
    encode,
    first_link,
)
from rsscloud_broker.wire.times import iso_time

FIXTURES = Path(__file__).parent / "fixtures" / "resourcesync"
SET = "http://example.com/dataset1"

OPENING = f'<urlset xmlns="{SITEMAP}" xmlns:rs="{TERMS}">'
TOP = '<rs:md capability="framework-notification"/>'
URL = (
    "<url><loc>http://example.com/a.xml</loc>"
    '<rs:md change="updated" capability="changelist"/></url>'
)


def fixture(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


def document(*parts: str) -> bytes:
    return f"{OPENING}{''.join(parts)}</urlset>".encode()


class ExampleTests(SynchronousTestCase):
    """The examples of the specification."""

    def test_one_new_resource_list(self) -> None:
        notification = decode_notification(fixture("new_resource_list.xml"))
        url, at = "http://example.com/resourceset1/resourcelist.xml", "2013-01-03T00:07:22Z"
        entry = ResourceEntry(url, "resourcelist", "created", at)
        up = Ln("up", f"{SET}/capabilitylist.xml")
        self.assertEqual(notification, ResourceDocument(FRAMEWORK, (entry,), (up,)))
        self.assertEqual(first_link(notification.links, "up"), up.href)
        self.assertEqual(resourcesync.warnings(notification), [])

    def test_three_changes(self) -> None:
        notification = decode_notification(fixture("three_changes.xml"))
        self.assertEqual(first_link(notification.links, "up"), "")
        first = notification.entries[0]
        self.assertEqual(first_link(first.links, "index"), f"{SET}/resourcelist-index.xml")
        self.assertEqual(
            [(entry.loc, entry.capability, entry.change) for entry in notification.entries],
            [
                (f"{SET}/resourcelist.xml", "resourcelist", "created"),
                (f"{SET}/resourcedump.xml", "resourcedump", "created"),
                (f"{SET}/changelist.xml", "changelist", "updated"),
            ],
        )
        self.assertEqual(resourcesync.warnings(notification), [])

    def test_capability_list_with_a_channel(self) -> None:
        found = decode(fixture("capability_list.xml"))
        self.assertEqual(found.capability, "capabilitylist")
        up = first_link(found.links, "up")
        self.assertEqual(up, "http://example.com/source_description.xml")
        expected = ["resourcelist", "resourcedump", "changelist", "changedump", FRAMEWORK]
        self.assertEqual([entry.capability for entry in found.entries], expected)
        hub = Ln("hub", "http://hub.example.com/pubsubhubbub/")
        channel = ResourceEntry(f"{SET}/framework/", FRAMEWORK, links=(hub,))
        self.assertEqual(found.entries[-1], channel)

    def test_change_notification(self) -> None:
        notification = decode_notification(fixture("changed_resource.xml"))
        self.assertEqual(notification.capability, CHANGE)
        (entry,) = notification.entries
        self.assertEqual((entry.change, entry.length, entry.type), ("updated", 8876, "text/html"))
        self.assertEqual(entry.lastmod, "2026-09-29T11:00:00Z")
        self.assertEqual(resourcesync.warnings(notification), [])


class WritingTests(SynchronousTestCase):
    def test_the_whole_document(self) -> None:
        entry = ResourceEntry(
            f"{SET}/a?b&c", lastmod=iso_time(0), hash="sha-256:00", length=0, type="text/xml"
        )
        links = (Ln("up", f"{SET}/up"),)
        for document in (
            ResourceDocument("resourcelist", (entry,), links, at=iso_time(1)),
            ResourceDocument("changelist", (entry,), links, since=iso_time(1)),
        ):
            time = "at" if document.at else "from"
            self.assertEqual(
                encode(document).decode(),
                "<?xml version='1.0' encoding='UTF-8'?>\n"
                f'{OPENING}\n<rs:ln rel="up" href="{SET}/up"/>\n'
                f'<rs:md capability="{document.capability}" {time}="1970-01-01T00:00:01Z"/>\n'
                f"<url><loc>{SET}/a?b&amp;c</loc><lastmod>1970-01-01T00:00:00Z</lastmod>"
                '<rs:md hash="sha-256:00" length="0" type="text/xml"/></url>\n'
                "</urlset>",
            )


urls = st.from_regex(r"https?://[a-z]{1,8}\.example/[a-zA-Z0-9/?&=;'_.~-]{0,20}", fullmatch=True)
times = st.one_of(st.just(""), st.integers(0, 2**32).map(iso_time))
words = st.sampled_from(["", "a", "text/xml", 'with "quotes" & <more>', "ünï"])
links_of = st.lists(st.builds(Ln, st.sampled_from(["up", "index", "hub"]), urls), max_size=2)
entries = st.builds(
    ResourceEntry,
    loc=urls,
    capability=st.sampled_from(list(USUAL_CHANGES)),
    change=st.sampled_from(CHANGES),
    datetime=times,
    lastmod=times,
    hash=words,
    length=st.one_of(st.none(), st.integers(0, 10**15 - 1)),
    type=words,
    links=links_of.map(tuple),
)
documents = st.builds(
    ResourceDocument,
    capability=st.sampled_from([FRAMEWORK, CHANGE]),
    entries=st.lists(entries, min_size=1, max_size=4).map(tuple),
    links=links_of.map(tuple),
    at=times,
    since=times,
)


class RoundTripTests(SynchronousTestCase):
    @given(documents)
    def test_what_is_written_is_read(self, written: ResourceDocument) -> None:
        self.assertEqual(decode_notification(encode(written)), written)

    @given(st.binary())
    def test_anything(self, data: bytes) -> None:
        for bytes_ in (data, OPENING.encode() + data + b"</urlset>"):
            with self.assertRaises(InvalidDocument):
                decode_notification(bytes_)


class RuleTests(SynchronousTestCase):
    """Each document that breaks a rule is refused with the rule."""

    def refusal(self, *parts: str) -> str:
        return str(self.assertRaises(InvalidDocument, decode_notification, document(*parts)))

    def test_order_and_other_namespaces_do_not_matter(self) -> None:
        other = '<x:news xmlns:x="http://example.com/x"><x:md/></x:news>'
        self.assertEqual(len(decode_notification(document(other, URL, TOP, "text")).entries), 1)

    def test_charset_of_http(self) -> None:
        url = URL.replace("a.xml", "ä.xml")
        latin = document(TOP, url).decode().encode("iso-8859-1")
        notification = decode_notification(latin, "iso-8859-1")
        self.assertEqual(notification.entries[0].loc, "http://example.com/ä.xml")

    def test_xml_and_root(self) -> None:
        spaces = f'xmlns="{SITEMAP}" xmlns:rs="{TERMS}"'
        for data, text in (
            (b"<urlset", "not acceptable XML"),
            (b"<!DOCTYPE urlset>" + document(TOP, URL), "DOCTYPE"),
            (f"<sitemapindex {spaces}>{TOP}</sitemapindex>".encode(), "indexes"),
            (f"<feed {spaces}>{TOP}{URL}</feed>".encode(), "is 'feed'"),
            (f'<urlset xmlns:rs="{TERMS}">{TOP}</urlset>'.encode(), f"must be urlset in {SITEMAP}"),
        ):
            error = self.assertRaises(InvalidDocument, decode_notification, data)
            self.assertIn(text, str(error))

    def test_top_level_md(self) -> None:
        self.assertIn("0 rs:md elements; it must have exactly one", self.refusal(URL))
        self.assertIn("2 rs:md elements; it must have exactly one", self.refusal(TOP, TOP, URL))
        self.assertIn("must have a capability", self.refusal("<rs:md/>", URL))
        for capability in ("framework", "resourcelist", "Framework-Notification"):
            top = f'<rs:md capability="{capability}"/>'
            self.assertIn(f"is {capability!r}; that of a notification", self.refusal(top, URL))

    def test_loc(self) -> None:
        for loc in ("", "/a.xml", "a.xml", "//example.com/", "ftp://x/", "http://", "http://x y/"):
            url = URL.replace("http://example.com/a.xml", loc)
            self.assertIn("must be an absolute http or https URL", self.refusal(TOP, url))
        for url, text in (
            ("<url><rs:md change='created'/></url>", "url has 0 loc elements"),
            (URL.replace("<loc>", "<loc/><loc>"), "url has 2 loc elements"),
            ("<url><loc>http://x/</loc></url>", "the url http://x/ has 0 rs:md"),
            (URL.replace("</url>", "<rs:md/></url>"), "has 2 rs:md"),
        ):
            self.assertIn(text, self.refusal(TOP, url))

    def test_change(self) -> None:
        for change in ("", "Created", "moved"):
            text = self.refusal(TOP, URL.replace("updated", change))
            self.assertIn(f"has the change {change!r}", text)
            self.assertIn("one of created, updated, deleted", text)

    def test_capability(self) -> None:
        for capability in ("", "feed", "framework-notification"):
            text = self.refusal(TOP, URL.replace("changelist", capability))
            self.assertIn(f"has the capability {capability!r}", text)
            self.assertIn("one of resourcelist, ", text)

    def test_a_change_notification_needs_no_capabilities(self) -> None:
        top, url = TOP.replace(FRAMEWORK, CHANGE), URL.replace(' capability="changelist"', "")
        self.assertEqual(len(decode_notification(document(top, url)).entries), 1)
        self.assertIn("has the change ''", self.refusal(top, url.replace("updated", "")))

    def test_ln(self) -> None:
        for ln in ('<rs:ln rel="up"/>', '<rs:ln href="http://x/"/>', '<rs:ln rel="up" href="x"/>'):
            for parts in ((ln, TOP, URL), (TOP, URL.replace("</url>", f"{ln}</url>"))):
                self.assertIn("an rs:ln must have a rel, and an absolute", self.refusal(*parts))

    def test_how_many(self) -> None:
        self.assertIn("a url for each change", self.refusal(TOP))
        self.assertIn("more than", self.refusal(TOP, URL * 4000))


class WarningTests(SynchronousTestCase):
    """Warnings about unusual changes, by table 2 of Framework Notification."""

    def test_every_pair(self) -> None:
        for capability, usual in USUAL_CHANGES.items():
            for change in CHANGES:
                url = URL.replace("updated", change).replace("changelist", capability)
                notification = decode_notification(document(TOP, url))
                found = resourcesync.warnings(notification)
                self.assertEqual(len(found), change not in usual)
                for warning in found:
                    self.assertIn(f"a {capability} that was {change}", warning)
