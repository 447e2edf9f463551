"""Which addresses the broker connects to.

Callbacks and topics are URLs from strangers, who would like to reach what only
this machine can reach.  So every address is judged before it is connected to:
what is not a public unicast address is refused, unless the operator allows its
network.  IPv4 addresses inside IPv6 ones are judged as themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import TypeAlias
from urllib.parse import urlsplit

from rsscloud_broker.model import OutboundError

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

#: What is never public, beyond the judgement of ``ipaddress.is_global``, which
#: varies between versions of Python.  Sources: the IANA special-purpose address
#: registries for IPv4 and IPv6.
DENIED: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(cidr), kind)
    for cidr, kind in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved for protocols"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        ("::/96", "unspecified, loopback or IPv4-compatible"),
        ("::ffff:0:0:0/96", "IPv4-translated"),
        ("64:ff9b:1::/48", "local NAT64"),
        ("100::/64", "discard"),
        ("2001::/23", "reserved for protocols"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "documentation"),
        ("5f00::/16", "segment routing"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
        # All that is left outside 2000::/3, of which global unicast is made.
        ("::/3", "not global unicast"),
        ("4000::/2", "not global unicast"),
        ("8000::/1", "not global unicast"),
    )
)

_NAT64 = ip_network("64:ff9b::/96")


def unwrapped(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


class AddressGuard:
    """Judges addresses.

    :param allowed: networks that are connected to although they are not public.
    """

    def __init__(self, allowed: Iterable[Network] = ()) -> None:
        self._allowed = tuple(allowed)

    def judge(self, address: str) -> None:
        """Accept an address by returning.

        :param address: an IPv4 or IPv6 address as the resolver gives it.
        :raises OutboundError: it is not to be connected to.
        """
        judged = unwrapped(ip_address(address.partition("%")[0]))
        if any(judged in network for network in self._allowed):
            return
        for network, kind in DENIED:
            if judged in network:
                raise OutboundError(
                    f"the address {address} is not public ({kind}), so it is not called"
                )
        if not judged.is_global:
            raise OutboundError(f"the address {address} is not public, so it is not called")


def check_url(url: str) -> None:
    """Accept a URL by returning, if its form is one that the broker calls.

    :raises OutboundError: it is not; the text says which rule it breaks.
    """
    if any(character <= " " or character == "\x7f" for character in url):
        raise OutboundError("the URL must not contain white space or control characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise OutboundError(f"it is not a URL: {error}") from error
    if parts.scheme.lower() not in {"http", "https"}:
        raise OutboundError("the URL must begin with http:// or https://")
    if not parts.hostname:
        raise OutboundError("the URL names no host")
    if parts.username is not None or parts.password is not None:
        raise OutboundError("the URL must not carry a user name or password")
    if "#" in url:
        raise OutboundError("the URL must not have a fragment")
    if port == 0:
        raise OutboundError("the URL's port must be from 1 to 65535")
