"""Which addresses and URLs are called, and which never."""

from __future__ import annotations

from ipaddress import ip_network

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.model import OutboundError
from rsscloud_broker.outbound import AddressGuard
from rsscloud_broker.outbound.guard import check_url
from rsscloud_broker.outbound.resolver import addresses

PUBLIC = """
1.1.1.1  8.8.8.8  9.255.255.255  11.0.0.0  100.63.255.255  100.128.0.0  126.255.255.255
128.0.0.0  169.253.255.255  169.255.0.0  172.15.255.255  172.32.0.0  192.0.1.0  192.88.98.255
192.88.100.0  192.167.255.255  192.169.0.0  198.17.255.255  198.20.0.0  198.51.99.255
198.51.101.0  203.0.112.255  203.0.114.0  223.255.255.255
2001:200::1  2001:4860:4860::8888  2003::1  2606:4700::1111  2a00:1450:4001::1  2400::1
3ffe::1  ::ffff:8.8.8.8  64:ff9b::8.8.8.8  64:ff9b::808:808
"""

REFUSED = {
    "this network": "0.0.0.0  0.0.0.1  0.255.255.255  ::ffff:0.0.0.0",
    "private": """
        10.0.0.0  10.255.255.255  172.16.0.0  172.31.255.255  192.168.0.0  192.168.255.255
        ::ffff:10.0.0.1  ::ffff:192.168.1.1  ::ffff:ac10:1  64:ff9b::10.0.0.1
        64:ff9b::c0a8:101  fc00::  fc00::1  fd12:3456:789a::1
        fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
    """,
    "carrier-grade NAT": "100.64.0.0  100.127.255.255  ::ffff:100.64.0.1",
    "loopback": """
        127.0.0.0  127.0.0.1  127.1.2.3  127.255.255.255  ::ffff:127.0.0.1  ::ffff:7f00:1
        64:ff9b::127.0.0.1  64:ff9b::7f00:1
    """,
    "link-local": """
        169.254.0.0  169.254.169.254  169.254.255.255  ::ffff:169.254.169.254
        64:ff9b::a9fe:a9fe  fe80::1  fe80::1%eth0  fe80::1%25eth0
        febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff
    """,
    "reserved for protocols": """
        192.0.0.0  192.0.0.8  192.0.0.170  192.0.0.255  2001::1  2001:0:7f00:1::1
        2001:10::1  2001:20::1  2001:1ff:ffff::1
    """,
    "documentation": """
        192.0.2.0  192.0.2.255  198.51.100.1  203.0.113.255  2001:db8::1
        2001:db8:ffff::1  3fff::1  3fff:fff:ffff::1
    """,
    "6to4 relay": "192.88.99.0  192.88.99.1",
    "benchmarking": "198.18.0.0  198.19.255.255",
    "multicast": "224.0.0.0  224.0.0.1  239.255.255.255  ::ffff:224.0.0.1  ff02::1  ff0e::1",
    "reserved": "240.0.0.0  250.1.2.3  255.255.255.255  ::ffff:255.255.255.255",
    "unspecified, loopback or IPv4-compatible": "::  ::1  ::7f00:1  ::127.0.0.1  ::8.8.8.8",
    "IPv4-translated": "::ffff:0:127.0.0.1  ::ffff:0:8.8.8.8",
    "local NAT64": "64:ff9b:1::1  64:ff9b:1:fffe:7f00:1::",
    "discard": "100::1",
    "6to4": "2002::1  2002:7f00:1::  2002:808:808::1",
    "segment routing": "5f00::1",
    "site-local": "fec0::1  feff::1",
    "not global unicast": "100:0:0:1::1  200::1  1000::1  4000::1  8000::1  c000::1  fe00::1",
}


class AddressGuardTests(SynchronousTestCase):
    def assert_refused(self, guard: AddressGuard, address: str) -> str:
        return str(self.assertRaises(OutboundError, guard.judge, address))

    def test_the_corpus_is_large(self) -> None:
        refused = [address for text in REFUSED.values() for address in text.split()]
        self.assertGreater(len(set(refused)), 80)
        self.assertEqual(len(set(refused)), len(refused))
        self.assertGreater(len(PUBLIC.split()), 30)

    def test_public_addresses_are_accepted(self) -> None:
        for address in PUBLIC.split():
            with self.subTest(address):
                AddressGuard().judge(address)

    def test_others_are_refused_by_kind(self) -> None:
        for kind, text in REFUSED.items():
            for address in text.split():
                with self.subTest(address):
                    self.assertEqual(
                        self.assert_refused(AddressGuard(), address),
                        f"the address {address} is not public ({kind}), so it is not called",
                    )

    def test_allowed_networks(self) -> None:
        guard = AddressGuard(map(ip_network, ("127.0.0.0/8", "fd00::/8", "10.1.2.3/32")))
        for address in (
            "127.0.0.1", "127.9.9.9", "::ffff:127.0.0.1", "fd00::1", "10.1.2.3", "8.8.8.8",
        ):  # fmt: skip
            guard.judge(address)
        for address in ("::1", "10.1.2.4", "192.168.1.1", "fc00::1", "fe80::1", "169.254.169.254"):
            self.assert_refused(guard, address)

    def test_allowing_all_of_one_family_allows_nothing_of_the_other(self) -> None:
        four, six = AddressGuard([ip_network("0.0.0.0/0")]), AddressGuard([ip_network("::/0")])
        four.judge("10.0.0.1")
        six.judge("fe80::1%eth0")
        self.assert_refused(four, "::1")
        self.assert_refused(six, "127.0.0.1")
        self.assert_refused(six, "::ffff:127.0.0.1")


class SpellingTests(SynchronousTestCase):
    """What the system's resolver makes of an address is judged, however it is spelt."""

    def test_spellings_of_loopback(self) -> None:
        for spelling in (
            "127.0.0.1", "127.1", "127.0.1", "0x7f000001", "0x7f.0.0.1", "2130706433",
            "017700000001", "0177.0.0.1", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1",
        ):  # fmt: skip
            with self.subTest(spelling):
                found = addresses(spelling)
                self.assertTrue(found)
                for address in found:
                    self.assertRaises(OutboundError, AddressGuard().judge, address)

    def test_each_address_once(self) -> None:
        self.assertEqual(addresses("127.0.0.1"), ["127.0.0.1"])

    def test_no_name(self) -> None:
        self.assertRaises(OSError, addresses, "no-such-name.invalid.")


class URLTests(SynchronousTestCase):
    def test_accepted(self) -> None:
        for url in (
            "http://example.org", "https://example.org/", "HTTP://EXAMPLE.ORG/A?b",
            "http://example.org:65535/", "http://127.0.0.1/", "http://[::1]:80/",
            "http://example.org/a%23b", "http://example.org/@x", "http://bücher.example/é",
        ):  # fmt: skip
            with self.subTest(url):
                check_url(url)

    def test_refused(self) -> None:
        for url, rule in (
            ("", "must begin with http:// or https://"),
            ("example.org", "must begin with http:// or https://"),
            ("/feed", "must begin with http:// or https://"),
            ("//example.org/", "must begin with http:// or https://"),
            ("ftp://example.org/", "must begin with http:// or https://"),
            ("file:///etc/passwd", "must begin with http:// or https://"),
            ("javascript:alert(1)", "must begin with http:// or https://"),
            ("data:text/xml,x", "must begin with http:// or https://"),
            ("gopher://example.org:70/_x", "must begin with http:// or https://"),
            ("feed:http://example.org/", "must begin with http:// or https://"),
            ("http:", "names no host"),
            ("http://", "names no host"),
            ("http:///feed", "names no host"),
            ("http:feed", "names no host"),
            ("http://:80/", "names no host"),
            ("http://user@example.org/", "must not carry a user name"),
            ("http://user:secret@example.org/", "must not carry a user name"),
            ("http://:secret@example.org/", "must not carry a user name"),
            ("http://@example.org/", "must not carry a user name"),
            ("http://example.org@127.0.0.1/", "must not carry a user name"),
            ("http://example.org/#top", "must not have a fragment"),
            ("http://example.org/#", "must not have a fragment"),
            ("http://example.org:0/", "port must be from 1 to 65535"),
            ("http://example.org:65536/", "not a URL"),
            ("http://example.org:-1/", "not a URL"),
            ("http://example.org:http/", "not a URL"),
            ("http://[::1/", "not a URL"),
            ("http://[zz]/", "not a URL"),
        ):
            with self.subTest(url):
                self.assertIn(rule, str(self.assertRaises(OutboundError, check_url, url)))
