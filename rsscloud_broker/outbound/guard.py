"""Decides which IP addresses the broker may connect to.

Callbacks and topics are URLs from strangers, who might use the broker to reach machines that only
it can reach (server-side request forgery).  So the outbound clients have the guard check every
address before they connect.  The guard refuses every address that is not public unicast, unless
the operator allows its network, and it refuses the broker itself.  IPv4 addresses that are embedded
in IPv6 addresses are checked as IPv4.
"""

from __future__ import annotations

import re
import socket
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from errno import EADDRNOTAVAIL
from ipaddress import IPv4Network, IPv6Network, ip_network
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Final, TypeAlias

from attrs import define
from twisted.internet.defer import TimeoutError as DeadlineError
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from rsscloud_broker.errors import AddressRefused, OutboundError, OwnAddress, Unavailable
from rsscloud_broker.interfaces import IURLPolicy
from rsscloud_broker.outbound.resolver import Resolve
from rsscloud_broker.outbound.urls import target_of
from rsscloud_broker.policy.blocks import Blocks
from rsscloud_broker.util.urls import is_address

Network: TypeAlias = IPv4Network | IPv6Network

#: Networks that are not public unicast.  ``ipaddress.is_global`` is not enough, and varies
#: between versions of Python.  Where networks overlap, the first one counts.  Sources: the
#: IANA special-purpose address registries for IPv4 and IPv6.
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
        # Everything else outside 2000::/3, the network of global unicast addresses.
        ("::/3", "not global unicast"),
        ("4000::/2", "not global unicast"),
        ("8000::/1", "not global unicast"),
    )
)

#: The first twelve bytes of IPv6 addresses that embed an IPv4 address in the last four: mapped
#: addresses (::ffff:0:0/96), as which all IPv4 addresses are compared, and NAT64 (64:ff9b::/96).
_MAPPED: Final = inet_pton(AF_INET6, "::ffff:0:0")[:12]
_NAT64: Final = inet_pton(AF_INET6, "64:ff9b::")[:12]

#: 0.0.0.0 and ::, which mean every address of this machine.
_WILDCARDS: Final = frozenset({_MAPPED + bytes(4), bytes(16)})


class AddressGuard:
    """Accepts or refuses addresses.

    :param allowed: networks that the broker may connect to although they are not public.
    :param own: address and port of each of the broker's own listeners, which are refused even in
        an allowed network.  A wildcard address (``""``, ``0.0.0.0``, ``::``) means every
        address of this machine.
    :param blocks: the hosts that administrators have blocked.  A blocked address is refused even
        if a name leads to it.  None if none ever are.
    """

    def __init__(
        self,
        allowed: Iterable[Network] = (),
        own: Collection[tuple[str, int]] = (),
        blocks: Blocks | None = None,
    ) -> None:
        self.allow(allowed)
        self._blocks = blocks or Blocks()
        self._own: dict[int, set[bytes | None]] = {}
        for address, port in own:
            self._own.setdefault(port, set()).add(_listener_address(address))

    def allow(self, networks: Iterable[Network]) -> None:
        """Allow these networks from now on, beside public addresses, and no others."""
        rules = [*((network, "") for network in networks), *DENIED]
        ranges = [
            *(_range(network, kind) for network, kind in rules if network.version == 4),
            _range(ip_network("::ffff:0:0/96"), ""),  # all other IPv4 addresses are public
            *(_range(network, kind) for network, kind in rules if network.version == 6),
        ]
        # They are split into ranges that do not overlap: one bisection finds that of an address.
        edges = sorted({0} | {edge for first, last, _ in ranges for edge in (first, last + 1)})
        self._starts = [edge.to_bytes(16, "big") for edge in edges if edge < 1 << 128]
        self._kinds = [
            next((kind for first, last, kind in ranges if first <= edge <= last), "")
            for edge in edges
        ]

    def check(self, address: str, port: int) -> None:
        """Raise if the broker may not connect to an address.

        This runs for every notification and takes about a microsecond.

        :param address: an IPv4 or IPv6 address as the resolver gives it.
        :raises AddressRefused: the broker may not connect to it.
        """
        packed = _packed(address)
        if port in self._own and self._is_own(address, packed, port):
            raise OwnAddress(
                f"the address {address} with port {port} is this broker itself, so it is not called"
            )
        if kind := self._kinds[bisect_right(self._starts, packed) - 1]:
            raise AddressRefused(
                f"the address {address} is not public ({kind}), so it is not called"
            )
        if self._blocks.in_force and (block := self._blocks.of_host(_text(packed))):
            raise AddressRefused(f"the address {address} is blocked here: {block.reason}")

    def _is_own(self, address: str, packed: bytes, port: int) -> bool:
        listeners = self._own[port]
        if packed in listeners:
            return True
        return (None in listeners or packed in _WILDCARDS) and _is_of_this_machine(address)


def _range(network: Network, kind: str) -> tuple[int, int, str]:
    """The first and the last address of a network, as numbers, and its kind."""
    mapped = 0xFFFF << 32 if network.version == 4 else 0
    return mapped + int(network.network_address), mapped + int(network.broadcast_address), kind


def _packed(address: str) -> bytes:
    """The sixteen bytes of an IPv6 address; of an IPv4 address, or of one that is embedded, those
    of the IPv6 address that maps it.
    """
    try:
        if ":" not in address:
            return _MAPPED + inet_pton(AF_INET, address)
        packed = inet_pton(AF_INET6, address.partition("%")[0])
    except (OSError, ValueError) as error:
        raise OutboundError(f"{address} is not an address") from error
    return _MAPPED + packed[12:] if packed[:12] == _NAT64 else packed


def _text(packed: bytes) -> str:
    """An address in its usual spelling, by its sixteen bytes."""
    if packed[:12] == _MAPPED:
        return inet_ntop(AF_INET, packed[12:])
    return inet_ntop(AF_INET6, packed)


def _listener_address(address: str) -> bytes | None:
    """The sixteen bytes of a listener's address; None if it listens on every address."""
    try:
        packed = _packed(address)
    except OutboundError:
        return None  # empty, or a name that resolves to an address of this machine
    return None if packed in _WILDCARDS else packed


def _is_of_this_machine(address: str) -> bool:
    """Whether this machine has an address: only then can a socket be bound to it."""
    family = AF_INET6 if ":" in address else AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError as error:
        return error.errno != EADDRNOTAVAIL  # on any other error assume that it has
    return True


#: Twisted's endpoints that listen on a port: the position of the port in the description, and
#: the default port.
_PORTS = {"tcp": (1, ""), "tcp4": (1, ""), "tcp6": (1, ""), "ssl": (1, ""), "tls": (2, "443")}

#: Twisted's endpoint that wraps another one, whose description follows.
_WRAPPING = "haproxy"


def own_listeners(endpoints: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The addresses and ports that Twisted endpoints listen on, by their descriptions.

    It leaves out listeners whose port is not known in advance (port 0, sockets of systemd), Unix
    sockets, which no URL leads to, and endpoints that are not Twisted's own.

    :param endpoints: descriptions such as ``tcp:5337:interface=127.0.0.1``.
    """
    for endpoint in endpoints:
        parts = [re.sub(r"\\(.)", r"\1", part) for part in re.split(r"(?<!\\):", endpoint)]
        named = dict(part.split("=", 1) for part in parts if "=" in part)
        positional = [part for part in parts if "=" not in part]
        while positional[:1] == [_WRAPPING]:
            del positional[0]
        kind = positional[0] if positional else ""
        if kind not in _PORTS:
            continue
        index, default = _PORTS[kind]
        port = named.get("port", positional[index] if len(positional) > index else default)
        if port.isdecimal() and int(port):
            yield named.get("interface", ""), int(port)


@implementer(IURLPolicy)
@define(eq=False)
class URLPolicy:
    """Checks the form of a URL and the addresses of its host, before the broker accepts a request
    that names the URL; see ``IURLPolicy``.  The guard checks each later connection again, since the
    addresses of a host may change.

    A host that cannot be looked up within three seconds is accepted.
    """

    _resolve: Resolve
    _guard: AddressGuard
    _clock: IReactorTime

    async def check(self, url: str) -> None:
        target = target_of(url)
        addresses: Sequence[str] = (target.host,)
        if not is_address(target.host):
            try:
                looking = self._resolve(target.host)
                addresses = await looking.addTimeout(3.0, self._clock)
            except (OSError, UnicodeError, DeadlineError, Unavailable):
                return  # the host may have an address when it is called
        for address in addresses:
            self._guard.check(address, target.port)
