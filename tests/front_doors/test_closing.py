"""Before the broker stops, it answers the requests that it has accepted."""

from __future__ import annotations

from typing import Any, cast

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config import Http
from rsscloud_broker.front_doors.closing import Answering
from rsscloud_broker.front_doors.connections import HTTPLimits
from rsscloud_broker.testing.clock import Clock


@define(eq=False)
class Request:
    """A request that may have the beginning of its answer."""

    startedWriting: bool = False


@define(eq=False)
class Client:
    """A connection."""

    connections: set[Any]
    requests: list[Request] = field(factory=list)

    @property
    def wrappedProtocol(self) -> Client:
        return self

    def loseConnection(self) -> None:
        self.connections.discard(self)


class AnsweringTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.limits = HTTPLimits(Http(), cast(IReactorTime, self.clock))
        self.protocols: set[Any] = set()
        self.answering = Answering(cast(Any, self), within=5.0)
        self.answering.startService()

    def connect(self, *requests: Request) -> Client:
        client = Client(self.protocols, [*requests])
        self.protocols.add(client)
        return client

    def test_idle_connections_are_closed_at_once(self) -> None:
        self.connect()
        self.successResultOf(self.answering.stopService())
        self.assertEqual(self.protocols, set())

    def test_requests_are_answered_first(self) -> None:
        request = Request()
        client = self.connect(request)
        stopped = self.answering.stopService()
        self.assertTrue(self.limits.closing)
        self.clock.pump([0.1] * 5)
        self.assertNoResult(stopped)
        self.assertIn(client, self.protocols)
        request.startedWriting = True
        self.clock.advance(0.1)
        self.successResultOf(stopped)

    def test_streams_are_not_waited_for(self) -> None:
        self.connect(Request(startedWriting=True))
        self.successResultOf(self.answering.stopService())

    def test_patience_ends(self) -> None:
        self.connect(Request())
        stopped = self.answering.stopService()
        self.clock.pump([0.1] * 52)
        self.successResultOf(stopped)

    def test_started_again(self) -> None:
        self.successResultOf(self.answering.stopService())
        self.answering.startService()
        self.assertFalse(self.limits.closing)
