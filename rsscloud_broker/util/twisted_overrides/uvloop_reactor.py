"""A reactor whose outgoing TCP connections are uvloop's own.

It is Twisted's asyncio reactor on a loop of uvloop.  With Twisted's own transports it would be no
quicker than the reactor on epoll; so ``connectTCP`` has uvloop open the connection, and what the
protocol gets is an ``ITCPTransport`` over uvloop's transport, as far as clients use one.

Couriers run on it, since they do little else than to open connections.  Without uvloop, which is
for CPython on POSIX alone, they run on the reactor that Twisted chooses.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from twisted.internet import error
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.interfaces import IDelayedCall, IProtocol
from twisted.internet.main import CONNECTION_DONE, installReactor
from twisted.internet.protocol import ClientFactory
from twisted.python.failure import Failure

uvloop: Any
try:
    uvloop = importlib.import_module("uvloop")
except ImportError:
    uvloop = None

_DONE: Final = Failure(CONNECTION_DONE)
#: socket(7), SO_LINGER: what is not sent is dropped when the socket is closed.
_NO_LINGER: Final = struct.pack("ii", 1, 0)

_ABORTED: Final = Failure(error.ConnectionAborted())


def install() -> None:
    """Make this the reactor of a process that has none yet; without uvloop, leave it to Twisted."""
    if uvloop is not None:
        installReactor(UvloopReactor(uvloop.new_event_loop()))


class UvloopReactor(AsyncioSelectorReactor):
    """Twisted's asyncio reactor, which has uvloop open TCP connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.loop = loop

    def connectTCP(  # type: ignore[override] # it offers as much of an IConnector as is used
        self, host: str, port: int, factory: ClientFactory, timeout: float | None = 30
    ) -> ConnectionAttempt:
        """Open a connection, as ``IReactorTCP.connectTCP`` does, but to addresses only.

        Of the factory it calls ``buildProtocol``, with the address that was really reached, or
        ``clientConnectionFailed``, and nothing else.

        :param host: an IPv4 or IPv6 address.
        :param timeout: the seconds until it gives up; None for never.
        """
        return ConnectionAttempt(self, host, port, factory, timeout)


class ConnectionAttempt:
    """A connection that is being opened.

    :param reactor: a ``UvloopReactor``.
    """

    def __init__(
        self, reactor: Any, host: str, port: int, factory: ClientFactory, timeout: float | None
    ) -> None:
        self._factory: ClientFactory | None = factory
        self._loop = reactor.loop
        self._timer: IDelayedCall | None = None
        if timeout is not None:
            self._timer = reactor.callLater(timeout, self._fail, error.TimeoutError())
        self._task = self._loop.create_task(self._connect(host, port))

    async def _connect(self, host: str, port: int) -> None:
        """Have uvloop open the connection; notify the factory if it cannot."""
        try:
            await self._loop.create_connection(partial(_Adapter, self), host, port)
        except Exception as problem:
            number = getattr(problem, "errno", None)
            self._fail(error.getConnectError((number, os.strerror(number))) if number else problem)

    def protocol_at(self, peer: tuple[Any, ...]) -> IProtocol | None:
        """The protocol of the connection; None if nobody wants it any more.

        :param peer: the name of the socket that was reached.
        """
        factory = self._take_factory()
        if factory is None:
            return None
        kind = IPv6Address if ":" in peer[0] else IPv4Address
        return factory.buildProtocol(kind("TCP", peer[0], peer[1]))

    def stopConnecting(self) -> None:
        """Give up.  The factory is notified that the connection failed."""
        self._fail(error.UserError())

    def _take_factory(self) -> ClientFactory | None:
        """Take the factory, which is called once; None if it was called already."""
        factory, self._factory = self._factory, None
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        return factory

    def _fail(self, problem: Exception) -> None:
        """Notify the factory that there is no connection, unless it was called already."""
        factory = self._take_factory()
        if factory is not None:
            self._task.cancel()
            connector: Any = self
            factory.clientConnectionFailed(connector, Failure(problem))


class _Adapter(asyncio.Protocol):
    """Connects a protocol of Twisted with a transport of asyncio; it is the transport of the one,
    and the protocol of the other.
    """

    disconnecting = False
    _protocol: IProtocol | None = None
    _producer: Any = None
    _pulls = False  # whether the producer waits to be asked for each piece
    _is_paused = False
    _why: Failure | None = None  # why the connection ends, once that has begun

    def __init__(self, attempt: ConnectionAttempt) -> None:
        self._attempt = attempt

    # --- asyncio calls

    def connection_made(self, transport: Any) -> None:
        """Give the connection to the protocol; abort it if there is none for it."""
        self._transport = transport
        self.write = transport.write  # type: ignore[method-assign] # it saves a call
        attempt, peer = self._attempt, transport.get_extra_info("peername")
        del self._attempt  # the attempt refers to its task, and the task to this: a circle
        # The other side may have reset the connection already, and then nobody knows who it was.
        protocol = attempt.protocol_at(peer) if peer else None
        if protocol is None:
            transport.abort()
            if not peer:
                attempt._fail(error.ConnectionLost())
            return
        self._protocol = protocol
        self._receive = protocol.dataReceived
        as_transport: Any = self
        protocol.makeConnection(as_transport)

    def data_received(self, data: bytes) -> None:
        self._receive(data)

    def eof_received(self) -> None:
        self._why = self._why or _DONE
        self._transport.abort()  # nobody reads any more what is not sent yet

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the protocol, and undo the circle of references."""
        protocol, self._protocol = self._protocol, None
        self._producer = None
        if protocol is not None:
            # The protocol refers to this, and this to it by a method: a circle, and there is one
            # for each notification.
            del self._receive, self.write
            lost = _DONE if exc is None else Failure(error.ConnectionLost(str(exc)))
            protocol.connectionLost(self._why or lost)

    def pause_writing(self) -> None:
        self._is_paused = True
        if self._producer is not None and not self._pulls:
            self._producer.pauseProducing()

    def resume_writing(self) -> None:
        self._is_paused = False
        self._pull() if self._pulls else self._producer and self._producer.resumeProducing()

    # --- Twisted calls

    def write(self, data: bytes) -> None:
        """Drop what comes after the end; until then this is uvloop's method."""

    def writeSequence(self, data: Iterable[bytes]) -> None:
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        """Close the connection, after a producer, if there is one, has written the rest."""
        self.disconnecting = True
        if self._producer is None:
            self._transport.close()

    def abortConnection(self) -> None:
        self._why = self._why or _ABORTED
        self._producer = None
        # As Twisted does: the other side shall see that the connection was not closed in order.
        with suppress(OSError):
            self.getHandle().setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._transport.abort()

    def getHandle(self) -> Any:
        return self._transport.get_extra_info("socket")

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Let a producer write: it is paused when the buffer fills, or asked for each piece."""
        self._producer, self._pulls = producer, not streaming
        # From now on every write that is not sent at once pauses the producer.
        self._transport.set_write_buffer_limits(0)
        if self._pulls:
            self._pull()

    def unregisterProducer(self) -> None:
        """Forget the producer, which has written all; close now if that was wanted."""
        self._producer = None
        self._pulls = False
        if self.disconnecting:
            self._transport.close()

    def _pull(self) -> None:
        """Ask for the next piece whenever the one before is sent."""
        if self._producer is not None and not self._is_paused:
            self._producer.resumeProducing()
            if not self._is_paused and self._producer is not None:
                asyncio.get_running_loop().call_soon(self._pull)
