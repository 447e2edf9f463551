"""Keeps idle HTTP connections for a moment, for further requests to the same host."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime

from rsscloud_broker.outbound.expiry import Expiry
from rsscloud_broker.outbound.http1 import Http1, Origin


class IdleConnections:
    """Idle connections, by host.  ``HTTPExchanger`` gives and takes them.

    :param limit: how many connections are kept.  When there are more, a fourth of them are
        closed together, the longest idle first.
    :param seconds: for how long a connection is kept.
    """

    def __init__(self, clock: IReactorTime, limit: int, seconds: float) -> None:
        self._limit = limit
        self._idle: Expiry[Http1] = Expiry(clock, seconds, self._close)
        self._by_origin: dict[Origin, list[Http1]] = {}

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, origin: Origin) -> Http1 | None:
        """Remove and return the idle connection to a host that was used last; None if none."""
        connections = self._by_origin.get(origin)
        if not connections:
            return None
        connection = connections.pop()
        if not connections:
            del self._by_origin[origin]
        connection.when_lost = None
        self._idle.discard(connection)
        return connection

    def give(self, connection: Http1) -> None:
        """Keep a connection until it is taken or its time is over."""
        connection.when_lost = self._forget
        self._idle.add(connection)
        self._by_origin.setdefault(connection.origin, []).append(connection)
        if len(self._idle) > self._limit:
            for _ in range(1 + self._limit // 4):
                self._close(self._idle.oldest())

    def close(self) -> None:
        """Close all idle connections."""
        for connection in self._idle.clear():
            self._close(connection)

    def _forget(self, connection: Http1) -> None:
        """Take a connection off the idle ones; it is lost, or about to be closed."""
        connection.when_lost = None
        self._idle.discard(connection)
        connections = self._by_origin[connection.origin]
        connections.remove(connection)
        if not connections:
            del self._by_origin[connection.origin]

    def _close(self, connection: Http1) -> None:
        self._forget(connection)
        connection.close()
