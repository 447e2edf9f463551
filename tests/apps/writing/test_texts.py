"""Plain texts become HTML that does nothing but show them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from lxml import html
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.template import flattenString

from rsscloud_broker.apps.writing.model import OutlineItem
from rsscloud_broker.apps.writing.texts import (
    item_html,
    outline_elements,
    outline_html,
    shown,
    to_html,
)
from tests.xss_payloads import ACTIVE

ITEMS = (
    OutlineItem("a <b>", items=(OutlineItem("b", "T & U", "http://b.example/?x&y"),)),
    OutlineItem("", link="http://c.example/"),
)


class TextsTests(SynchronousTestCase):
    def test_addresses_become_links(self) -> None:
        for text, url in (
            ("see https://a.example/b?c=d&e=f.", "https://a.example/b?c=d&e=f"),
            ("(http://a.example/x)", "http://a.example/x"),
            ("http://a.example/Boat_(film), too", "http://a.example/Boat_(film)"),
            ("HTTPS://A.example!", "HTTPS://A.example"),
            ("\u201chttp://a.example/\u201d", "http://a.example/"),
        ):
            tree = html.fragment_fromstring(to_html(text), create_parent=True)
            self.assertEqual([each.get("href") for each in tree.iter("a")], [url])
            self.assertEqual(tree.text_content(), text)

    def test_other_texts_do_not(self) -> None:
        others = ("a.example", "javascript:alert(1)", "http://", "https:// x", "ftp://a/", "<a>")
        for text in others:
            self.assertNotIn("<a", to_html(text))

    def test_line_breaks(self) -> None:
        self.assertEqual(to_html("a\nb"), "a<br>\nb")

    @given(st.text() | st.sampled_from([each.decode("latin-1") for each in ACTIVE]))
    def test_a_text_is_shown_as_it_was_typed(self, text: str) -> None:
        text = re.sub("[^\n -~\xa0-\ud7ff\ue000-\ufffd]", "", text)
        for made in (to_html(text), str(self.rendered(shown(text)))):
            tree = html.fragment_fromstring(f"<p>{made}</p>")
            self.assertLessEqual({each.tag for each in tree.iter()}, {"p", "a", "br", "span"})
            # Elements for pages have breaks in place of the line breaks.
            self.assertEqual(tree.text_content().replace("\n", ""), text.replace("\n", ""))
            for link in tree.iter("a"):
                self.assertRegex(link.get("href", ""), "(?i)^https?://")

    def rendered(self, made: object) -> str:
        return self.successResultOf(flattenString(None, made)).decode()  # type: ignore[arg-type]

    def test_outlines(self) -> None:
        expected = (
            '<ul><li>a &lt;b&gt;<ul><li><a href="http://b.example/?x&amp;y">T &amp; U</a> b</li>'
            '</ul></li><li><a href="http://c.example/">http://c.example/</a></li></ul>'
        )
        self.assertEqual(outline_html(ITEMS), expected)
        self.assertEqual(outline_html(()), "")
        self.assertEqual(item_html(OutlineItem("x", "T")), "T x")
        self.assertEqual(item_html(OutlineItem("x", link="http://a/")), '<a href="http://a/">x</a>')

    def test_outlines_on_pages_can_be_folded(self) -> None:
        tree = html.fragment_fromstring(self.rendered(outline_elements(ITEMS)))
        self.assertEqual(tree.xpath("string(li/details/summary)"), "a <b>")
        self.assertEqual(tree.xpath("li/details/ul/li//a/@href"), ["http://b.example/?x&y"])
        self.assertEqual(" ".join(tree.xpath("string(li/details/ul)").split()), "T & U b")
        self.assertEqual(self.rendered(outline_elements(())), "")
