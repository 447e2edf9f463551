"""The codec of weblogs.com pings on its own; tests of whole calls are in tests/front_doors."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.model import Ping
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.weblog_updates import (
    MAX_NAME,
    MAX_PING_URL,
    MAX_TAGS,
    BadCall,
    BadPing,
    limited,
    ping_of_parameters,
    site_ping,
)
from tests import examples

HOME = "http://site.example/"
FEED = "https://site.example/rss.xml"
BEGIN = "Can't accept the ping because "


class SitePingTests(SynchronousTestCase):
    def refusal(self, name: str = "A", url: str = HOME, **others: str) -> str:
        """The sentence with which a ping is refused."""
        return str(self.assertRaises(BadPing, site_ping, name, url, 7.0, **others))

    def test_everything(self) -> None:
        ping = site_ping(
            " A\r\nsite ", f"{HOME}\n", 7.5, changes_url=FEED, rss_url=f"\t{FEED}", tags="a| b |"
        )
        self.assertEqual(ping, Ping("A site", HOME, 7.5, FEED, FEED, ("a", "b")))

    def test_names(self) -> None:
        self.assertEqual(site_ping("x" * MAX_NAME, HOME, 7.0).name, "x" * MAX_NAME)
        expected = f"{BEGIN}the weblogName was too long. At most 1024 characters are taken."
        self.assertEqual(self.refusal("x" * (MAX_NAME + 1)), expected)
        for name in ("", " \t", "\x00\x1f", "\ud800"):
            self.assertEqual(self.refusal(name), f"{BEGIN}the weblog name must not be empty.")

    def test_names_that_were_escaped_for_html(self) -> None:
        """WordPress escapes names; the codec unescapes them once."""
        for sent, meant in (
            ("Joe&#039;s Blog", "Joe's Blog"),
            ("Joe&#39;s &quot;Blog&quot;", 'Joe\'s "Blog"'),
            ("A &amp; B &lt;&gt;", "A & B <>"),
            ("A &amp;amp; B", "A &amp; B"),
            ("A & B &eacute; &#65; &amp", "A & B &eacute; &#65; &amp"),
        ):
            self.assertEqual(site_ping(sent, HOME, 7.0).name, meant)

    def test_lengths_of_urls(self) -> None:
        longest = HOME + "x" * (MAX_PING_URL - len(HOME))
        site_ping("A", longest, 7.0, changes_url=longest, rss_url=longest)
        sentence = "was too long. At most 255 characters are taken."
        self.assertEqual(self.refusal(url=longest + "x"), f"{BEGIN}the weblogUrl {sentence}")
        for field, name in (("changes_url", "changesUrl"), ("rss_url", "rssUrl")):
            expected = f"{BEGIN}the {name} {sentence}"
            self.assertEqual(self.refusal(**{field: longest + "x"}), expected)

    def test_urls(self) -> None:
        for url in ("HTTP://Site.Example", "https://münchen.example/ü", "http://[2001:db8::1]:80/"):
            self.assertEqual(site_ping("A", url, 7.0).url, url)
        scheme = f"{BEGIN}the URL must begin with http:// or https://."
        for url in ("", "site.example", "//site.example/", "javascript:x", "data:,x", "file:///x"):
            self.assertEqual(self.refusal(url=url), scheme)
            if url:
                self.assertEqual(self.refusal(changes_url=url), scheme)
        for url in (
            *("http:site", "http://", "https://:80/", "http:///today", "http://a b/"),
            *("http://a:b/", "http://a:99999/", "http://[", "http://[::1/"),
        ):
            self.assertEqual(self.refusal(url=url), f"{BEGIN}the weblogUrl is not a URL.")

    def test_tags(self) -> None:
        self.assertEqual(len(site_ping("A", HOME, 7.0, tags="a|" * (MAX_TAGS // 2)).tags), 512)
        expected = f"{BEGIN}the tags were too long. At most 1024 characters are taken."
        self.assertEqual(self.refusal(tags="x" * (MAX_TAGS + 1)), expected)

    @settings(max_examples=examples(100))
    @given(st.text(), st.text() | st.text().map(HOME.__add__), st.text(max_size=50))
    def test_what_is_taken_is_clean(self, name: str, url: str, tags: str) -> None:
        try:
            ping = site_ping(name, url, 7.0, tags=tags)
        except BadPing:
            return
        for text in (ping.name, ping.url, *ping.tags):
            self.assertEqual(text, clean(text))
            self.assertTrue(text)


class ParametersTests(SynchronousTestCase):
    def test_counts(self) -> None:
        for method, least, most in (("ping", 2, 4), ("extendedPing", 3, 5), ("rssUpdate", 2, 2)):
            for count in range(7):
                parameters = ["A", HOME, FEED, FEED, "x"][:count] + ["y"] * (count - 5)
                if least <= count <= most:
                    self.assertEqual(ping_of_parameters(method, parameters, 7.0).url, HOME)
                    continue
                error = self.assertRaises(BadCall, ping_of_parameters, method, parameters, 7.0)
                self.assertIn(f"but {count} came", str(error))

    def test_types(self) -> None:
        wrong: list[Any] = [None, True, [HOME], {}]
        for value in wrong:
            self.assertRaises(BadCall, ping_of_parameters, "ping", ["A", value], 7.0)

    def test_pings(self) -> None:
        """Some clients send nil for each parameter that they have no value for."""
        page = f"{HOME}today"
        table: list[tuple[str, list[Any], Ping]] = [
            ("ping", [], Ping("A", HOME, 7.0)),
            ("ping", [page], Ping("A", HOME, 7.0, page)),
            ("ping", [page, None], Ping("A", HOME, 7.0, page)),
            ("ping", ["", "News"], Ping("A", HOME, 7.0, tags=("News",))),
            # WordPress sends its feed where the changed page should be.
            ("extendedPing", [FEED], Ping("A", HOME, 7.0, "", FEED)),
            ("extendedPing", [None, FEED, None], Ping("A", HOME, 7.0, "", FEED)),
            (
                "extendedPing",
                [page, FEED, "a|  b ||c"],
                Ping("A", HOME, 7.0, page, FEED, (*"abc",)),
            ),
            ("extendedPing", [page, ""], Ping("A", HOME, 7.0, page)),
            ("rssUpdate", [], Ping("A", HOME, 7.0, "", HOME)),
        ]
        for method, rest, ping in table:
            self.assertEqual(ping_of_parameters(method, ["A", HOME, *rest], 7.0), ping)

    def test_names_that_did_not_come_as_strings(self) -> None:
        for value, name in ((7, "7"), (1.5, "1.5"), ("é".encode(), "é"), (b"\xe9", "é")):
            ping = ping_of_parameters("ping", [value, HOME.encode()], 7.0)
            self.assertEqual((ping.name, ping.url), (name, HOME))


class LimitedTests(SynchronousTestCase):
    def test_sentence(self) -> None:
        expected = "Can't accept the ping because there were 5 of them. Try again in 7 seconds."
        self.assertEqual(limited("there were 5 of them", 7), expected)
