"""Documents of logs are valid Atom, are linked as archives, and are read as they were written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.simplefeed import log
from rsscloud_broker.simplefeed.atom import ATOM, HISTORY, render
from rsscloud_broker.simplefeed.documents import parse
from rsscloud_broker.simplefeed.entries import (
    BYTES,
    Category,
    Entry,
    EntryContent,
    EntryLink,
    Person,
    content_of,
    encode_json,
)
from tests.simplefeed.logs import NOON, URLS, some

SCHEMA = etree.RelaxNG(etree.parse(str(Path(__file__).parent / "fixtures" / "atom.rng")))
#: The Schematron rules of RFC 4287, appendix B: for which elements each is, and what must be true.
RULES = (
    ("feed", "boolean(atom:author or not(atom:entry[not(atom:author)]))"),
    ("entry", "boolean(atom:link[@rel='alternate'] or atom:link[not(@rel)] or atom:content)"),
    ("entry", "boolean(atom:author or ../atom:author or atom:source/atom:author)"),
)
A_LOG = log.LogState(
    id=1,
    name="events",
    feed_id="urn:uuid:ff31a040-75bc-11e2-bcfd-0800200c9a66",
    title="Notifications",
    author="Foo CMS",
    per_document=3,
    count=7,
    document=3,
    first=7,
    updated=NOON,
)

TEXTS = st.text(max_size=20)
LINKS = st.builds(EntryLink, TEXTS, st.sampled_from(["related", "self", "alternate"]))
CONTENTS = st.one_of(
    st.builds(EntryContent, st.sampled_from(["text", "html", "text/plain"]), TEXTS),
    st.builds(
        lambda data: EntryContent("image/png", data=data), st.binary(min_size=1, max_size=40)
    ),
    st.builds(lambda src: EntryContent("image/png", src="http://a.example/" + src), st.just("1")),
)
ENTRIES = st.builds(
    Entry,
    title=TEXTS,
    updated=st.floats(0, 4e9).map(lambda seconds: round(seconds, 6)),
    author=st.none() | st.builds(Person, TEXTS.map("n{}".format)),
    links=st.lists(LINKS, max_size=3).map(tuple),
    content=st.none() | CONTENTS,
    categories=st.lists(st.builds(Category, TEXTS), max_size=2).map(tuple),
)


def document(*entries: Entry, number: int = 3, archived: bool = False) -> log.LogDocument:
    return log.LogDocument(A_LOG, number, entries, archived, False, NOON + 9)


def written_and_read(content: EntryContent) -> EntryContent:
    body = render(document(Entry("a", NOON, content=content)), URLS)
    entries, _ = parse(body, "http://a.example/", {}).entries(True)
    found = entries[0].content
    assert found is not None
    return found


class AtomTestCase(SynchronousTestCase):
    def assert_valid(self, body: bytes) -> None:
        feed = etree.fromstring(body)
        self.assertTrue(SCHEMA.validate(feed), SCHEMA.error_log)
        for context, rule in RULES:
            for element in feed.iter(f"{{{ATOM}}}{context}"):
                self.assertTrue(element.xpath(rule, namespaces={"atom": ATOM}), rule)
        # What neither can say: section 4.1.2.
        for entry in feed.iterchildren(f"{{{ATOM}}}entry"):
            content = entry.find(f"{{{ATOM}}}content")
            if content is not None and (content.get("src") or content.get("type") == "image/png"):
                self.assertIsNotNone(entry.find(f"{{{ATOM}}}summary"))


class RenderTests(AtomTestCase):
    def test_links_between_documents(self) -> None:
        recent, first, second, third = URLS.recent, URLS.of(1), URLS.of(2), URLS.of(3)
        whole, hub = document(*some(1)), EntryLink("http://h/", "hub")
        archived = document(*some(3), number=2, archived=True)
        for body, expected in (
            (
                render(whole, URLS, recent=True, links=[hub]),
                {"self": recent, "via": third, "prev-archive": second, "hub": "http://h/"},
            ),
            (render(whole, URLS), {"self": third, "current": recent, "prev-archive": second}),
            (
                render(archived, URLS),
                {"self": second, "current": recent, "prev-archive": first, "next-archive": third},
            ),
            (
                render(document(*some(1), number=1, archived=True), URLS),
                {"self": first, "current": recent, "next-archive": second},
            ),
            (render(document(*some(1), number=1), URLS), {"self": first, "current": recent}),
            (render(document(number=1), URLS, recent=True), {"self": recent, "via": first}),
        ):
            self.assert_valid(body)
            feed = etree.fromstring(body)
            links = feed.iterchildren(f"{{{ATOM}}}link")
            self.assertEqual({each.get("rel"): each.get("href") for each in links}, expected)
            says_archived = feed.find(f"{{{HISTORY}}}archive") is not None
            self.assertEqual(says_archived, "next-archive" in expected)

    def test_entry_that_links_to_no_page_has_its_title_as_content(self) -> None:
        entry = Entry("A < B", NOON, links=(EntryLink("http://b/", "related"),))
        body = render(document(entry), URLS)
        self.assert_valid(body)
        self.assertIn(b'<content type="text">A &lt; B</content>', body)
        linked = render(document(Entry("A", NOON, links=(EntryLink("http://b/"),))), URLS)
        self.assertNotIn(b"<content", linked)

    @given(st.lists(ENTRIES, max_size=4, unique_by=lambda entry: entry.id))
    def test_entries_are_read_as_they_were_written(self, entries: list[Entry]) -> None:
        ordered = sorted(entries, key=lambda entry: -entry.updated)
        body = render(document(*ordered), URLS)
        self.assert_valid(body)
        read, order = parse(body, "http://a.example/documents/3", {}).entries(True)
        self.assertTrue(order.newest_first)
        for written, found in zip(reversed(ordered), read, strict=True):
            self.assertEqual((found.id, found.title), (written.id, written.title))
            self.assertAlmostEqual(found.updated, written.updated, places=5)
            self.assertEqual(found.author, written.author)
            self.assertEqual(found.categories, written.categories)
            relations = [[each.rel for each in one.links] for one in (found, written)]
            self.assertEqual(*relations)
            if written.content is not None:
                assert found.content is not None
                self.assertEqual(found.content.form, written.content.form)
                self.assertEqual(found.content.data, written.content.data)


class ContentTests(AtomTestCase):
    """The rules of RFC 4287, section 4.1.3.3, for contents as they were read."""

    def assert_kept(self, body: bytes, media_type: str, form: str) -> EntryContent:
        content = content_of(body, media_type)
        self.assertEqual(content.form, form)
        self.assertEqual(written_and_read(content), content)
        self.assert_valid(render(document(Entry("a", NOON, content=content)), URLS))
        return content

    def test_text(self) -> None:
        content = self.assert_kept("häl\tlo\n<".encode(), "text/plain; charset=UTF-8", "text")
        self.assertEqual((content.type, content.text), ("text/plain", "häl\tlo\n<"))
        content = self.assert_kept(b"h\xe4llo", "text/html;charset=iso-8859-1", "text")
        self.assertEqual(content.text, "hällo")

    def test_xml(self) -> None:
        for media_type in ("application/rss+xml", "text/xml; charset=utf-8", "application/xml"):
            self.assert_kept(b"<?xml version='1.0'?><rss><a b='1'>x</a></rss>", media_type, "xml")

    def test_elements_keep_their_namespaces(self) -> None:
        for body in (
            b"<a><b/></a>",
            b"<a xmlns='urn:a'><b xmlns=''/></a>",
            b"<p:a xmlns:p='urn:p'><b/><p:c d='>'/></p:a>",
            b"<feed xmlns='http://www.w3.org/2005/Atom'><id>1</id></feed>",
        ):
            content = self.assert_kept(body, "application/xml", "xml")
            feed = etree.fromstring(render(document(Entry("a", NOON, content=content)), URLS))
            (element,) = feed.findall(f".//{{{ATOM}}}content/*")
            names = [(each.tag, dict(each.attrib)) for each in element.iter()]
            expected = [(each.tag, dict(each.attrib)) for each in etree.fromstring(body).iter()]
            self.assertEqual(names, expected)

    def test_very_many_namespaces(self) -> None:
        """The XML would be parsed again for each document, while all threads wait."""
        inside = "".join(f'<a:b xmlns:a="urn:{number}"/>' for number in range(1000 - 1))
        for more, kind in (("", "text/xml"), ('<a:b xmlns:a="urn:x"/>', BYTES)):
            body = f"<r>{inside}{more}</r>".encode()
            self.assertEqual(content_of(body, "text/xml").type, kind)

    def test_very_deep_elements(self) -> None:
        """A document whose elements nest deeper than those of a feed may is not read."""
        for depth, form in ((197, "xml"), (198, "base64")):
            self.assert_kept(b"<a>" * depth + b"</a>" * depth, "text/xml", form)

    def test_bytes(self) -> None:
        content = self.assert_kept(b"\x00\xff", "image/png", "base64")
        self.assertEqual((content.type, content.data), ("image/png", b"\x00\xff"))
        self.assert_kept(b"{}", "application/json; charset=utf-8", "base64")

    def test_what_its_type_does_not_allow_stays_the_same_bytes(self) -> None:
        for body, media_type in (
            (b"<rss>", "application/rss+xml"),
            (b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "text/xml"),
            (b"\xff", "text/plain"),
            (b"a", "text/plain; charset=no-such-charset"),
            (b"a\x00", "text/plain"),
            (b"a\r\nb", "text/plain"),
            (b"a", ""),
            (b"a", "nonsense"),
        ):
            content = self.assert_kept(body, media_type, "base64")
            self.assertEqual((content.type, content.data), ("application/octet-stream", body))

    def test_elsewhere(self) -> None:
        content = EntryContent("image/png", src="http://a.example/1.png")
        self.assertEqual(written_and_read(content), content)

    def test_what_xml_cannot_carry_is_removed(self) -> None:
        entry = Entry("a\x00b\ud800", NOON, content=EntryContent("text", "c\x01d"))
        body = render(document(entry), URLS)
        (found,), _ = parse(body, "http://a.example/", {}).entries(True)
        self.assertEqual((found.title, found.content), ("ab", EntryContent("text", "cd")))


def as_json(entry: Entry) -> Any:
    """An entry as JSON has it: with the names of Atom, and without what there is not."""
    line = encode_json(entry, "http://a.example/3")
    assert b"\n" not in line
    return json.loads(line)


class JsonTests(SynchronousTestCase):
    def test_everything(self) -> None:
        links = (EntryLink("http://a.example/33", "self"),)
        content = EntryContent("text", "two\nlines")
        author, categories = Person("jsmith"), (Category("a"),)
        entry = Entry("Edit", NOON + 0.5, "urn:1", author, links, content, categories, "short")
        self.assertEqual(
            as_json(entry),
            {
                "id": "urn:1",
                "title": "Edit",
                "updated": "2001-09-09T01:46:40.500000Z",
                "author": {"name": "jsmith"},
                "links": [{"href": "http://a.example/33", "rel": "self"}],
                "categories": [{"term": "a"}],
                "summary": "short",
                "content": {"type": "text", "text": "two\nlines"},
                "document": "http://a.example/3",
            },
        )

    def test_little(self) -> None:
        self.assertEqual(set(as_json(Entry("", NOON))), {"id", "updated", "document"})

    def test_contents(self) -> None:
        for content, expected in (
            (EntryContent("a/xml", "<a/>"), {"type": "a/xml", "xml": "<a/>"}),
            (EntryContent("image/png", data=b"\0"), {"type": "image/png", "base64": "AA=="}),
            (EntryContent("image/png", src="/1"), {"type": "image/png", "src": "/1"}),
        ):
            self.assertEqual(as_json(Entry("", NOON, content=content))["content"], expected)
