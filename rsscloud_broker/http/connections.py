"""Limits the connections of clients: how many there may be, and how long each may stay open.

``LimitedConnections`` counts connections, in total and for each address.  ``Connection`` closes a
connection whose client does not begin a request in time, or does not read an answer in time.
``Answering`` closes all of them when the broker stops, without losing a request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final
from typing import Protocol as TypingProtocol
from urllib.parse import urlsplit

from attrs import define
from twisted.application.service import Service
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IProducer,
    IProtocolNegotiationFactory,
    IPushProducer,
    IReactorTime,
)
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.task import deferLater
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from zope.interface import implementer

from rsscloud_broker.config import Http, Network
from rsscloud_broker.http.bodies import BodyBudget
from rsscloud_broker.http.proxies import UnnamedProxies, is_near, is_own_host
from rsscloud_broker.http.security import SECURITY_HEADERS
from rsscloud_broker.policy.addresses import within
from rsscloud_broker.util.clock import call_off
from rsscloud_broker.util.deferreds import returns_deferred

#: Seconds within which a whole request must arrive; and the first one of a connection begin.
REQUEST_TIMEOUT = 30.0

_REASONS = {
    400: b"Bad Request",
    408: b"Request Timeout",
    413: b"Content Too Large",
    414: b"URI Too Long",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}

#: Seconds after which what there was no memory for should be sent again.
PAUSE: Final = 3

#: What the words of ``local_programs`` mean; None: it depends on ``public_url``.
_LOCAL_PROGRAMS: Final = {"always": True, "never": False, "auto": None}


class _Transport(TypingProtocol):
    """The methods of Twisted's transports that ``Connection`` uses."""

    def write(self, data: bytes) -> None: ...
    def registerProducer(self, producer: IProducer, streaming: bool) -> None: ...
    def abortConnection(self) -> None: ...
    def getPeer(self) -> IAddress: ...
    def getHost(self) -> IAddress: ...


class HTTPLimits:
    """The limits of the HTTP server, shared by all its connections.  A reload changes them.

    :ivar public_url: the URL by which others reach the broker; empty if only this machine can.
    :ivar trusted: the networks of trusted proxies.
    :ivar bodies: counts the bytes of request bodies in memory.
    :ivar largest_body: how many bytes a body may have where that is more than ``http`` allows.
    :ivar proxies: warns of proxies that ``trusted_proxies`` does not name.
    :ivar closing: whether connections are closed after the next answer, since the broker stops.
    """

    def __init__(self, http: Http, clock: IReactorTime, public_url: str = "") -> None:
        self.http = http
        self.clock = clock
        self.public_url = public_url
        self.trusted = http.proxy_networks
        self.bodies = BodyBudget(http.body_limit)
        self.largest_body = 0
        self.proxies = UnnamedProxies()
        self.closing = False

    @property
    def trusts_loopback(self) -> bool | None:
        """Whether a request from a loopback address is one of a program on this machine.

        None if that is so only for trusted proxies: the broker has a public URL, so a proxy on this
        machine may pass on the requests of others.
        """
        configured = _LOCAL_PROGRAMS[self.http.local_programs]
        if configured is not None:
            return configured
        is_public = not is_own_host(urlsplit(self.public_url).hostname or "localhost")
        return None if is_public else True

    def change(self, http: Http) -> None:
        """Apply other limits from now on, to open connections too.  No connection is closed."""
        self.http = http
        self.trusted = http.proxy_networks
        self.bodies.set_body_limit(max(http.body_limit, self.largest_body))


class Connection(ProtocolWrapper):
    """One connection, on which the client must begin each request in time.

    For the first request the time runs from the beginning of the connection, and for a later one
    from the first byte after the request before.  It runs until the end of the request's first
    line; from there on the request has a deadline of its own.

    The client must read an answer within the time for idle connections, if the answer has filled
    the buffers or if the broker wants to close the connection.

    :ivar refused: whether the broker has sent an answer that ends the connection.  It then ignores
        all that the client sends.
    """

    transport: _Transport  # type: ignore[assignment] # it is a connection of TCP, TLS or a UNIX socket
    factory: LimitedConnections
    wrappedProtocol: HTTPChannel
    refused = False
    _deadline: IDelayedCall | None = None  # for the next request to begin
    _reader_deadline: IDelayedCall | None = None
    _has_begun = False  # whether a request began in the bytes that came last
    _checked_against: tuple[Network, ...] | None = None
    _from_proxy = False

    # The addresses of a connection never change, but transports ask the operating system each time.

    @cached_property
    def peer(self) -> IAddress:
        """The address of the client, or of the proxy before it."""
        return self.transport.getPeer()

    @property
    def from_proxy(self) -> bool:
        """Whether the connection comes from a proxy that is trusted now.

        A connection over a UNIX socket always does: only a proxy on this machine can open it.
        """
        trusted = self.factory.limits.trusted
        if trusted is not self._checked_against:  # most connections are checked once
            host = getattr(self.peer, "host", None)
            self._from_proxy = host is None or within(host, trusted)
            self._checked_against = trusted
        return self._from_proxy

    @property
    def may_be_proxy(self) -> bool:
        """Whether the connection comes from a private network, but from no trusted proxy."""
        return not self.from_proxy and is_near(str(getattr(self.peer, "host", "")))

    @cached_property
    def _own_address(self) -> IAddress:
        return self.transport.getHost()

    def getPeer(self) -> IAddress:
        return self.peer

    def getHost(self) -> IAddress:
        return self._own_address

    def refuse(self, status: int, text: str, page: bytes = b"") -> None:
        """Send an answer at once, and let the client read it before the connection is closed.

        Does nothing if an answer was sent in this way before: more than one thing may be wrong
        with a request, and its deadline may pass while the client reads the answer.

        If the broker closed the connection while the client still sends, the client's operating
        system would throw the answer away.

        :param page: the answer in HTML, which is sent instead of the text.
        """
        if self.refused:
            return
        self.refused = True
        self.stop_awaiting_request()
        body, kind, more = f"{text}\n".encode(), b"plain", b""
        if page:
            body, kind = page, b"html"
            more = b"".join(b"%s: %s\r\n" % header for header in SECURITY_HEADERS.items())
        if status == 503:
            more += b"Retry-After: %d\r\n" % PAUSE
        self.transport.write(
            b"HTTP/1.1 %d %s\r\nConnection: close\r\n%s"
            b"Content-Type: text/%s; charset=utf-8\r\nContent-Length: %d\r\n\r\n%s"
            % (status, _REASONS[status], more, kind, len(body), body)
        )
        # A refused client may still send; it has two seconds to read the answer.
        self.factory.limits.clock.callLater(2.0, self.transport.abortConnection)

    # what comes

    def await_request(self) -> None:
        """Set the timer that closes the connection unless a request begins in time."""
        limits = self.factory.limits
        self._deadline = limits.clock.callLater(REQUEST_TIMEOUT, self.transport.abortConnection)

    def stop_awaiting_request(self) -> None:
        """Stop waiting for a request: one has begun, or none will be accepted."""
        self._has_begun = True
        call_off(self._deadline)
        self._deadline = None

    def dataReceived(self, data: bytes) -> None:
        """Pass bytes on to ``HTTPChannel``; if they only begin a first line, limit its time."""
        if self.refused:
            return
        self._has_begun = False
        super().dataReceived(data)
        begun = self._has_begun or self._deadline or self.wrappedProtocol.requests
        if not begun:
            self.await_request()  # these bytes are part of a first line

    # what goes

    # ``HTTPChannel`` may go on with the rest of a packet after a refusal, and find more that is
    # wrong.  The client has its answer by then.

    def write(self, data: bytes) -> None:
        if not self.refused:
            self.transport.write(data)

    def writeSequence(self, data: Iterable[bytes]) -> None:
        # The head of an answer comes in dozens of pieces, and a transport looks at each.
        self.write(b"".join(data))

    def registerProducer(self, producer: IPushProducer, streaming: bool) -> None:
        """Wrap the producer, so that the connection learns when its buffers are full."""
        self.transport.registerProducer(_ObservedProducer(producer, self), streaming)

    def await_reader(self) -> None:
        """Set the timer that aborts the connection unless the client empties the buffers."""
        self.stop_awaiting_reader()
        if self in self.factory.protocols:  # it has not gone yet
            limits = self.factory.limits
            self._reader_deadline = limits.clock.callLater(
                limits.http.idle_timeout, self.transport.abortConnection
            )

    def stop_awaiting_reader(self) -> None:
        """Stop waiting for the client: it has read what was in the buffers."""
        call_off(self._reader_deadline)

    def loseConnection(self) -> None:
        """Close the connection when the client has read the rest, or its time is over."""
        if self.refused:
            return  # the client has a moment to read the answer
        self.await_reader()  # what is left is still sent
        super().loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.stop_awaiting_request()
        self.stop_awaiting_reader()
        super().connectionLost(reason)


@implementer(IPushProducer)
@define(eq=False)
class _ObservedProducer:
    """Wraps a producer, and tells the connection when the buffers are full and when empty."""

    _producer: IPushProducer
    _connection: Connection

    def pauseProducing(self) -> None:
        """The buffers are full: from now on the client must read."""
        self._connection.await_reader()
        self._producer.pauseProducing()

    def resumeProducing(self) -> None:
        self._connection.stop_awaiting_reader()
        self._producer.resumeProducing()

    def stopProducing(self) -> None:
        self._producer.stopProducing()


@implementer(IProtocolNegotiationFactory)
class LimitedConnections(WrappingFactory):
    """Accepts connections up to the limits, in total and for each address."""

    protocol = Connection
    noisy = False

    def __init__(self, wrapped: Factory[Any], limits: HTTPLimits) -> None:
        super().__init__(wrapped)
        self.limits = limits
        self._by_host: Counter[str] = Counter()  # how many connections

    def logPrefix(self) -> str:
        """What Twisted's log says that has started: people do not know the names of classes."""
        return "HTTP server"

    def acceptableProtocols(self) -> list[bytes]:
        """HTTP/1.1 alone.  A TLS client that offers a choice takes no answer for a refusal."""
        return [b"http/1.1"]

    def buildProtocol(  # type: ignore[override] # Factory allows None; the policy forgot it
        self, addr: IAddress | None
    ) -> ProtocolWrapper | None:
        """The protocol of a new connection; None, which closes it, if there are too many."""
        host = getattr(addr, "host", "")
        http = self.limits.http
        if len(self.protocols) >= http.max_connections:
            return None
        # A trusted proxy brings the requests of many.
        counts = host and not within(host, self.limits.trusted)
        if counts and self._by_host[host] >= http.max_connections_per_address:
            return None
        return super().buildProtocol(addr)

    def registerProtocol(self, p: Connection) -> None:
        """Count a new connection, and limit the time until its first request."""
        super().registerProtocol(p)
        self._by_host[_host(p)] += 1
        p.await_request()

    def unregisterProtocol(self, p: Connection) -> None:
        """Stop counting a connection that has ended."""
        super().unregisterProtocol(p)
        host = _host(p)
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]


def _host(connection: Connection) -> str:
    """The address of the client or proxy; empty over a UNIX socket."""
    return str(getattr(connection.transport.getPeer(), "host", ""))


class Answering(Service):
    """Has the broker answer the requests that it has accepted before it stops.

    When it stops, each answer says that it is the last one on its connection, so that clients and
    proxies go to another broker with their next request.  An idle connection stays open for a
    second: its client may have sent a request that the broker has not read yet, and the
    client's system would report a reset connection instead of an answer.  nginx has the same, as
    ``keepalive_min_timeout``.

    The service waits until each accepted request has got at least the beginning of its answer: some
    answers, such as streams of events, never end.

    :param within: for how many seconds it waits at most.
    """

    name = "answers to requests"

    def __init__(self, connections: LimitedConnections, within: float) -> None:
        self._connections = connections
        self._clock = connections.limits.clock
        self._within = within

    def startService(self) -> None:
        super().startService()
        self._connections.limits.closing = False

    @returns_deferred
    async def stopService(self) -> None:
        """Wait for the end of all requests, or of the time; close idle connections in a second."""
        super().stopService()
        self._connections.limits.closing = True
        now = self._clock.seconds()
        until, idle_until = now + self._within, now + min(1.0, self._within)
        while (idle := self._idle_connections()) or self._has_unanswered():
            now = self._clock.seconds()
            if now >= idle_until:
                for connection in idle:
                    connection.loseConnection()
                if now >= until or not self._has_unanswered():
                    return
            await deferLater(self._clock, 0.05)  # seconds until the next look

    def _idle_connections(self) -> list[Connection]:
        """The connections on which no request is being read or answered."""
        return [one for one in self._connections.protocols if not one.wrappedProtocol.requests]

    def _has_unanswered(self) -> bool:
        """Whether some request waits for its answer."""
        return any(
            not request.startedWriting
            for connection in self._connections.protocols
            for request in connection.wrappedProtocol.requests
        )
