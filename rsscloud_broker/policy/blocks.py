"""What administrators have blocked, in memory, so that every request can be checked quickly.

``Following`` fills it from the store, at the start and when somebody blocks or unblocks something.
``Access`` asks about topics, callbacks and sources; the topic reader, the outbound clients and the
distribution ask too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network

from rsscloud_broker.model import host_of
from rsscloud_broker.model.administration import Block
from rsscloud_broker.model.hosts import canonical_host, with_canonical_host
from rsscloud_broker.policy.addresses import MAX_SOURCES, address_of


class Blocks:
    """What administrators have shut out: the blocks that are in force.

    ``of_host``, ``of_topic`` and ``of_source`` read memory only, and are quick.  Each returns the
    block that applies, or None.
    """

    def __init__(self) -> None:
        self._followers: list[Callable[[Sequence[Block]], object]] = []
        self.change(())

    def follow(self, follower: Callable[[Sequence[Block]], object]) -> None:
        """Have a function called with all blocks, each time that they change."""
        self._followers.append(follower)

    def change(self, blocks: Iterable[Block]) -> None:
        """Use these blocks from now on, and no others."""
        blocks = tuple(blocks)
        self._any = bool(blocks)
        self._hosts: dict[str, Block] = {}
        self._below: dict[str, Block] = {}  # by the name below which hosts are blocked
        self._topics: dict[str, Block] = {}
        self._prefixes: dict[str, Block] = {}
        networks: list[tuple[IPv4Network | IPv6Network, Block]] = []
        for one in blocks:
            if one.kind == "source":
                networks.append((ip_network(one.object), one))
            elif one.kind == "topic" and one.object.endswith("*"):
                self._prefixes[with_canonical_host(one.object[:-1])] = one
            elif one.kind == "topic":
                self._topics[with_canonical_host(one.object)] = one
            elif one.object.startswith("*."):
                self._below[canonical_host(one.object[2:])] = one
            else:
                self._hosts[canonical_host(one.object)] = one
        self._lengths = sorted({len(prefix) for prefix in self._prefixes})
        # Cached, since the same sources call again and again.
        self._of_source: Callable[[str], Block | None] = lru_cache(MAX_SOURCES)(
            lambda source: _first_with(networks, source)
        )
        for follower in self._followers:
            follower(blocks)

    def __bool__(self) -> bool:
        return self._any

    def of_host(self, host: str) -> Block | None:
        """The block of a host.

        :param host: a name or an address, in any spelling.
        """
        if not (self._hosts or self._below):
            return None
        host = canonical_host(host)
        found = self._hosts.get(host)
        while found is None and "." in host:
            host = host.partition(".")[2]
            found = self._below.get(host)
        return found

    def of_topic(self, url: str) -> Block | None:
        """The block of a topic, or of its host.

        :param url: in normal form.
        """
        if not (self._topics or self._prefixes or self._hosts or self._below):
            return None  # each ping asks several times
        url = with_canonical_host(url)
        found = self._topics.get(url)
        for length in self._lengths:
            found = found or self._prefixes.get(url[:length])
        return found or self.of_host(host_of(url))

    def of_source(self, source: str) -> Block | None:
        """The block of a source.

        :param source: an address; empty for the broker itself, which nobody blocks.
        """
        return self._of_source(source) if source else None


def _first_with(
    networks: Iterable[tuple[IPv4Network | IPv6Network, Block]], source: str
) -> Block | None:
    """The first block whose network a source is in."""
    address = address_of(source)
    if address is None:
        return None
    return next((block for network, block in networks if address in network), None)
