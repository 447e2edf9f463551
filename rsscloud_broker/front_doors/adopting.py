"""Has Twisted's endpoints listen in two cases in another way than Twisted does.

A listener with TLS can have its certificate read again: see ``certificates``.  A UNIX socket that
another program opened is left as it is when the broker ends: see ``twisted_overrides``.
"""

from __future__ import annotations

from socket import AF_UNIX
from typing import Any

from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory
from zope.interface import directlyProvides, providedBy

from rsscloud_broker.front_doors.certificates import Certificate
from rsscloud_broker.twisted_overrides.adopted_port import AdoptedPort


class Adopting:
    """A reactor that listens in these two cases in another way.

    :param description: the endpoint that it is for.
    :param certificates: takes the certificate of the endpoint, if it listens with TLS.
    """

    def __init__(self, reactor: Any, description: str, certificates: list[Certificate]) -> None:
        self._reactor = reactor
        self._description = description
        self._certificates = certificates
        directlyProvides(self, providedBy(reactor))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def listenSSL(
        self, port: int, factory: Factory[Any], contextFactory: Any, **where: Any
    ) -> IListeningPort:
        """See ``IReactorSSL``."""
        certificate = Certificate(self._description, contextFactory)
        self._certificates.append(certificate)
        listening: IListeningPort = self._reactor.listenSSL(port, factory, certificate, **where)
        return listening

    def adoptStreamPort(
        self, fileDescriptor: int, addressFamily: int, factory: Factory[Any]
    ) -> IListeningPort:
        """See ``IReactorSocket``."""
        if addressFamily == AF_UNIX:
            return AdoptedPort.adopt(fileDescriptor, factory, self._reactor)
        port: IListeningPort = self._reactor.adoptStreamPort(fileDescriptor, addressFamily, factory)
        return port
