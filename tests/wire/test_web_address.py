"""The rule for web addresses accepts and refuses the right URLs."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis.strategies import from_regex, text
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import AddressRefused
from rsscloud_broker.outbound.urls import target_of
from rsscloud_broker.wire.web_address import MAX_URL, fault_of, fault_of_form
from rsscloud_broker.wire.weblog_updates import BadPing, site_ping

_START = "http://example.org/"
_MAYBE = r"https?://[a-z0-9.:\[\]@_-]{1,12}([/?#][!-~]{0,8})?"


class FaultTests(SynchronousTestCase):
    def test_accepted(self) -> None:
        for url in (
            "http://example.org", "https://example.org:8443/?a=b#c", "HTTP://EXAMPLE.ORG/A",
            "http://[::1]:80/", "http://b\u00fccher.example/\u00e9", "http://example.org:65535/",
            _START + "x" * (MAX_URL - len(_START)),
        ):  # fmt: skip
            self.assertEqual(fault_of(url), "")

    def test_refused(self) -> None:
        for url, rule in (
            ("", "must begin with http:// or https://"),
            ("javascript:1", "must begin with http:// or https://"),
            ("/feed", "must begin with http:// or https://"),
            ("http:///feed", "names no host"),
            ("http://example.org/a b", "must not contain white space"),
            ("http://example.org/\r\nX: y", "must not contain white space or control"),
            ("http://example.org:0/", "port must be from 1 to 65535"),
            ("http://example.org:65536/", "it is not a URL: "),
            ("http://[::1/", "it is not a URL: "),
            (_START + "x" * MAX_URL, "must have 2048 characters or fewer, and has 2067"),
        ):
            self.assertIn(rule, fault_of(url))

    def test_the_form_alone_may_be_long(self) -> None:
        self.assertEqual(fault_of_form(_START + "x" * MAX_URL), "")

    @example("http://example.org:0/")
    @given(from_regex(_MAYBE, fullmatch=True) | text())
    def test_pings_have_web_addresses(self, url: str) -> None:
        """Every URL that passes the rule of weblogs.com pings is a web address."""
        try:
            ping = site_ping("a name", url, 1.0)
        except BadPing:
            return
        self.assertEqual(fault_of(ping.url), "")

    @given(from_regex(_MAYBE, fullmatch=True) | text())
    def test_requests_go_to_web_addresses(self, url: str) -> None:
        try:
            target_of(url)
        except AddressRefused:
            return
        self.assertEqual(fault_of_form(url), "")
