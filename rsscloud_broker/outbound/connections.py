"""Keeping connections for a moment."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime

from rsscloud_broker.outbound.expiry import Expiry
from rsscloud_broker.outbound.http1 import Http1, Origin


class IdleConnections:
    """Connections that wait a moment for another request to the same host.

    :param limit: how many wait; beyond that those that have waited for longest are
        closed, a fourth of them together: to close one wakes the other side.
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
        connection = waiting.pop()
        if not waiting:
            del self._by_origin[origin]
        connection.when_lost = None
        self._waiting.discard(connection)
        return connection

    def give(self, connection: Http1) -> None:
        """Let a connection wait."""
        connection.when_lost = self._forget
        self._waiting.add(connection)
        self._by_origin.setdefault(connection.origin, []).append(connection)
        if len(self._waiting) > self._limit:
            for _ in range(1 + self._limit // 4):
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
