"""HTML of editors as text, and text as HTML for them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.writing import markup

LINES = st.text("abc &<>\"'•Ü:/. ", max_size=20).map(lambda text: " ".join(text.split()))
TEXTS = st.lists(LINES.filter(bool), max_size=5).map("\n".join)


class ReadTests(SynchronousTestCase):
    def test_texts(self) -> None:
        acts = (
            "<p onclick='x()'>a<script>alert('<p>no</p>')</script><style>p{}</style>"
            "<!-- <b>no</b> --><iframe src='http://x.example/'>no</iframe>b</p>"
        )
        for name, html, text in (
            ("nothing", "", ""),
            ("plain", "Hello", "Hello"),
            ("no markup", "I <3 you & AT&amp;T 1 < 2", "I <3 you & AT&T 1 < 2"),
            ("plain lines", "one\r\ntwo\n\nthree", "one\ntwo\n\nthree"),
            ("paragraphs", "<p>One\n line</p>\n<p>Two<br />three</p>", "One line\n\nTwo\nthree"),
            ("a list", "<ul><li>a</li><li>b</li></ul>c", "• a\n• b\n\nc"),
            ("blocks", "<h1>T</h1><div><div>x</div></div>", "T\n\nx"),
            ("lines with markup", "a <b>bold</b> word\nnext", "a bold word\nnext"),
            ("only text of what acts", acts, "ab"),
            ("escaped", "&lt;script&gt;alert(1)&lt;/script&gt;", "<script>alert(1)</script>"),
            ("no control characters", "a\0b\x0bc&#11;d\ud800", "abcd"),
            ("very deep", "<div>" * 40_000 + "deep", "deep"),
            ("very deep links", "<a>" * 40_000 + "x", "x"),
        ):
            self.assertEqual(markup.read_html(html).text, text, name)

    def test_title(self) -> None:
        content = markup.read_html("<title>My &amp; title</title><category>4</category>Some text")
        self.assertEqual(content, markup.MarkupContent("Some text", "My & title"))

    def test_links(self) -> None:
        html = (
            'See <a href="https://a.example/1">this <i>page</i></a>, '
            '<a href="https://a.example/2">https://a.example/2</a>, '
            '<a href="https://a.example/1">again</a> and <a href="javascript:alert(1)">x</a>, '
            '<a href="/local">y</a> <a href="https://a.example/3">open'
        )
        content = markup.read_html(html)
        self.assertEqual(content.text, "See this page, https://a.example/2, again and x, y open")
        first = markup.MarkupLink("https://a.example/1", "this page")
        self.assertEqual(content.links, (first, markup.MarkupLink("https://a.example/3", "open")))

    def test_media(self) -> None:
        html = (
            '<a href="https://a.example/big.jpg"><img src="https://a.example/small.jpg" alt="A  b">'
            '</a><a href="https://a.example/page"><img src="https://a.example/2.png" alt="P"></a>'
            '<video><source src="https://a.example/v.mp4"></video><img src="data:image/png,x">'
        )
        media = (
            markup.MarkupLink("https://a.example/small.jpg", "A b"),
            markup.MarkupLink("https://a.example/2.png", "P"),
            markup.MarkupLink("https://a.example/v.mp4", ""),
        )
        links = (markup.MarkupLink("https://a.example/page", "P"),)
        self.assertEqual(markup.read_html(html), markup.MarkupContent("", links=links, media=media))

    def test_very_many_links(self) -> None:
        many = "".join(f'<a href="http://a.example/{n}">x</a>' for n in range(1000))
        self.assertEqual(len(markup.read_html(many).links), markup.MAX_LINKS)

    def test_too_much(self) -> None:
        self.assertRaises(markup.TooMuchMarkup, markup.read_html, "x" * (markup.MAX_HTML + 1))

    @given(st.text("<>/ab!-&;'\"= \n"))
    def test_nothing_breaks_it(self, html: str) -> None:
        markup.read_html(html)


class WriteTests(SynchronousTestCase):
    def test_html(self) -> None:
        self.assertEqual(markup.to_html("a < b\nc"), "a &lt; b<br />c")
        self.assertEqual(markup.to_html("a\n\nb"), "<p>a</p><p>b</p>")
        url = "https://a.example/?a=1&amp;b=2"
        linked = markup.to_html("See https://a.example/?a=1&b=2.")
        self.assertEqual(linked, f'See <a href="{url}">{url}</a>.')

    @given(TEXTS)
    def test_it_is_read_as_it_was(self, text: str) -> None:
        self.assertEqual(markup.read_html(markup.to_html(text)).text, text)

    def test_urls_are_read_as_they_were(self) -> None:
        text = "One https://a.example/1?x=1&y=2.\n\nTwo (http://b.example/)"
        content = markup.read_html(markup.to_html(text))
        self.assertEqual((content.text, content.links), (text, ()))


class MediumTests(SynchronousTestCase):
    def test_media(self) -> None:
        for url, kind in (
            ("https://a.example/x.jpg", "image"),
            ("https://a.example/x.MP3?a=b", "audio"),
            ("https://a.example/x.mp4", "video"),
            ("https://a.example/x.html", ""),
            ("https://a.example/", ""),
            ("https://[broken/x.jpg", "image"),
            ("x.jpg", ""),
            ("", ""),
        ):
            self.assertEqual(markup.medium_of(url), kind, url)
        self.assertEqual(markup.medium_of("https://a.example/x.jpg", "text/html"), "")
        self.assertEqual(markup.medium_of("https://a.example/x", "Audio/mpeg"), "audio")
