"""Brings what an administrator wants to block into the form in which it is compared."""

from __future__ import annotations

import re
from ipaddress import IPv6Network, ip_network

from rsscloud_broker.errors import Unadministrable
from rsscloud_broker.model import host_of
from rsscloud_broker.model.administration import BLOCK_KINDS
from rsscloud_broker.model.hosts import with_canonical_host
from rsscloud_broker.util.urls import is_address, normal_form
from rsscloud_broker.wire.web_address import MAX_URL, fault_of

_PORT = re.compile(r":[0-9]+\Z")
_DELIMITERS = frozenset("/?#@\\")
_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?")


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
        return _short(_compared(what))
    if beginning.count("/") < 3:
        raise Unadministrable(
            f"{what[:100]!r} has no whole host: write a slash behind the host, such as "
            "http://spam.example/*; or block the host"
        )
    return _short(f"{_compared(beginning)}*")


def _compared(url: str) -> str:
    """A URL in the form in which ``Blocks`` compares it."""
    return with_canonical_host(normal_form(url))


def _short(url: str) -> str:
    """:raises Unadministrable: a URL is too long by now: the normal form encodes characters."""
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
