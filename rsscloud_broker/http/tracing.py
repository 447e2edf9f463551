"""A request that knows where it comes from: from whom, by which scheme, and whether from here.

Programs on this machine may do what strangers may not: read the metrics without a token, and send
passwords over plain HTTP.  But a reverse proxy on this machine passes on the requests of strangers,
and some proxies say nothing of whom they do it for.  nginx with no more than ``proxy_pass
http://127.0.0.1:5337;`` connects from a loopback address, sends ``Host: 127.0.0.1:5337``, and adds
no header.  So a loopback address counts only where no such proxy can be: see
``HTTPLimits.trusts_loopback``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IAddress
from twisted.web.server import Request

from rsscloud_broker.http.channel import Channel
from rsscloud_broker.http.connections import Connection, HTTPLimits
from rsscloud_broker.http.proxies import is_own_host, senders
from rsscloud_broker.http.requests import header
from rsscloud_broker.policy.addresses import is_loopback

#: Headers that proxies add to the requests that they pass on.
_OF_PROXIES = (b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip")


class TracedRequest(Request):
    """A request that knows where it comes from."""

    limits: HTTPLimits
    _connection: Connection

    def __init__(self, channel: Channel, *args: Any, **kwargs: Any) -> None:
        super().__init__(channel, *args, **kwargs)
        self._connection = channel.transport

    def getClientAddress(self) -> IAddress:
        """The client's address; from a trusted proxy, the one that ``X-Forwarded-For`` gives."""
        peer = self._connection.peer
        if not self._connection.from_proxy:
            return peer
        host = getattr(peer, "host", "127.0.0.1")  # a UNIX socket has no host
        host = next((each for each in reversed([*self._senders()]) if each), host)
        kind = IPv6Address if ":" in host else IPv4Address
        return kind("TCP", host, getattr(peer, "port", 0))

    def is_local(self) -> bool:
        """Whether a program on this machine sent it, for certain.

        A reverse proxy on this machine may not say for whom it asks.  So if there may be one, only
        a request of a trusted proxy is local: that one does say it.
        """
        trusted = self.limits.trusts_loopback
        if trusted is None:
            trusted = self._connection.from_proxy
        return trusted and self.seems_local()

    def seems_local(self) -> bool:
        """Whether a program on this machine sent it, or a proxy there that hides for whom.

        Only a proxy opens a connection to a UNIX socket, and a proxy on this machine passes on
        requests from anywhere.  So a request of a proxy is local only if a trusted proxy gives the
        address of everybody before it, and each is a loopback address.  ``Host`` must name this
        machine as well: see ``is_own_host``.
        """
        if not is_own_host(header(self, "host")):
            return False
        peer = getattr(self._connection.peer, "host", None)  # a UNIX socket has none
        if peer is not None and not is_loopback(peer):
            return False
        if self._connection.from_proxy and self.requestHeaders.hasHeader(b"x-forwarded-for"):
            return all(is_loopback(sender or "") for sender in self._senders())
        return peer is not None and not any(map(self.requestHeaders.hasHeader, _OF_PROXIES))

    def sent_by(self) -> str:
        """How the client sent it: ``https``, ``http``, or empty if a proxy does not say."""
        if self._connection.from_proxy:
            return header(self, "x-forwarded-proto").rpartition(",")[2].strip().lower()
        return "https" if self.isSecure() else "http"

    def _senders(self) -> Iterator[str | None]:
        """The addresses that the request passed before a trusted proxy: see ``senders``."""
        return senders(header(self, "x-forwarded-for"), self.limits.trusted)
