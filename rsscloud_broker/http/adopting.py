"""Wraps the reactor so that Twisted's endpoints listen as the broker needs: ``listening`` uses it.

The wrapper changes two things:

- A listener with TLS can read its certificate again while it runs: see ``certificates``.
- A UNIX socket that systemd has opened stays as systemd made it: see
  ``twisted_overrides.adopted_port``.
"""

from __future__ import annotations

from socket import AF_UNIX
from typing import Any

from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory
from zope.interface import directlyProvides, providedBy

from rsscloud_broker.http.certificates import Certificate
from rsscloud_broker.util.twisted_overrides.adopted_port import AdoptedPort


class Adopting:
    """The reactor for one endpoint; it passes on everything but the methods below.

    :param description: the endpoint.
    :param certificates: the list to which the endpoint's certificate is added, if it listens
        with TLS.
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
        """Listen as ``IReactorSSL`` does, with a certificate that can be read again."""
        certificate = Certificate(self._description, contextFactory)
        self._certificates.append(certificate)
        listening: IListeningPort = self._reactor.listenSSL(port, factory, certificate, **where)
        return listening

    def adoptStreamPort(
        self, fileDescriptor: int, addressFamily: int, factory: Factory[Any]
    ) -> IListeningPort:
        """Listen as ``IReactorSocket`` does, but leave a UNIX socket as it was found."""
        if addressFamily == AF_UNIX:
            return AdoptedPort.adopt(fileDescriptor, factory, self._reactor)
        port: IListeningPort = self._reactor.adoptStreamPort(fileDescriptor, addressFamily, factory)
        return port
