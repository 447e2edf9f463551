"""Closes the connections of clients when the broker stops, without losing a request."""

from __future__ import annotations

from typing import Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from rsscloud_broker.front_doors.connections import LimitedConnections

#: Seconds between two looks whether all requests are answered.
_LOOK: Final = 0.05


class Answering(Service):
    """Has the broker answer the requests that it has accepted before it stops.

    When it stops, it closes idle connections, so that clients and proxies go to another broker with
    their next request.  It waits until each accepted request has got at least the beginning of its
    answer: some answers, such as streams of events, never end.

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

    def stopService(self) -> Deferred[None]:
        super().stopService()
        self._connections.limits.closing = True
        return Deferred.fromCoroutine(self._wait())

    async def _wait(self) -> None:
        until = self._clock.seconds() + self._within
        while self._unanswered() and self._clock.seconds() < until:
            await deferLater(self._clock, _LOOK)

    def _unanswered(self) -> bool:
        """Close idle connections, and see whether some request waits for its answer."""
        waits = False
        for connection in tuple(self._connections.protocols):
            requests = connection.wrappedProtocol.requests
            if not requests:
                connection.loseConnection()
            waits = waits or any(not one.startedWriting for one in requests)
        return waits
