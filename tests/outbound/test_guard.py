"""Tests which addresses the guard accepts."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_network

from hypothesis import given
from hypothesis.strategies import ip_addresses
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.core import Blocks
from rsscloud_broker.errors import AddressRefused, OutboundError, OwnAddress
from rsscloud_broker.model.administration import Block
from rsscloud_broker.outbound import AddressGuard
from rsscloud_broker.outbound.guard import DENIED, own_listeners

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
    "unspecified, loopback or IPv4-compatible": """
        ::  ::1  0:0:0:0:0:0:0:1  ::7f00:1  ::127.0.0.1  ::8.8.8.8
    """,
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
        return str(self.assertRaises(OutboundError, guard.check, address, 80))

    def test_public_addresses_are_accepted(self) -> None:
        for address in PUBLIC.split():
            AddressGuard().check(address, 80)

    def test_others_are_refused_by_kind(self) -> None:
        for kind, text in REFUSED.items():
            for address in text.split():
                said = f"the address {address} is not public ({kind}), so it is not called"
                self.assertEqual(self.assert_refused(AddressGuard(), address), said)

    def test_allowed_networks(self) -> None:
        guard = AddressGuard(map(ip_network, ("127.0.0.0/8", "fd00::/8", "10.1.2.3/32")))
        for address in (
            "127.0.0.1", "127.9.9.9", "::ffff:127.0.0.1", "fd00::1", "10.1.2.3", "8.8.8.8",
        ):  # fmt: skip
            guard.check(address, 80)
        for address in ("::1", "10.1.2.4", "192.168.1.1", "fc00::1", "fe80::1", "169.254.169.254"):
            self.assert_refused(guard, address)

    def test_allowed_networks_can_change(self) -> None:
        guard = AddressGuard([ip_network("10.0.0.0/8")], [("10.1.1.1", 80)])
        guard.allow(map(ip_network, ("10.1.0.0/16", "fd00::/8")))
        guard.check("10.1.2.3", 80)
        guard.check("fd00::1", 80)
        self.assert_refused(guard, "10.2.2.3")
        self.assert_refused(guard, "10.1.1.1")  # the broker itself is refused all the same

    def test_blocked_addresses(self) -> None:
        """A blocked address is refused even if its network is allowed."""
        blocks = Blocks()
        guard = AddressGuard([ip_network("127.0.0.0/8")], blocks=blocks)
        blocks.change(
            Block("host", host, "it sends spam", "alice", 1.0)
            for host in ("1.1.1.1", "2400::1", "127.0.0.1")
        )
        spellings = ("1.1.1.1", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2400:0::1")
        for address in (*spellings, "127.0.0.1", "::ffff:127.0.0.1"):
            error = self.assertRaises(AddressRefused, guard.check, address, 80)
            self.assertIn("is blocked here: it sends spam", str(error))
        guard.check("1.1.1.2", 80)
        blocks.change([])
        guard.check("1.1.1.1", 80)

    def test_allowing_all_of_one_family_allows_nothing_of_the_other(self) -> None:
        four, six = AddressGuard([ip_network("0.0.0.0/0")]), AddressGuard([ip_network("::/0")])
        four.check("10.0.0.1", 80)
        six.check("fe80::1%eth0", 80)
        self.assert_refused(four, "::1")
        self.assert_refused(six, "127.0.0.1")
        self.assert_refused(six, "::ffff:127.0.0.1")

    def test_what_is_no_address(self) -> None:
        """Unusual spellings are checked in the form that the resolver gives them."""
        for text in ("", "localhost", "127.1", "1.2.3.4.5", "::g", "0x7f000001", "1.2.3.4\0", "%"):
            self.assertRaises(OutboundError, AddressGuard().check, text, 80)


class PythonsJudgementTests(SynchronousTestCase):
    """The guard accepts no address that Python's ``is_global`` refuses."""

    def assert_at_least_as_strict(self, address: IPv4Address | IPv6Address) -> None:
        if not address.is_global:
            self.assertRaises(OutboundError, AddressGuard().check, str(address), 80)

    @given(ip_addresses(v=4))
    def test_ipv4(self, address: IPv4Address) -> None:
        self.assert_at_least_as_strict(address)

    @given(ip_addresses(v=6))
    def test_ipv6(self, address: IPv6Address) -> None:
        if address.ipv4_mapped is None:
            self.assert_at_least_as_strict(address)

    def test_edges(self) -> None:
        """Checks the first and the last address of each network, and their neighbours."""
        for network, _ in DENIED:
            for edge in (int(network.network_address), int(network.broadcast_address)):
                for number in (edge - 1, edge, edge + 1):
                    if 0 <= number < 2**network.max_prefixlen:
                        self.assert_at_least_as_strict(type(network.network_address)(number))


class OwnListenersTests(SynchronousTestCase):
    """The broker itself is not called, even in an allowed network."""

    def refusals(self, own: Sequence[tuple[str, int]], addresses: str, port: int = 80) -> list[str]:
        guard = AddressGuard(map(ip_network, ("0.0.0.0/0", "::/0")), own)
        refused = []
        for address in addresses.split():
            try:
                guard.check(address, port)
            except OwnAddress as error:
                self.assertEqual(
                    str(error),
                    f"the address {address} with port {port} is this broker itself, "
                    "so it is not called",
                )
                refused.append(address)
        return refused

    def test_one_address(self) -> None:
        own = [("127.0.0.1", 80), ("::1", 80)]
        everywhere = "127.0.0.1 ::ffff:127.0.0.1 ::1 127.0.0.2 8.8.8.8 2606:4700::1111"
        self.assertEqual(self.refusals(own, everywhere), ["127.0.0.1", "::ffff:127.0.0.1", "::1"])
        self.assertEqual(self.refusals(own, everywhere, 81), [])

    def test_the_address_that_leads_to_this_machine(self) -> None:
        self.assertEqual(self.refusals([("127.0.0.1", 80)], "0.0.0.0"), ["0.0.0.0"])

    def test_every_address_of_this_machine(self) -> None:
        for own in ("", "0.0.0.0", "::", "localhost"):
            found = self.refusals([(own, 80)], "127.0.0.1 127.9.9.9 0.0.0.0 192.0.2.1 8.8.8.8")
            self.assertEqual(found, ["127.0.0.1", "127.9.9.9", "0.0.0.0"], own)

    def test_descriptions_of_endpoints(self) -> None:
        for description, expected in (
            ("tcp:5337", [("", 5337)]),
            ("tcp:port=5337", [("", 5337)]),
            ("tcp:5337:interface=127.0.0.1", [("127.0.0.1", 5337)]),
            ("tcp:interface=127.0.0.1:port=5337", [("127.0.0.1", 5337)]),
            (r"tcp6:5337:interface=\:\:1", [("::1", 5337)]),
            ("ssl:443:privateKey=key.pem:certKey=a=b.pem", [("", 443)]),
            ("tls:certificates", [("", 443)]),
            ("tls:certificates:8443", [("", 8443)]),
            ("tls:certificates:port=8443:interface=127.0.0.1", [("127.0.0.1", 8443)]),
            ("haproxy:tcp:5337", [("", 5337)]),
            (r"haproxy:tcp6:port=5337:interface=\:\:1", [("::1", 5337)]),
            ("haproxy:haproxy:tls:certificates", [("", 443)]),
            ("haproxy:unix:/run/broker.sock", []),
            ("haproxy:tcp:0", []),
            ("haproxy", []),
            ("tcp:0", []),
            ("tcp:many", []),
            ("tcp", []),
            ("unix:/run/broker.sock", []),
            ("systemd:domain=INET:index=0", []),
        ):
            self.assertEqual(list(own_listeners([description])), expected, description)
