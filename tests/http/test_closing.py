"""Before the broker stops, it answers the requests that it has accepted."""

from __future__ import annotations

from typing import Any, cast

from attrs import define, field
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET
from twisted.web.server import Request as SiteRequest

from rsscloud_broker.config import Http
from rsscloud_broker.http.connections import Answering, HTTPLimits
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import Route
from rsscloud_broker.testing.clock import Clock
from tests.front_doors.exchange import call, request_bytes
from tests.front_doors.fixture import PUBLIC_URL
from tests.http.test_limits_sockets import Client as RealClient
from tests.http.test_limits_sockets import SocketsTestCase
from tests.http.test_site import Door


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

    def test_idle_connections_are_closed_after_a_moment(self) -> None:
        client = self.connect()
        stopped = self.answering.stopService()
        self.clock.pump([0.1] * 9)
        self.assertNoResult(stopped)
        self.assertIn(client, self.protocols)
        self.clock.pump([0.1] * 2)
        self.successResultOf(stopped)
        self.assertEqual(self.protocols, set())

    def test_idle_connections_are_no_longer_open_than_there_is_time(self) -> None:
        answering = Answering(cast(Any, self), within=0.0)
        answering.startService()
        self.connect()
        self.successResultOf(answering.stopService())
        self.assertEqual(self.protocols, set())

    def test_connections_that_become_idle_while_others_are_answered(self) -> None:
        slow, request = self.connect(Request()), Request()
        quick = self.connect(request)
        stopped = self.answering.stopService()
        self.clock.pump([0.1] * 15)
        quick.requests.remove(request)
        self.clock.advance(0.1)
        self.assertEqual(self.protocols, {slow})
        self.assertNoResult(stopped)

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


class Slow(Resource):
    """A page whose answer waits until the test gives it."""

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: Deferred[SiteRequest] = Deferred()

    def render_GET(self, request: SiteRequest) -> int:
        self.asked.callback(request)
        return NOT_DONE_YET


class ClosingTests(SocketsTestCase):
    """Over real sockets, on which a request may be under way when the broker begins to stop."""

    async def open(self, root: Root | None = None) -> RealClient:
        """A client whose connection is kept open after its first request."""
        port = await self.listen(root=root)
        self.answering = Answering(self.house.factory, within=5.0)
        self.answering.startService()
        client = await self.connect(port, request_bytes("GET", "/nothing"))
        await client.answered
        self.assertNotIn(b"connection: close", client.received.lower())
        del client.received[:]
        return client

    async def until(self, stopped: Deferred[None]) -> None:
        while not stopped.called:
            await deferLater(IReactorTime(reactor), 0)
            self.house.clock.advance(0.01)
        await stopped

    async def test_request_that_the_broker_has_not_read_yet_is_answered(self) -> None:
        client = await self.open()
        body = call("weblogUpdates.ping", "A site", "http://example.org/").encode()
        client.write(request_bytes("POST", "/RPC2", body))
        stopped = self.answering.stopService()
        await client.ended
        head, _, text = bytes(client.received).partition(b"\r\n\r\n")
        self.assertIn(b"HTTP/1.1 200", head)
        self.assertIn(b"connection: close", head.lower())
        self.assertIn(b"Thanks for the ping", text)
        await self.until(stopped)

    async def test_only_one_request_is_answered_on_each_connection(self) -> None:
        client = await self.open()
        client.write(2 * request_bytes("GET", "/nothing"))
        stopped = self.answering.stopService()
        await client.ended
        self.assertEqual(client.received.count(b"HTTP/1.1 404"), 1)
        await self.until(stopped)

    async def test_answer_to_an_earlier_request_is_the_last_one_too(self) -> None:
        page = Slow()
        root = Root([Door(pages=[Route("/slow", "GET", page)])], PUBLIC_URL)
        client = await self.open(root)
        client.write(request_bytes("GET", "/slow"))
        request = await page.asked
        stopped = self.answering.stopService()
        request.write(b"late")
        request.finish()
        await client.ended
        self.assertIn(b"connection: close", client.received.lower())
        await self.until(stopped)
