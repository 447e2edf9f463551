"""Connections to judged addresses only.

A name is looked up once, every address that it has is judged, and the
connection goes to a judged address and not to the name: a name server that
gives another answer a moment later changes nothing.  The host name remains
what the server is asked for and what its certificate must show.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from OpenSSL import SSL
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint, wrapClientTLS
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.interfaces import (
    IAddress,
    IProtocol,
    IProtocolFactory,
    IReactorTCP,
    IReactorTime,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import connectionDone
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web.client import URI
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from rsscloud_broker.model import OutboundError
from rsscloud_broker.outbound.guard import AddressGuard
from rsscloud_broker.outbound.tls import HostTLS, TLSContext

#: Seconds after which a connection ends, come what may: more than any deadline.
LIFETIME = 60.0

#: Bytes that a connection may bring: more than any topic may have.
MAX_RECEIVED = 16 * 1024 * 1024

#: Gives every address of a host name; raises OSError where there is none.
Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]


class _Bounded(ProtocolWrapper):
    """A connection that neither lasts nor brings more than it may.

    The deadline of an exchange is the client's; this is for what the client does
    not see: headers without end, and a peer that does not take part in closing TLS.
    """

    transport: Any
    factory: Any

    def __init__(self, factory: Any, wrapped: IProtocol) -> None:
        super().__init__(factory, wrapped)
        self._received = 0
        self._end = factory.clock.callLater(LIFETIME, self._abort)

    def _abort(self) -> None:
        self.transport.abortConnection()

    def dataReceived(self, data: bytes) -> None:
        self._received += len(data)
        if self._received > MAX_RECEIVED:
            self._abort()
        else:
            super().dataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._end.active():
            self._end.cancel()
        tls: HostTLS | None = self.factory.tls
        if tls is not None:
            if self._received:
                tls.keep_session(self.transport.getHandle())
            if isinstance(reason.value, SSL.Error):
                reason = Failure(OutboundError(tls.reason(reason.value)))
        super().connectionLost(reason)


class _BoundedFactory(WrappingFactory):
    """Bounds the connection of an HTTP client, and looks whom it has reached."""

    protocol = _Bounded
    noisy = False

    def __init__(
        self, wrapped: Any, clock: IReactorTime, guard: AddressGuard, tls: HostTLS | None
    ) -> None:
        super().__init__(wrapped)
        wrapped.noisy = False  # or each connection makes two lines in the log
        self.clock = clock
        self.tls = tls
        self._guard = guard

    def buildProtocol(self, addr: IAddress | None) -> Any:
        peer: Any = addr
        self._guard.judge(peer.host, peer.port)  # it is the one that was dialled, surely
        return super().buildProtocol(addr)


@implementer(IStreamClientEndpoint)
class GuardedEndpoint:
    """One host and port, connected to if the guard agrees."""

    def __init__(
        self,
        reactor: IReactorTCP,
        resolve: Resolve,
        guard: AddressGuard,
        uri: URI,
        tls: TLSContext,
    ) -> None:
        self._reactor = reactor
        self._resolve = resolve
        self._guard = guard
        self._host = uri.host.decode("ascii")
        self._port = uri.port
        self._secure = uri.scheme == b"https"
        self._tls = tls

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        return Deferred.fromCoroutine(self._connect(protocolFactory))

    async def _connect(self, factory: Any) -> IProtocol:
        host = self._host.strip("[]")
        try:
            addresses = await self._resolve(host)
        except (OSError, UnicodeError) as error:
            raise OutboundError(f"the name {host} does not resolve: {error}") from error
        for address in addresses:
            self._guard.judge(address, self._port)
        clock = IReactorTime(self._reactor)
        problem = f"the name {host} has no address"
        for address in addresses:
            try:
                tls = self._tls.to(host, self._port) if self._secure else None
                bounded = _BoundedFactory(factory, clock, self._guard, tls)
                connected: Any = await self._endpoint(address, tls).connect(bounded)
            except (CancelledError, ConnectingCancelledError):
                raise  # or the next address would be tried after the deadline
            except Exception as error:  # whatever is wrong with this address, the next may do
                problem = f"no connection to {address} port {self._port}: {error}"
            else:
                protocol: IProtocol = connected.wrappedProtocol
                return protocol
        raise OutboundError(problem)

    def _endpoint(self, address: str, tls: HostTLS | None) -> IStreamClientEndpoint:
        kind = TCP6ClientEndpoint if ":" in address else TCP4ClientEndpoint
        endpoint: IStreamClientEndpoint = kind(self._reactor, address, self._port, timeout=10)
        return endpoint if tls is None else wrapClientTLS(tls, endpoint)


@implementer(IAgentEndpointFactory)
class GuardedEndpoints:
    """Gives Twisted's agent a guarded endpoint for each URI.

    :param tls: what those that are secure have in common.
    """

    def __init__(
        self,
        reactor: IReactorTCP,
        resolve: Resolve,
        guard: AddressGuard,
        tls: TLSContext,
    ) -> None:
        self._reactor = reactor
        self._resolve = resolve
        self._guard = guard
        self._tls = tls

    def endpointForURI(self, uri: URI) -> GuardedEndpoint:
        return GuardedEndpoint(self._reactor, self._resolve, self._guard, uri, self._tls)
