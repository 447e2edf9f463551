"""Change lists, written in pieces, are well-formed for any text, and their ages are exact."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.model import Ping
from rsscloud_broker.wire.change_list import (
    CLOSING_SIZE,
    Unit,
    closing,
    opening,
    records_told,
    weblogs,
)
from rsscloud_broker.wire.text import legal

#: 2026-09-29 12:00:00 UTC
NOON = 1_790_683_200

any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=40)


def render(*pings: Ping, unit: Unit = "minutes") -> etree._Element:
    return etree.fromstring(opening(NOON, 7) + weblogs(pings, NOON, unit) + closing(len(pings)))


class ChangeListTests(SynchronousTestCase):
    def test_the_whole_document(self) -> None:
        pings = [
            Ping("A & B", "https://example.org/", NOON - 61.5, rss_url="https://example.org/rss"),
            Ping('The "Site"', "https://example.net/?a=1&b=2", NOON - 600),
        ]
        document = opening(NOON, 48211) + weblogs(pings, NOON, "minutes") + closing(2)
        expected = [
            '<?xml version="1.0" encoding="utf-8"?>',
            '<?xml-stylesheet type="text/css" href="/changes.css"?>',
            '<weblogUpdates version="2" updated="Tue, 29 Sep 2026 12:00:00 GMT" count="48211">',
            '<weblog name="A &amp; B" url="https://example.org/" when="1"'
            ' rssUrl="https://example.org/rss" ts="2026-09-29T11:58:58Z"/>',
            '<weblog name="The &quot;Site&quot;" url="https://example.net/?a=1&amp;b=2"'
            ' when="10" ts="2026-09-29T11:50:00Z"/>',
            "</weblogUpdates>",
            "<!-- records: 2 -->",
        ]
        self.assertEqual(document.decode("utf-8").splitlines(), expected)

    def test_ages(self) -> None:
        self.assertEqual(len(render()), 0)
        units: tuple[tuple[float, Unit, str], ...] = (
            *((61.5, "seconds", "61"), (61.5, "minutes", "1"), (-90, "minutes", "0")),
        )
        for age, unit, when in units:
            root = render(Ping("A", "https://example.org/", NOON - age), unit=unit)
            self.assertEqual(root[0].get("when"), when)

    def test_slices_make_what_one_piece_makes(self) -> None:
        pings = [Ping(f"{n}", "https://example.org/", NOON - n) for n in range(5)]
        self.assertEqual(
            weblogs(pings[:2], NOON, "minutes") + weblogs(pings[2:], NOON, "minutes"),
            weblogs(pings, NOON, "minutes"),
        )

    @given(name=any_text, url=any_text, rss_url=any_text)
    def test_any_text_comes_back(self, name: str, url: str, rss_url: str) -> None:
        root = render(Ping(name, url, NOON, rss_url=rss_url))
        self.assertEqual(root[0].get("name"), legal(name))
        self.assertEqual(root[0].get("url"), legal(url))
        self.assertEqual(root[0].get("rssUrl", ""), legal(rss_url))

    @given(name=any_text)
    def test_one_record_is_one_line(self, name: str) -> None:
        lines = weblogs([Ping(name, "https://example.org/", NOON)], NOON, "minutes")
        self.assertTrue(lines.endswith(b"/>\n"))
        self.assertEqual(lines.count(b"\n"), 1)


class RecordsToldTests(SynchronousTestCase):
    def test_what_a_closing_told(self) -> None:
        self.assertEqual(records_told(closing(48211)), 48211)
        self.assertLessEqual(len(closing(10**15 - 1)), CLOSING_SIZE)
        self.assertIsNone(records_told(closing(5)[:-1]), "the list is cut short")
        ping = Ping(closing(9).decode(), "https://example.org/", NOON)
        self.assertIsNone(records_told(weblogs([ping], NOON, "minutes")), "a text is no closing")
