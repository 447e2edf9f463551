"""Making connections, to judged addresses.

They are made here and not by the reactor's ``connectTCP``, for what that does beside
connecting is a quarter of what a notification costs.  What a connection does once it
is there is mostly Twisted's, and so is TLS.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from errno import EADDRNOTAVAIL, ECONNREFUSED, EINPROGRESS, EMFILE, ENFILE, ENOBUFS, ENOMEM
from socket import AF_INET, AF_INET6, SO_ERROR, SOCK_STREAM, SOL_SOCKET, socket
from typing import Any

from twisted.internet import error, tcp
from twisted.internet.interfaces import IDelayedCall, IProducer, IReactorTime, ITransport
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer_only

from rsscloud_broker.errors import OutboundError, Unavailable
from rsscloud_broker.outbound.guard import AddressGuard
from rsscloud_broker.outbound.http1 import Http1, NotConnected

#: Errors of the system that say nothing of the other side: there are no file
#: descriptors, buffers or ports left here.
OUR_OWN_WANT = frozenset({EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM})

#: Of an IPv6 address one of them says something else: that there is no IPv6 here.
_WANT_OVER_IPV6 = OUR_OWN_WANT - {EADDRNOTAVAIL}

_DONE = Failure(CONNECTION_DONE)
_ABORTED = error.ConnectionAborted()


class Together:
    """Does what is wanted in one turn of the reactor in the next, one right after the other.

    To begin a connection, or to send something over it, wakes a server on the same
    machine, or the network.  With other work in between, each would wake it anew, which
    takes longer than the rest.
    """

    log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._wanted: list[Callable[[], object]] = []

    def __call__(self, action: Callable[[], object]) -> None:
        if not self._wanted:
            self._clock.callLater(0, self._do)
        self._wanted.append(action)

    def _do(self) -> None:
        wanted, self._wanted = self._wanted, []
        for action in wanted:
            try:
                action()
            except Exception:  # the others are no part of it
                self.log.failure("An outgoing connection failed.")


class Dialler:
    """Makes connections."""

    def __init__(self, reactor: Any, guard: AddressGuard) -> None:
        self._reactor = reactor
        self._guard = guard
        self._together = Together(reactor)

    def dial(self, connection: Http1, address: str, timeout: float | None) -> None:
        """Connect to an address; the connection is told what comes of it.

        :param address: an IPv4 or IPv6 address, which the guard has judged.
        :param timeout: seconds until it is given up; None for never.
        """
        try:
            made = socket(AF_INET6 if ":" in address else AF_INET, SOCK_STREAM)
        except OSError as problem:
            connection.fail(_refusal(problem, address))
            return
        dialled = Dialled(
            self._reactor, self._guard, self._together, connection, made, address, timeout
        )
        connection.connector = dialled
        self._together(dialled.connect)


def _refusal(problem: BaseException | None, address: str) -> NotConnected | Unavailable:
    """What an error in connecting to an address means to who wanted the connection."""
    number = problem.errno if isinstance(problem, OSError) else getattr(problem, "osError", None)
    text = " ".join(str(problem).split())
    if number in (_WANT_OVER_IPV6 if ":" in address else OUR_OWN_WANT):
        return Unavailable(f"no connection can be made just now: {text}")
    return NotConnected(text, port_only=number == ECONNREFUSED)


# TLS says anew of each connection whatever the transport below provides, so it had
# better be little.
@implementer_only(ITransport)
class Dialled(tcp.Connection):
    """A connection of TCP, from before it is made.

    What is written goes out in the reactor's next turn, together with what is written
    over other connections.  For what the system does at once then, or for the end, the
    reactor is not asked to look when it can be done.

    :ivar protocol: the ``Http1``, until TLS comes in between.
    """

    protocol: Any

    logstr = "Http1,client"

    def __init__(
        self,
        reactor: Any,
        guard: AddressGuard,
        together: Together,
        connection: Http1,
        made: socket,
        address: str,
        timeout: float | None,
    ) -> None:
        super().__init__(made, connection, reactor)
        self._clock: IReactorTime = reactor
        self._guard = guard
        self._together = together
        self._address = address
        self._port = connection.origin[2]
        self._timer: IDelayedCall | None = None
        if timeout is not None:
            lost = Failure(error.TimeoutError())
            self._timer = self._clock.callLater(timeout, self.connectionLost, lost)
        self._reads = self._buffers = False
        self._ending: Exception | None = None
        self._gathered: list[bytes] = []

    def connect(self) -> None:
        """Begin to connect."""
        if self.disconnected:  # it is not wanted any more
            return
        try:
            number = self.socket.connect_ex((self._address, self._port))
        except OSError as problem:  # it is an address for the guard only
            self.connectionLost(Failure(problem))
            return
        if number not in {0, EINPROGRESS}:
            self.connectionLost(Failure(error.getConnectError((number, os.strerror(number)))))
            return
        self.startWriting()

    def stopConnecting(self) -> None:
        """Nobody wants this connection any more."""
        self.connectionLost(Failure(error.UserError()))

    def write(self, data: bytes) -> None:
        if self._buffers:
            super().write(data)
            return
        if not self._gathered:
            self._together(self._send_gathered)
        self._gathered.append(data)

    def registerProducer(self, producer: IProducer, streaming: bool) -> None:
        self._send_gathered()
        self._buffers = True  # the next piece is asked for when the buffer is empty
        super().registerProducer(producer, streaming)

    def loseConnection(self) -> None:
        if self._buffers:
            super().loseConnection()
        elif self._reads or self._gathered:
            # Not yet, or the reactor would look in vain for what it read from.
            self._ending = self._ending or CONNECTION_DONE
        else:
            self.connectionLost(_DONE)

    def abortConnection(self) -> None:
        if self._reads:
            self._ending = _ABORTED
        else:
            super().abortConnection()

    def _send_gathered(self) -> None:
        """Send what the system takes at once; the rest, and what comes then, by and by."""
        gathered, self._gathered = self._gathered, []
        if not gathered or not self.connected:
            return
        data = b"".join(gathered)
        try:  # noqa: SIM105 # which costs nothing here, unlike a context manager
            data = data[self.socket.send(data) :]
        except OSError:
            pass  # not now; or never, and then the reactor finds out why
        if data:
            self._buffers = True
            super().write(data)
        if self._ending is not None:
            self.loseConnection()

    # --- the reactor calls

    def doWrite(self) -> Any:
        return super().doWrite() if self.connected else self._arrive()

    def doRead(self) -> Any:
        if not self.connected:  # the reactor means another one, which had the same number
            return None
        self._reads = True
        why = super().doRead()
        self._reads = False
        if why is None and (self._ending is _ABORTED or not self._gathered):
            return self._ending
        return why

    def connectionLost(self, reason: Failure) -> None:
        self._stop_timer()
        if not self.connected and not self.disconnected:
            # The reactor may know no more than that it is lost.
            self.protocol.fail(_refusal(self._error() or reason.value, self._address))
        super().connectionLost(reason)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _error(self) -> Exception | None:
        """Why it cannot connect, if that is known; and then no more than once."""
        number = self.socket.getsockopt(SOL_SOCKET, SO_ERROR)
        return error.getConnectError((number, os.strerror(number))) if number else None

    def _arrive(self) -> Exception | None:
        """Begin to talk if there is a connection now; an error if there will be none."""
        problem = self._error()
        if problem is not None:
            return problem
        try:
            peer = self.socket.getpeername()
        except OSError:
            return None  # not yet
        try:
            if peer[0] != self._address:  # spelt differently; or not where we meant to go
                self._guard.check(peer[0], peer[1])
        except OutboundError as refusal:
            self.protocol.fail(refusal)
            return CONNECTION_LOST
        self._stop_timer()  # how long the answer may take is for others to say
        self.connected = True
        self.startReading()
        self.stopWriting()
        if self.protocol.tls is not None:
            factory = TLSMemoryBIOFactory(self.protocol.tls, True, Factory(), self._clock)
            self.protocol = TLSMemoryBIOProtocol(factory, self.protocol)
        self.protocol.makeConnection(self)
        return None
