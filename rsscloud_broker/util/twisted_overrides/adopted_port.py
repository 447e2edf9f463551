"""Listens on a UNIX socket that another program, such as systemd, opened and keeps open.

Twisted treats a UNIX socket that it is given like one that it made itself.  When it begins to
listen it changes the mode of the socket's file, and when it ends it removes the file; both are the
business of the program that made it.  When it ends it also shuts the socket down, so that nobody
can listen on it again: systemd would hand a dead socket to the next broker.  With TCP sockets
Twisted does nothing of that.

Plain Twisted has no means to leave the socket alone, so there is no switch to it here.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import unix
from twisted.internet.protocol import Factory


class AdoptedPort(unix.Port):
    """A UNIX socket that another program opened, and keeps open when the broker ends."""

    #: Twisted's own class for TCP sets this for sockets that it is given; the one for UNIX does
    #: not.
    _shouldShutdown = False

    @classmethod
    def adopt(cls, descriptor: int, factory: Factory[Any], reactor: Any) -> AdoptedPort:
        """Accept connections on a socket.

        :param descriptor: the file descriptor of the socket, which listens already.
        """
        port: AdoptedPort = cls._fromListeningDescriptor(reactor, descriptor, factory)
        # Twisted leaves the file alone if the name begins like that of a socket without a file.
        port._bindPath = b"\0" + port._bindPath
        port.startListening()
        return port
