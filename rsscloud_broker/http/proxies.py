"""Reads what reverse proxies say of callers, and warns of proxies that nobody named.

The broker believes ``X-Forwarded-For`` only from the proxies in ``trusted_proxies``.  If the
header comes from this machine or from a private network, its sender is nearly always a reverse
proxy that the operator forgot to name.  The broker then takes all callers behind that proxy for
one, which soon exceeds the limits on requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_network

from twisted.internet.interfaces import IAddress
from twisted.logger import Logger

from rsscloud_broker.policy.addresses import address_of, bucket_of, is_loopback, within
from rsscloud_broker.util.urls import is_address, is_localhost

#: The network for carriers, in which some hosting providers have load balancers (RFC 6598).
_SHARED = ip_network("100.64.0.0/10")

#: An IPv6 address in brackets, perhaps with a port, or an IPv4 address with a port.
_WITH_PORT = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::\d+)?|([\d.]+):\d+", re.ASCII)


def senders(forwarded: str, trusted: Sequence[IPv4Network | IPv6Network]) -> Iterator[str | None]:
    """Whom a request passed on its way to a trusted proxy, the nearest first.

    The last one is the client: the first that is not a trusted proxy.  If the header does not
    say more after a trusted proxy, the client is that proxy.

    :param forwarded: the header ``X-Forwarded-For``.  Some proxies (Azure, IIS) write the port of
        the client too: ``203.0.113.5:4711`` or ``[2001:db8::1]:4711``.
    :returns: addresses; the last one is None if the header has no address there, so that nobody
        knows who the client is.
    """
    for text in reversed(forwarded.split(",")):
        address = address_in(text.strip())
        yield address
        if address is None or not within(address, trusted):
            return


def address_in(text: str) -> str | None:
    """The IP address in a text that may also have a port and brackets; None if there is none."""
    found = _WITH_PORT.fullmatch(text)
    address = (found[1] or found[2]) if found else text
    return address if is_address(address) else None


@lru_cache(100)
def is_own_host(host: str) -> bool:
    """Whether the header ``Host`` names this machine as only programs on it do.

    A page of a stranger may give its own name this machine's address (DNS rebinding), and have a
    browser on this machine ask the broker; then ``Host`` has the name.

    :param host: the header, with or without a port.
    """
    name = host.strip().lower()
    return is_localhost(name.partition(":")[0]) or is_loopback(address_in(name) or "")


def is_near(host: str) -> bool:
    """Whether an address is private, shared (RFC 6598) or loopback."""
    address = address_of(host)
    if address is None:
        return False
    return address.is_private or (isinstance(address, IPv4Address) and address in _SHARED)


class UnnamedProxies:
    """Logs one warning for each network that sends ``X-Forwarded-For`` without being trusted."""

    log = Logger()

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def warn(self, peer: IAddress) -> None:
        """Log that a peer sent ``X-Forwarded-For``, unless its network was logged before.

        :param peer: the peer, for which `is_near` is true.
        """
        host = str(getattr(peer, "host", ""))
        address = address_of(host)  # of IPv4 the network /24 counts, and of IPv6 the network /64
        is_ipv4 = isinstance(address, IPv4Address)
        network = str(address).rpartition(".")[0] if is_ipv4 else bucket_of(host)
        # At most ten networks are warned of, since strangers could fill the log.
        if network in self._warned or len(self._warned) >= 10:
            return
        self._warned.add(network)
        self.log.warn(
            "X-Forwarded-For comes from {peer}, which is not named in trusted_proxies, so the "
            "broker takes all callers behind it for one; if it is your reverse proxy, set "
            'trusted_proxies = ["{peer}"] in [http].',
            peer=host,
        )
