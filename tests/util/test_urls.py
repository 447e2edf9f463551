"""Tests the normal form of URLs."""

from string import ascii_letters, digits
from urllib.parse import quote

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.util.urls import is_address, is_localhost, joined, normal_form

UNRESERVED = ascii_letters + digits + "-._~"

SAME = {
    # RFC 3986, section 6.2.2: case, percent-encoding, dot segments.
    "HTTP://www.EXAMPLE.com/": "http://www.example.com/",
    "example://a/b": "example://a/b",
    "http://example.com/a%c2%b1b": "http://example.com/a%C2%B1b",
    "http://example.com/%7Esmith/home.html": "http://example.com/~smith/home.html",
    "http://EXAMPLE.com/%7esmith/home.html": "http://example.com/~smith/home.html",
    "http://example.com/./b/../b/%63/%7bfoo%7d": "http://example.com/b/c/%7Bfoo%7D",
    "http://ex%61mple.com/": "http://example.com/",
    # Section 6.2.3: empty path, default ports.
    "http://example.com": "http://example.com/",
    "http://example.com:/": "http://example.com/",
    "http://example.com:80/": "http://example.com/",
    "https://example.com:0443": "https://example.com/",
    "http://example.com:443/": "http://example.com:443/",
    "https://example.com:8443/feed": "https://example.com:8443/feed",
    "http://example.com?page=1": "http://example.com/?page=1",
    "http://[2001:DB8::1]:80/feed": "http://[2001:db8::1]/feed",
    # Section 5.2.4, and dots that are encoded.
    "http://a/b/c/./../../g": "http://a/g",
    "http://a/mid/content=5/../6": "http://a/mid/6",
    "http://a/..": "http://a/",
    "http://a/b/..": "http://a/",
    "http://a/b/.": "http://a/b/",
    "http://a/b/%2e%2E/c": "http://a/c",
    "http://a/../../b": "http://a/b",
    "http://a//b//../c": "http://a//b/c",
    # RFC 3987: the URI of an IRI.
    "http://bücher.example/ü?q=ö": "http://xn--bcher-kva.example/%C3%BC?q=%C3%B6",
    # What differs stays different.
    "http://a/.well-known/feed": "http://a/.well-known/feed",
    "http://a/..b/c..": "http://a/..b/c..",
    "http://a/b%2Fc": "http://a/b%2Fc",
    "http://a/Feed": "http://a/Feed",
    "http://a/feed/": "http://a/feed/",
    "http://a/?": "http://a/?",
    "http://a/?u=x/../y": "http://a/?u=x/../y",
    "http://a/?u=%7e+%20&v=%26": "http://a/?u=~+%20&v=%26",
    "http://a/50%": "http://a/50%",
    "http://a/b/%2e%2E/c%": "http://a/c%",
    "http://a/b/%2e/.%2e%/%2ec%": "http://a/b/.%2e%/%2ec%",
    "http://a/%zz%4": "http://a/%zz%4",
}

#: Texts that are no URLs stay as they are, so that errors show them as written.
STRANGE = (
    "",
    "feed",
    "HTTP:/a",
    "HTTP://",
    "ftp://A/",
    "javascript:1",
    "http://USER@a/",
    "http://A:123456/",
    "http://A:b/",
    "http://[::G]/",
    "http://A b/",
    "http://\ud800A/",
    "http://A/\ud800",
)


class NormalFormTests(SynchronousTestCase):
    def test_same(self) -> None:
        for url, form in SAME.items():
            self.assertEqual(normal_form(url), form)

    def test_no_url(self) -> None:
        for text in STRANGE:
            self.assertEqual(normal_form(text), text)

    @given(st.text())
    @example("a/%2525/..")
    @example("/%%61b")
    def test_form_is_its_own(self, rest: str) -> None:
        """The normal form of a normal form is the same."""
        form = normal_form(f"http://A{rest}")
        self.assertEqual(normal_form(form), form)

    @given(st.text(UNRESERVED, min_size=1))
    def test_every_unreserved_character(self, name: str) -> None:
        """However these characters are encoded, the topic is the same (WebSub, section 5.1.1)."""
        written = "".join(f"%{ord(character):02x}" for character in name)
        self.assertEqual(
            normal_form(f"http://a/x{written}"), normal_form(f"http://a/x{quote(name)}")
        )


class AddressTests(SynchronousTestCase):
    def test_addresses(self) -> None:
        for host in ("127.0.0.1", "::1", "2606:4700::a", "::ffff:127.0.0.1", "fe80::1%eth0"):
            self.assertTrue(is_address(host), host)

    def test_names(self) -> None:
        names = ("example.org", "a1", "127.1", "2130706433", "127.0.0.1.", "0177.0.0.1", "::g", "")
        for host in names:
            self.assertFalse(is_address(host), host)

    def test_localhost(self) -> None:
        for host in ("localhost", "localhost.", "a.localhost", "a.localhost.", "LOCALHOST"):
            self.assertTrue(is_localhost(host), host)
        for host in ("", ".", "mylocalhost", "localhost.example", "localhost.example."):
            self.assertFalse(is_localhost(host), host)


class JoinedTests(SynchronousTestCase):
    def test_references(self) -> None:
        for reference, url in (
            ("/hub", "http://a.example/hub"),
            ("//b.example/", "http://b.example/"),
            ("", "http://a.example/feed"),
            ("http://[", ""),
            ("//[a:b]/", ""),
        ):
            self.assertEqual(joined("http://a.example/feed", reference), url)

    @given(st.text("[]:/#?@.x\u2100\ud800\0"))
    def test_no_reference_raises(self, reference: str) -> None:
        self.assertIsInstance(joined("http://a.example/feed", reference), str)
        self.assertIsInstance(joined("http://a.example/feed", f"http://{reference}"), str)
