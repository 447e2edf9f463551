"""Wraps the reactor so that Twisted's endpoints listen as the broker needs: ``listening`` uses it.

The wrapper changes two things:

- A listener with TLS can read its certificate again while it runs: see ``certificates``.
- A UNIX socket that systemd has opened stays as systemd made it.  Twisted treats a socket that it
  adopts as its own: it changes the mode of the socket's file when it starts to listen, and
  removes the file and shuts the socket down when it stops.  Nobody can listen on a socket that
  was shut down, so systemd would pass a dead socket to the next broker.
"""

from __future__ import annotations

from socket import AF_UNIX
from typing import Any

from twisted.internet import unix
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory
from zope.interface import directlyProvides, providedBy

from rsscloud_broker.front_doors.certificates import Certificate


class AdoptedPort(unix.Port):
    """A listening UNIX socket that another program opened, and that stays open after the broker."""

    #: Twisted sets this on the TCP ports that it adopts, and forgets to on UNIX ports.
    _shouldShutdown = False

    @classmethod
    def adopt(cls, descriptor: int, factory: Factory[Any], reactor: Any) -> AdoptedPort:
        """Accept connections on a socket that is already listening.

        :param descriptor: the file descriptor of the socket.
        """
        port: AdoptedPort = cls._fromListeningDescriptor(reactor, descriptor, factory)
        # A leading NUL marks a socket without a file (the abstract namespace), so that Twisted
        # does not touch the file.
        port._bindPath = b"\0" + port._bindPath
        port.startListening()
        return port


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
        """See ``IReactorSSL``; the certificate can be read again."""
        certificate = Certificate(self._description, contextFactory)
        self._certificates.append(certificate)
        listening: IListeningPort = self._reactor.listenSSL(port, factory, certificate, **where)
        return listening

    def adoptStreamPort(
        self, fileDescriptor: int, addressFamily: int, factory: Factory[Any]
    ) -> IListeningPort:
        """See ``IReactorSocket``; a UNIX socket stays as it was found."""
        if addressFamily == AF_UNIX:
            return AdoptedPort.adopt(fileDescriptor, factory, self._reactor)
        port: IListeningPort = self._reactor.adoptStreamPort(fileDescriptor, addressFamily, factory)
        return port
