"""Warns the operator of a reverse proxy that is missing in ``trusted_proxies``.

The broker believes ``X-Forwarded-For`` only from the proxies in ``trusted_proxies``.  If the
header comes from this machine or from a private network, its sender is nearly always a reverse
proxy that the operator forgot to name.  The broker then takes all callers behind that proxy for
one, which soon exceeds the limits on requests.
"""

from __future__ import annotations

from ipaddress import IPv4Address, ip_network
from typing import Final

from twisted.internet.interfaces import IAddress
from twisted.logger import Logger

from rsscloud_broker.sources import address_of, bucket_of

#: At most so many networks are warned of, so that strangers cannot fill the log.
MAX_WARNINGS: Final = 10

#: The network for carriers, in which some hosting providers have load balancers (RFC 6598).
_SHARED = ip_network("100.64.0.0/10")


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
        network = _network_of(host)
        if network in self._warned or len(self._warned) >= MAX_WARNINGS:
            return
        self._warned.add(network)
        self.log.warn(
            "X-Forwarded-For comes from {peer}, which is not named in trusted_proxies, so the "
            "broker takes all callers behind it for one; if it is your reverse proxy, set "
            'trusted_proxies = ["{peer}"] in [http].',
            peer=host,
        )


def _network_of(host: str) -> str:
    """The /24 network of an IPv4 address, or the /64 network of an IPv6 address."""
    address = address_of(host)
    return str(address).rpartition(".")[0] if isinstance(address, IPv4Address) else bucket_of(host)
