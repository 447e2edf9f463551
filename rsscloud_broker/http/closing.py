"""Closes the connections of clients when the broker stops, without losing a request."""

from __future__ import annotations

from twisted.application.service import Service
from twisted.internet.task import deferLater

from rsscloud_broker.http.connections import Connection, LimitedConnections
from rsscloud_broker.util.deferreds import returns_deferred


class Answering(Service):
    """Has the broker answer the requests that it has accepted before it stops.

    When it stops, each answer says that it is the last one on its connection, so that clients and
    proxies go to another broker with their next request.  An idle connection stays open for a
    second: its client may have sent a request that the broker has not read yet, and the
    client's system would report a reset connection instead of an answer.  nginx has the same, as
    ``keepalive_min_timeout``.

    The service waits until each accepted request has got at least the beginning of its answer: some
    answers, such as streams of events, never end.

    :param within: for how many seconds it waits at most.
    """

    name = "answers to requests"

    def __init__(self, connections: LimitedConnections, within: float) -> None:
        self._connections = connections
        self._clock = connections.limits.clock
        self._within = within

    def startService(self) -> None:
        super().startService()
        self._connections.limits.closing = False

    @returns_deferred
    async def stopService(self) -> None:
        """Wait for the end of all requests, or of the time; close idle connections in a second."""
        super().stopService()
        self._connections.limits.closing = True
        now = self._clock.seconds()
        until, idle_until = now + self._within, now + min(1.0, self._within)
        while (idle := self._idle_connections()) or self._has_unanswered():
            now = self._clock.seconds()
            if now >= idle_until:
                for connection in idle:
                    connection.loseConnection()
                if now >= until or not self._has_unanswered():
                    return
            await deferLater(self._clock, 0.05)  # seconds until the next look

    def _idle_connections(self) -> list[Connection]:
        """The connections on which no request is being read or answered."""
        return [one for one in self._connections.protocols if not one.wrappedProtocol.requests]

    def _has_unanswered(self) -> bool:
        """Whether some request waits for its answer."""
        return any(
            not request.startedWriting
            for connection in self._connections.protocols
            for request in connection.wrappedProtocol.requests
        )
