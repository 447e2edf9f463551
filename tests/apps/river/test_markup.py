"""The HTML of strangers as elements of a page: what stays, and that nothing breaks out."""

from __future__ import annotations

from typing import Any

from lxml import html
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.template import flattenString, tags

from rsscloud_broker.apps.river.markup import elements, plain
from rsscloud_broker.apps.river.model import Item, ItemEnclosure, SubItem
from rsscloud_broker.apps.river.rendering import article, groups
from tests.apps.river.page_site import feed
from tests.xss_payloads import numbered


class MarkupCase(SynchronousTestCase):
    def flat(self, *parts: Any) -> str:
        """The HTML of some elements."""
        found: bytes = self.successResultOf(flattenString(None, tags.transparent(*parts)))
        return found.decode()

    def made(self, text: str) -> str:
        return self.flat(*elements(text))

    def assert_made(self, text: str, wanted: str) -> None:
        self.assertEqual(self.made(text), wanted)


class ElementsTests(MarkupCase):
    def test_plain_elements_stay(self) -> None:
        for text in (
            "<p>one <b>two</b> <em>three</em><br />four</p>",
            "<ul><li>one</li><li>two</li></ul>",
            "<blockquote><p>x</p></blockquote>",
            "<pre><code>a &lt; b</code></pre>",
            "x &amp; y &lt;b&gt;",
            '<ol start="3"><li>x</li></ol>',
            '<abbr title="Hypertext &amp;c.">HT</abbr>',
        ):
            self.assert_made(text, text)

    def test_what_is_changed(self) -> None:
        """Attributes and unknown elements go; headings are smaller than those of the page; lists
        are such for screen readers.
        """
        for text, wanted in (
            (
                '<p class="skip" id="content" style="x" onclick="x()" dir="rtl" name="y">x</p>',
                '<p dir="rtl">x</p>',
            ),
            ("<x-y><form><p>x</p><input></form></x-y>", "<p>x</p>"),
            ("<h1>x</h1><h6>y</h6>", "<h4>x</h4><h4>y</h4>"),
            ("<div><li>x</li></div>", "<div><div>x</div></div>"),
            ("<ul><p>x</p><li>y</li></ul>", "<ul><li><p>x</p></li><li>y</li></ul>"),
            ("<dl><dt>x</dt><dd>y</dd></dl>", "<div><div>x</div><div>y</div></div>"),
            ('<ol start="x"><li>x</li></ol>', "<ol><li>x</li></ol>"),
        ):
            self.assert_made(text, wanted)

    def test_elements_that_nobody_reads_go(self) -> None:
        for name in ("script", "style", "noscript", "template", "textarea"):
            self.assertNotIn("secret", self.made(f"a<{name}>secret</{name}>b"), name)

    def test_links(self) -> None:
        self.assert_made(
            '<a href="http://x.example/?a&amp;b" target="_top">x</a>',
            '<a href="http://x.example/?a&amp;b" rel="nofollow ugc noopener">x</a>',
        )
        for url in ("javascript:x()", " javascript:x()", "/account", "//x.example/", "data:,x", ""):
            self.assert_made(f'<a href="{url}">x</a>', "<span>x</span>")
        inner = '<a href="http://x.example/">a<b><a href="http://y.example/">b</a></b></a>'
        self.assertNotIn("<a", self.made(inner).partition("<a")[2].partition("</a>")[0])

    def test_links_without_a_text_get_one(self) -> None:
        made = self.made('<a href="http://x.example/"><img src="http://x.example/i"></a>')
        self.assertIn('<span class="away">Link to x.example</span>', made)
        made = self.made('<a href="http://x.example/"><img src="http://x.example/i" alt="y"></a>')
        self.assertNotIn("away", made)
        self.assertIn(">Link to x.example<", self.made('<a href="http://x.example/"></a>'))
        self.assertEqual(self.made('<a name="part"></a>Part one').count("Link"), 0)
        self.assertIn("a page", self.made('<a href="http://[x/"></a>'))

    def test_pictures(self) -> None:
        made = self.made('<img src="https://x.example/i.png" alt="A &quot;cat&quot;" onerror=x()>')
        (picture,) = html.fragments_fromstring(made)
        expected = {"src": "https://x.example/i.png", "alt": 'A "cat"', "loading": "lazy"}
        expected |= {"decoding": "async", "referrerpolicy": "no-referrer"}
        self.assertEqual(dict(picture.attrib), expected)
        for url in ("javascript:x()", "data:image/png;base64,xx", "/account", ""):
            self.assert_made(f'<img src="{url}">', "")
        made = self.made('<img src="http://x.example/" width="40" height="1e9">')
        self.assertIn(' width="40"', made)
        self.assertNotIn("height", made)

    def test_tables_scroll(self) -> None:
        made = self.made('<table><tr><td colspan="2" rowspan="x">x</td></tr></table>')
        self.assertIn('<div class="table" role="region" tabindex="0" ', made)
        self.assertIn('<td colspan="2">x</td>', made)

    def test_nothing(self) -> None:
        for text in ("", "  ", "<!-- x -->", "<?x y?>", "\x00", "<p hidden>"):
            self.assertNotIn("x", self.made(text))
            self.assertEqual(plain(text, 100), "")

    def test_deep_elements(self) -> None:
        made = self.made("<div>" * 5000 + "deep" + "</div>" * 5000)
        self.assertLessEqual(made.count("<div>"), 30)
        made = self.made("<b>" * 35 + "deep")
        self.assertEqual((made.count("<b>"), made.count("deep")), (30, 1))

    def test_text_alone(self) -> None:
        text = plain("<p>one <b>two</b>\n</p><script>x</script>three", 100)
        self.assertEqual(text, "one two three")


class StrangersTests(MarkupCase):
    """What strangers write, in each place of an item."""

    def test_nothing_breaks_out(self) -> None:
        for payload in numbered():
            text = payload.decode("utf-8", "replace")
            files = (
                ItemEnclosure(text, "image/png"),
                ItemEnclosure(f"http://x.example/{text}", text),
            )
            below = (SubItem(text, text, text, (SubItem(text, text),)),)
            item = Item(1, 1, text, text, text, text, files, below)
            (section,) = groups([item], {1: feed(1, text, link=text)}, 0)
            made = self.flat(section)
            page: Any = html.document_fromstring(
                f"<main><p id='before'>x</p>{made}<p id='after'>x</p></main>"
            )
            parts = page.xpath("//main/*/@id | //main/section/@data-feed")
            self.assertEqual(parts, ["before", "1", "after"])
            self.assertEqual(len(page.xpath("//article")), 1)
            bad = page.xpath(
                "//script | //style | //iframe | //object | //embed | //form | //input | //base |"
                " //meta | //link | //svg | //math | //template | //@style | //@srcset |"
                " //@*[starts-with(name(), 'on')] | //@id[not(. = 'before' or . = 'after'"
                " or . = 'item-1')]"
            )
            self.assertEqual(bad, [], payload)
            for url in page.xpath("//@href | //@src"):
                self.assertRegex(str(url), "(?i)^https?://", payload)

    def test_file_names(self) -> None:
        for url, name in (
            ("http://x.example/a%3Cb%3E%22.png", '&lt;b&gt;"'),
            ("http://x.example/", "x.example"),
            ("http://[x/a.png", "http://[x/a.png"),
        ):
            files = (ItemEnclosure(url, "image/png"),)
            made = self.flat(article(Item(1, 1, "", "", enclosures=files)))
            self.assertIn(name.replace('"', "&quot;"), made.replace('"</bdi>', "&quot;</bdi>"))
