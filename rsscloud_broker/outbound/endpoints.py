"""Connections to judged addresses only.

A name is looked up once, every address that it has is judged, and the
connection goes to a judged address and not to the name: a name server that
gives another answer a moment later changes nothing.  The host name remains
what the server is asked for and what its certificate must show.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint, wrapClientTLS
from twisted.internet.interfaces import (
    IOpenSSLClientConnectionCreator,
    IProtocol,
    IProtocolFactory,
    IReactorTCP,
    IStreamClientEndpoint,
)
from twisted.internet.ssl import (
    Certificate,
    optionsForClientTLS,
    platformTrust,
    trustRootFromCertificates,
)
from twisted.web.client import URI
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from rsscloud_broker.model import OutboundError
from rsscloud_broker.outbound.guard import AddressGuard

#: Gives every address of a host name; raises OSError where there is none.
Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]

#: Gives what TLS to a host of that name needs, its certificate's check included.
ClientTLS: TypeAlias = Callable[[str], IOpenSSLClientConnectionCreator]


@implementer(IStreamClientEndpoint)
class GuardedEndpoint:
    """One host and port, connected to if the guard agrees."""

    def __init__(
        self,
        reactor: IReactorTCP,
        resolve: Resolve,
        guard: AddressGuard,
        uri: URI,
        tls: ClientTLS,
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
        factory.noisy = False  # or each connection makes two lines in the log
        host = self._host.strip("[]")
        try:
            addresses = await self._resolve(host)
        except (OSError, UnicodeError) as error:
            raise OutboundError(f"the name {host} does not resolve: {error}") from error
        for address in addresses:
            self._guard.judge(address)
        problem = f"the name {host} has no address"
        for address in addresses:
            try:
                protocol: IProtocol = await self._endpoint(address).connect(factory)
            except OutboundError:
                raise
            except Exception as error:  # whatever is wrong with this address, the next may do
                problem = f"no connection to {address} port {self._port}: {error}"
            else:
                return protocol
        raise OutboundError(problem)

    def _endpoint(self, address: str) -> IStreamClientEndpoint:
        kind = TCP6ClientEndpoint if ":" in address else TCP4ClientEndpoint
        endpoint: IStreamClientEndpoint = kind(self._reactor, address, self._port, timeout=10)
        if self._secure:
            endpoint = wrapClientTLS(self._tls(self._host.strip("[]")), endpoint)
        return endpoint


@implementer(IAgentEndpointFactory)
class GuardedEndpoints:
    """Gives Twisted's agent a guarded endpoint for each URI.

    :param trusted: authorities whose certificates are believed; by default those
        that the system trusts.
    """

    def __init__(
        self,
        reactor: IReactorTCP,
        resolve: Resolve,
        guard: AddressGuard,
        trusted: Sequence[Certificate] = (),
    ) -> None:
        self._reactor = reactor
        self._resolve = resolve
        self._guard = guard
        trust_root = trustRootFromCertificates(trusted) if trusted else platformTrust()
        self._tls: ClientTLS = partial(optionsForClientTLS, trustRoot=trust_root)

    def endpointForURI(self, uri: URI) -> GuardedEndpoint:
        return GuardedEndpoint(self._reactor, self._resolve, self._guard, uri, self._tls)
