"""Identifies the sources of requests, so that limits can be applied to each source."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

#: How many callers the results are cached of.
MAX_SOURCES: Final = 10_000


@lru_cache(MAX_SOURCES)
def address_of(source: str) -> IPv4Address | IPv6Address | None:
    """The address of a caller, IPv4 if it is mapped into IPv6; None if it is no address."""
    try:
        address = ip_address(source.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


@lru_cache(MAX_SOURCES)
def is_loopback(source: str) -> bool:
    """Whether a caller's address is one at which a machine reaches only itself."""
    address = address_of(source)
    return address is not None and address.is_loopback


def within(source: str, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
    """Whether a caller's address is in one of several networks."""
    found = address_of(source)
    return found is not None and any(found in network for network in networks)


@lru_cache(MAX_SOURCES)
def bucket_of(source: str) -> str:
    """The key of a caller for limits: its IPv4 address, or its IPv6 network of 64 bits."""
    address = address_of(source)
    if isinstance(address, IPv6Address):
        return f"{int(address) >> 64:x}/64"
    return source if address is None else str(address)
