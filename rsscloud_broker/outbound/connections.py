"""Making connections, and keeping them for a moment."""

from __future__ import annotations

from errno import EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM
from typing import Any

from twisted.internet.interfaces import IAddress, IConnector, IReactorTime
from twisted.internet.protocol import ClientFactory
from twisted.python.failure import Failure

from rsscloud_broker.model import OutboundError, Unavailable
from rsscloud_broker.outbound.expiry import Expiry
from rsscloud_broker.outbound.guard import AddressGuard
from rsscloud_broker.outbound.http1 import Http1, NotConnected, Origin

#: Errors of the system that say nothing of the other side: there are no file
#: descriptors, buffers or ports left here.
OUR_OWN_WANT = frozenset({EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM})


class Dialling(ClientFactory):
    """Makes one connection to a judged address."""

    noisy = False

    def __init__(self, connection: Http1, guard: AddressGuard, address: str) -> None:
        self._connection = connection
        self._guard = guard
        self._address = address

    def buildProtocol(self, addr: IAddress | None) -> Http1:
        peer: Any = addr
        if peer.host != self._address:  # spelt differently; or not where we meant to go
            try:
                self._guard.judge(peer.host, peer.port)
            except OutboundError as error:
                self._connection.fail(error)
        return self._connection

    def clientConnectionFailed(self, connector: IConnector, reason: Failure) -> None:
        problem = " ".join(str(reason.value).split())
        if getattr(reason.value, "osError", None) in OUR_OWN_WANT:
            self._connection.fail(Unavailable(f"no connection can be made just now: {problem}"))
        else:
            self._connection.fail(NotConnected(problem))


class IdleConnections:
    """Connections that wait a moment for another request to the same host.

    :param limit: how many wait; beyond that the one that has waited for longest is
        closed.
    :param seconds: for how long one waits.
    """

    def __init__(self, clock: IReactorTime, limit: int, seconds: float) -> None:
        self._limit = limit
        self._waiting: Expiry[Http1] = Expiry(clock, seconds, self._close)
        self._by_origin: dict[Origin, list[Http1]] = {}

    def take(self, origin: Origin) -> Http1 | None:
        """A connection to a host, if one waits: the one that was used last."""
        waiting = self._by_origin.get(origin)
        if not waiting:
            return None
        connection = waiting[-1]
        self._forget(connection)
        return connection

    def give(self, connection: Http1) -> None:
        """Let a connection wait."""
        connection.when_lost = self._forget
        self._waiting.add(connection)
        self._by_origin.setdefault(connection.origin, []).append(connection)
        if len(self._waiting) > self._limit:
            self._close(self._waiting.oldest())

    def close(self) -> None:
        """Close all of them."""
        for connection in self._waiting.clear():
            self._close(connection)

    def _forget(self, connection: Http1) -> None:
        connection.when_lost = None
        self._waiting.discard(connection)
        waiting = self._by_origin[connection.origin]
        waiting.remove(connection)
        if not waiting:
            del self._by_origin[connection.origin]

    def _close(self, connection: Http1) -> None:
        self._forget(connection)
        connection.close()
