"""HTTP from strangers: bounded bodies, deadlines, and connections.

``twisted.web`` reads a body of any length and waits for it as long as bytes
drip in.  Here a body over the limit is refused before it is read (or, where its
length is not told, as soon as it passes the limit), a request has a deadline
from its first line to its last byte, and connections are counted, in all and
for each address.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from io import BytesIO
from ipaddress import ip_address
from typing import Any, cast
from typing import Protocol as TypingProtocol

from attrs import Factory as Default
from attrs import field, frozen
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime
from twisted.internet.protocol import Factory, connectionDone
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.http import Request as HTTPRequest
from twisted.web.resource import IResource
from twisted.web.server import Request, Site

from rsscloud_broker.config import Http, Network
from rsscloud_broker.front_doors.requests import header

#: Seconds in which a refused client may read the answer while it still sends.
LINGER = 2.0

_CONTROLS = re.compile(rb"[\x00-\x1f\x7f-\x9f]")

_REASONS = {
    408: b"Request Timeout",
    413: b"Content Too Large",
}


class _Transport(TypingProtocol):
    """What is needed of a connection."""

    def write(self, data: bytes) -> None: ...
    def abortConnection(self) -> None: ...
    def getPeer(self) -> IAddress: ...


@frozen
class Limits:
    """What a request is bound by.

    :ivar trusted: the networks of the proxies that are believed.
    """

    http: Http
    clock: IReactorTime
    trusted: tuple[Network, ...] = field(
        init=False, default=Default(lambda self: self.http.proxy_networks, takes_self=True)
    )


class BoundedRequest(Request):
    """A request with a bounded body and a deadline."""

    limits: Limits

    def __init__(self, channel: HTTPChannel, *args: Any, **kwargs: Any) -> None:
        super().__init__(channel, *args, **kwargs)
        cast(_Connection, channel.transport).request_began()
        self._body = BytesIO()
        self._received = 0
        self._refused = False
        self._deadline: IDelayedCall | None = self.limits.clock.callLater(
            self.limits.http.request_timeout,
            self._refuse,
            408,
            f"The whole request must arrive within {self.limits.http.request_timeout:g} seconds.",
        )

    def gotLength(self, length: int | None) -> None:
        self._body = BytesIO()  # never a temporary file: the limit is low
        self.content = self._body
        if self._refused:
            return
        if length is not None and length > self.limits.http.body_limit:
            self.requestHeaders.removeHeader(b"expect")  # nothing is asked for after the answer
            self._refuse_body()

    def handleContentChunk(self, data: bytes) -> None:
        self._received += len(data)
        if self._refused:
            return
        if self._received > self.limits.http.body_limit:
            self._refuse_body()
        else:
            self._body.write(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        self._call_off_deadline()
        if self._refused:
            return
        kinds = self.requestHeaders.getRawHeaders(b"content-type", [])
        if kinds:  # Twisted's reading of it fails on what Python takes for a line break
            cleaned = [_CONTROLS.sub(b" ", kind) for kind in kinds]
            self.requestHeaders.setRawHeaders(b"content-type", cleaned)
        super().requestReceived(command, path, version)

    def connectionLost(self, reason: Failure) -> None:
        self._call_off_deadline()
        super().connectionLost(reason)

    def getClientAddress(self) -> IAddress:
        """The address of the client; of the one behind it where a trusted proxy tells."""
        peer = super().getClientAddress()
        host = getattr(peer, "host", None)
        trusted = self.limits.trusted
        hops = [hop.strip() for hop in (header(self, "x-forwarded-for") or "").split(",")]
        if host is None:  # a UNIX socket: only a proxy on this machine can be there
            host = "127.0.0.1"
        elif not _within(host, trusted):
            hops = []
        while hops and (hop := hops.pop()):
            if not _is_address(hop):
                break
            host = hop
            if not _within(hop, trusted):
                break
        kind = IPv6Address if ":" in host else IPv4Address
        return kind("TCP", host, getattr(peer, "port", 0))

    def _call_off_deadline(self) -> None:
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        self._deadline = None

    def _refuse_body(self) -> None:
        self._refuse(413, f"The body must not be larger than {self.limits.http.body_limit} bytes.")

    def _refuse(self, status: int, text: str) -> None:
        """Answer at once, then let the client read the answer before hanging up.

        Closing while the client still sends would make its system throw the
        answer away.
        """
        self._refused = True
        self._call_off_deadline()
        body = f"{text}\n".encode()
        transport = cast(_Transport, self.channel.transport)
        transport.write(
            b"HTTP/1.1 %d %s\r\nConnection: close\r\n"
            b"Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n\r\n%s"
            % (status, _REASONS[status], len(body), body)
        )
        self.limits.clock.callLater(LINGER, transport.abortConnection)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _within(address: str, networks: Sequence[Network]) -> bool:
    """Whether an address is in one of several networks."""
    judged = ip_address(address.partition("%")[0])
    mapped = getattr(judged, "ipv4_mapped", None)
    return any((mapped or judged) in network for network in networks)


def bounded_site(resource: IResource, limits: Limits) -> WrappingFactory:
    """A factory that serves a resource over bounded HTTP.

    :param resource: the root.
    """
    request_class = type("BoundedRequest", (BoundedRequest,), {"limits": limits})
    site: Factory[Any] = _QuietSite(
        resource,
        requestFactory=request_class,
        timeout=limits.http.idle_timeout,
        reactor=limits.clock,
    )
    return LimitedConnections(site, limits)


class _QuietSite(Site):
    """A site that logs no line for each request: what matters is logged where it happens.

    It speaks HTTP/1.1 and no HTTP/2, whose requests are not counted here.
    """

    protocol = HTTPChannel  # type: ignore[assignment] # the base class's chooses between the two
    displayTracebacks = False
    noisy = False

    def log(self, request: HTTPRequest) -> None:
        pass


class _Connection(ProtocolWrapper):
    """One connection, on which each request must begin in time.

    The time runs from the beginning of the connection, and later from the first
    byte after an earlier request, to the end of the request's first line; from
    there on the request has a deadline of its own.
    """

    transport: _Transport  # type: ignore[assignment] # it is a connection of TCP, TLS or a UNIX socket
    factory: LimitedConnections
    wrappedProtocol: HTTPChannel
    _deadline: IDelayedCall | None = None
    _began = False

    def await_request(self) -> None:
        """Hang up unless a request begins in time."""
        limits = self.factory.limits
        self._deadline = limits.clock.callLater(
            limits.http.request_timeout, self.transport.abortConnection
        )

    def request_began(self) -> None:
        """A request has begun, or will not begin any more."""
        self._began = True
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        self._deadline = None

    def dataReceived(self, data: bytes) -> None:
        self._began = False
        super().dataReceived(data)
        if not (self._began or self._deadline or self.wrappedProtocol.requests):
            self.await_request()  # these bytes are part of a first line

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.request_began()
        super().connectionLost(reason)


class LimitedConnections(WrappingFactory):
    """Turns away the connections that are too many, and those that ask nothing."""

    protocol = _Connection
    noisy = False

    def __init__(self, wrapped: Factory[Any], limits: Limits) -> None:
        super().__init__(wrapped)
        self.limits = limits
        self._by_host: Counter[str] = Counter()

    def buildProtocol(  # type: ignore[override] # Factory allows None; the policy forgot it
        self, addr: IAddress | None
    ) -> ProtocolWrapper | None:
        host = getattr(addr, "host", "")
        http = self.limits.http
        if len(self.protocols) >= http.max_connections:
            return None
        # A trusted proxy brings the requests of many.
        counts = host and not _within(host, self.limits.trusted)
        if counts and self._by_host[host] >= http.max_connections_per_address:
            return None
        return super().buildProtocol(addr)

    def registerProtocol(self, p: _Connection) -> None:
        super().registerProtocol(p)
        self._by_host[_host(p)] += 1
        p.await_request()

    def unregisterProtocol(self, p: _Connection) -> None:
        super().unregisterProtocol(p)
        host = _host(p)
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]


def _host(connection: _Connection) -> str:
    return str(getattr(connection.transport.getPeer(), "host", ""))
