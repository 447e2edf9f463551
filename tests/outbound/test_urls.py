"""Tests how URLs are parsed, and which URLs the broker refuses to call."""

from __future__ import annotations

from urllib.parse import urlsplit

from hypothesis import given
from hypothesis.strategies import from_regex
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import AddressRefused, OutboundError
from rsscloud_broker.outbound.urls import REFUSED_PORTS, Target, check_url, redirected, target_of


class URLTests(SynchronousTestCase):
    def test_accepted(self) -> None:
        for url in (
            "http://example.org", "https://example.org/", "HTTP://EXAMPLE.ORG/A?b",
            "http://example.org:65535/", "http://127.0.0.1/", "http://[::1]:80/",
            "http://example.org/a%23b", "http://example.org/@x", "http://bücher.example/é",
        ):  # fmt: skip
            check_url(url)
            target_of(url)

    def test_refused(self) -> None:
        for rule, urls in {
            "must begin with http:// or https://": (
                "", "example.org", "/feed", "//example.org/", "ftp://example.org/",
                "file:///etc/passwd", "javascript:alert(1)", "data:text/xml,x",
                "gopher://example.org:70/_x", "feed:http://example.org/",
            ),
            "names no host": ("http:", "http://", "http:///feed", "http:feed", "http://:80/"),
            "must not carry a user name": (
                "http://user@example.org/", "http://user:secret@example.org/",
                "http://:secret@example.org/", "http://@example.org/",
                "http://example.org@127.0.0.1/",
            ),
            "must not have a fragment": ("http://example.org/#top", "http://example.org/#"),
            "port must be from 1 to 65535": ("http://example.org:0/",),
            "65535": ("http://example.org:65536/",),
            "not a URL": (
                "http://example.org:-1/", "http://example.org:http/", "http://[::1/",
                "http://[zz]/",
            ),
        }.items():  # fmt: skip
            for url in urls:
                self.assertIn(rule, str(self.assertRaises(AddressRefused, check_url, url)))
                self.assertIn(rule, str(self.assertRaises(AddressRefused, target_of, url)))

    def test_ports_of_other_services(self) -> None:
        for port in (1, 22, 23, 25, 53, 110, 143, 445, 465, 587, 993, 995, 5432, 6379, 11211):
            url = f"http://example.org:{port}/"
            reason = str(self.assertRaises(AddressRefused, check_url, url))
            said = f"port {port} is for other services ({REFUSED_PORTS[port]}), so it is not called"
            self.assertEqual(reason, said)
            self.assertEqual(str(self.assertRaises(AddressRefused, target_of, url)), reason)

    def test_ports_of_http(self) -> None:
        for port in (80, 81, 443, 591, 1024, 3000, 5000, 5337, 8000, 8008, 8080, 8443, 9000, 65535):
            target_of(f"http://example.org:{port}/")


class TargetTests(SynchronousTestCase):
    def test_parts(self) -> None:
        for url, expected in (
            ("http://example.org", (False, "example.org", 80, "example.org", "/")),
            ("https://example.org/", (True, "example.org", 443, "example.org", "/")),
            ("HTTPS://Example.ORG/A", (True, "example.org", 443, "Example.ORG", "/A")),
            ("http://example.org:8080?b", (False, "example.org", 8080, "example.org:8080", "/?b")),
            ("http://example.org:/a", (False, "example.org", 80, "example.org:", "/a")),
            ("http://127.0.0.1:81/%7e", (False, "127.0.0.1", 81, "127.0.0.1:81", "/%7e")),
            ("http://[::1]:81/é", (False, "::1", 81, "[::1]:81", "/%C3%A9")),
            ("http://[::A]", (False, "::a", 80, "[::A]", "/")),
            (
                "http://bücher.example/",
                (False, "xn--bcher-kva.example", 80, "xn--bcher-kva.example", "/"),
            ),
            ("http://example.org/<a>|b", (False, "example.org", 80, "example.org", "/%3Ca%3E%7Cb")),
        ):
            self.assertEqual(target_of(url), Target(*expected))

    @given(from_regex(r"https?://[a-z0-9.:\[\]@_-]{1,12}([/?][!-~]{0,8})?", fullmatch=True))
    def test_agrees_with_python(self, url: str) -> None:
        """A URL that the broker calls has the same host and port for Python's parser."""
        try:
            target = target_of(url)
        except OutboundError:
            return
        check_url(url)
        parts = urlsplit(url)
        self.assertEqual(target.host, parts.hostname)
        self.assertEqual(target.port, parts.port or {"http": 80, "https": 443}[parts.scheme])

    def test_lines_cannot_be_smuggled_in(self) -> None:
        for url in ("http://a.example/\r\nX: y", "http://a.example\r\n/", "http://a.example/\n"):
            self.assertRaises(AddressRefused, target_of, url)


class RedirectedTests(SynchronousTestCase):
    def test_locations(self) -> None:
        for location, expected in (
            ("/next", "http://a.example/next"),
            ("next?x=1#top", "http://a.example/b/next?x=1"),
            ("//b.example/", "http://b.example/"),
            ("https://b.example", "https://b.example"),
            ("/é".encode().decode("latin-1"), "http://a.example/%C3%A9"),
            ("/my feed.xml?a b", "http://a.example/my%20feed.xml?a%20b"),
        ):
            self.assertEqual(redirected("http://a.example/b/c", location), expected)

    def test_what_is_no_url(self) -> None:
        self.assertRaises(OutboundError, redirected, "http://a.example/", "http://[b/")
