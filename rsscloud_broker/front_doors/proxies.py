"""Warns of reverse proxies that somebody forgot to name in the configuration.

``X-Forwarded-For`` counts only from the proxies in ``trusted_proxies``.  When it comes from
another machine of a private network, or from this machine, it is nearly always such a proxy; and
then the broker takes all callers behind it for one, who soon asks too much.
"""

from __future__ import annotations

from ipaddress import IPv4Address, ip_network
from typing import Final

from twisted.internet.interfaces import IAddress
from twisted.logger import Logger

from rsscloud_broker.sources import address_of, bucket_of

#: How many networks are warned of at most: the log is not for strangers to fill.
MAX_WARNINGS: Final = 10

#: Networks of carriers, where some clouds have their load balancers (RFC 6598).
_SHARED = ip_network("100.64.0.0/10")


def is_near(host: str) -> bool:
    """Whether an address is private, shared or of loopback, and not somewhere on the internet."""
    address = address_of(host)
    if address is None:
        return False
    return address.is_private or (isinstance(address, IPv4Address) and address in _SHARED)


class UnnamedProxies:
    """Warns once of each network from which ``X-Forwarded-For`` comes unasked."""

    log = Logger()

    def __init__(self) -> None:
        self._told: set[str] = set()

    def warn(self, peer: IAddress) -> None:
        """Say that a peer sent ``X-Forwarded-For``, unless that was said of its network.

        :param peer: which ``is_near``.
        """
        host = str(getattr(peer, "host", ""))
        network = _network_of(host)
        if network in self._told or len(self._told) >= MAX_WARNINGS:
            return
        self._told.add(network)
        self.log.warn(
            "X-Forwarded-For comes from {peer}, which is not named in trusted_proxies, so the "
            "broker takes all callers behind it for one; if it is your reverse proxy, set "
            'trusted_proxies = ["{peer}"] in [http].',
            peer=host,
        )


def _network_of(host: str) -> str:
    """The 24 bits of an IPv4 address, or the 64 of an IPv6 one, that its neighbours share."""
    address = address_of(host)
    return str(address).rpartition(".")[0] if isinstance(address, IPv4Address) else bucket_of(host)
