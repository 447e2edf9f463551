"""Who asks for something, as one of many: what is limited for each source is told apart here."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

#: Callers that are remembered.
MAX_SOURCES: Final = 10_000


@lru_cache(MAX_SOURCES)
def address_of(source: str) -> IPv4Address | IPv6Address | None:
    """The address that a caller has; an IPv4 address in an IPv6 one is itself."""
    try:
        address = ip_address(source.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


@lru_cache(MAX_SOURCES)
def bucket_of(source: str) -> str:
    """The key of a caller: its address, or its network of 64 bits."""
    address = address_of(source)
    if isinstance(address, IPv6Address):
        return f"{int(address) >> 64:x}/64"
    return source if address is None else str(address)
