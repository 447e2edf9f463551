"""Listens where Twisted's endpoints say, but for two things that Twisted does otherwise.

A listener with TLS can have its certificate read again: see ``certificates``.

A socket may be one that somebody else has opened, such as systemd.  Twisted takes a UNIX socket
that it is given for one that it has made.  It changes the mode of the socket's file when it
begins, and removes the file when it ends; both are for whoever made it.  And when it ends it
shuts the socket down, so that nobody can listen on it again: systemd would hand a dead socket to
the next broker.
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
    """A UNIX socket that somebody else has opened, and keeps open when the broker ends."""

    #: Twisted's own class for TCP says so of sockets that it adopts; the one for UNIX does not.
    _shouldShutdown = False

    @classmethod
    def adopt(cls, descriptor: int, factory: Factory[Any], reactor: Any) -> AdoptedPort:
        """Listen on a socket.

        :param descriptor: the socket, which is listened on already.
        """
        port: AdoptedPort = cls._fromListeningDescriptor(reactor, descriptor, factory)
        # A name as of a socket without a file, by which Twisted knows to leave files alone.
        port._bindPath = b"\0" + port._bindPath
        port.startListening()
        return port


class Adopting:
    """A reactor that adopts UNIX sockets, and leaves their files alone.

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
