"""What administrators have blocked, in memory, so that every request can be checked quickly; and
the form in which it is compared.

``Following`` fills it from the store, at the start and when somebody blocks or unblocks something.
``Access`` asks about topics, callbacks and sources; the topic reader, the outbound clients and the
distribution ask too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network

from rsscloud_broker.errors import Unadministrable
from rsscloud_broker.model import host_of
from rsscloud_broker.model.administration import BLOCK_KINDS, Block
from rsscloud_broker.model.hosts import canonical_host, with_canonical_host
from rsscloud_broker.policy.addresses import MAX_SOURCES, address_of
from rsscloud_broker.util.urls import is_address, normal_form
from rsscloud_broker.wire.web_address import MAX_URL, fault_of

_PORT = re.compile(r":[0-9]+\Z")
_DELIMITERS = frozenset("/?#@\\")
_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?")


class Blocks:
    """What administrators have shut out: the blocks that are in force.

    ``of_host``, ``of_topic`` and ``of_source`` read memory only, and are quick.  Each returns the
    block that applies, or None.

    :ivar in_force: whether there is any block.
    :ivar has_hosts: whether any host is blocked; both are asked for each notification.
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
        self.in_force = bool(blocks)
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
        self.has_hosts = bool(self._hosts or self._below)
        self._lengths = sorted({len(prefix) for prefix in self._prefixes})
        # Cached, since the same sources call again and again.
        self._of_source: Callable[[str], Block | None] = lru_cache(MAX_SOURCES)(
            lambda source: _first_with(networks, source)
        )
        for follower in self._followers:
            follower(blocks)

    def of_host(self, host: str) -> Block | None:
        """The block of a host.

        :param host: a name or an address, in any spelling.
        """
        if not self.has_hosts:
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
        if not (self._topics or self._prefixes or self.has_hosts):
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


def block_name(kind: str, what: str) -> str:
    """The object of a block in the form that ``model.administration.Block`` describes.

    :raises Unadministrable: the kind is unknown, or there is no such object.
    """
    what = what.strip()
    match kind:
        case "host":
            return f"*.{host_name(what[2:])}" if what.startswith("*.") else host_name(what)
        case "topic":
            return _topic(what)
        case "source":
            return _network(what)
    raise Unadministrable(f"{kind!r} cannot be blocked: write one of {', '.join(BLOCK_KINDS)}")


def host_name(what: str) -> str:
    """The name of a host in the form of ``model.host_of``.

    :param what: a name or an address, with or without a port; or a URL, whose host is meant.
    :raises Unadministrable: it is none of these.
    """
    url = what
    if "://" not in what:
        bare = what.strip("[]")
        host = f"[{bare}]" if ":" in bare and is_address(bare) else _PORT.sub("", what)
        # The URL of that host; empty, which is refused below, if there is more than a name.
        url = f"http://{host}/" if not _DELIMITERS.intersection(host) else ""
    found = host_of(normal_form(url))
    if not (is_address(found) or _NAME.fullmatch(found)) or fault_of(url):
        raise Unadministrable(
            f"{what[:100]!r} names no host: write a name such as reader.example, or an address"
        )
    return found


def _topic(what: str) -> str:
    """The URL of a topic, or the beginning of URLs and a ``*``, in the form that is compared."""
    beginning = what.removesuffix("*")
    if fault := fault_of(beginning):
        raise Unadministrable(f"{what[:100]!r} is no topic: {fault}")
    if what == beginning:
        return _compared(what)
    if beginning.count("/") < 3:
        raise Unadministrable(
            f"{what[:100]!r} has no whole host: write a slash behind the host, such as "
            "http://spam.example/*; or block the host"
        )
    return _compared(beginning, "*")


def _compared(url: str, ending: str = "") -> str:
    """A URL in the form in which ``Blocks`` compares it.

    :raises Unadministrable: it is too long: the normal form encodes characters.
    """
    url = with_canonical_host(normal_form(url)) + ending
    if len(url) > MAX_URL:
        raise Unadministrable(f"the URL must have {MAX_URL} characters or fewer in normal form")
    return url


def _network(what: str) -> str:
    """An address or a network as a network in text, of IPv4 if it is mapped into IPv6."""
    try:
        network = ip_network(what, strict=False)
    except ValueError:
        raise Unadministrable(
            f"{what[:100]!r} is no source: write an address such as 192.0.2.7, or a network such "
            "as 192.0.2.0/24"
        ) from None
    if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped is not None:
        if network.prefixlen < 96:
            raise Unadministrable(f"{what} has all IPv4 addresses: block a smaller network")
        mapped = network.network_address.ipv4_mapped
        network = ip_network(f"{mapped}/{network.prefixlen - 96}")
    if not network.prefixlen:
        raise Unadministrable(f"{what} has all addresses: block a smaller network")
    return str(network)
