"""The limits on HTTP requests over real sockets, whose buffers play a part, too."""

from __future__ import annotations

from http.client import HTTPResponse
from socket import socket
from typing import cast

from twisted.internet import reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP4ServerEndpoint, connectProtocol
from twisted.internet.interfaces import IPushProducer, IReactorTCP, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.internet.tcp import Port
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from twisted.web.resource import Resource
from twisted.web.server import Request

from rsscloud_broker.config import Http
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import Route
from tests.front_doors.exchange import Answer, Stream, request_bytes
from tests.front_doors.fixture import PUBLIC_URL, House
from tests.http.test_site import Door

MIB = 1024 * 1024
HEAD = b"POST /RPC2 HTTP/1.1\r\nHost: b\r\n"


class Client(Protocol):
    """Sends bytes as fast as it can, and waits for an answer or the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.received = bytearray()
        self.answered: Deferred[Answer] = Deferred()
        self.ended: Deferred[None] = Deferred()

    def connectionMade(self) -> None:
        self.write(self._data)

    def write(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        end_of_head = self.received.find(b"\r\n\r\n") + 4
        if end_of_head < 4 or self.answered.called:
            return
        response = HTTPResponse(cast(socket, Stream(self.received[:end_of_head])))
        response.begin()
        if len(self.received) - end_of_head >= int(response.headers["content-length"]):
            response = HTTPResponse(cast(socket, Stream(self.received)))
            response.begin()
            self.answered.callback(Answer(response.status, response.headers, response.read()))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.ended.callback(None)
        if not self.answered.called:
            self.answered.errback(reason)


class Large(Resource):
    """A page larger than the buffers of the sockets."""

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: Deferred[None] = Deferred()

    def render_GET(self, request: Request) -> bytes:
        self.asked.callback(None)
        return b"x" * (32 * MIB)


class SocketsTestCase(TestCase):
    """A test case with a site that listens, and clients."""

    async def listen(self, http: Http | None = None, root: Root | None = None) -> int:
        """The port at which a site listens."""
        self.house = House(self, http=http or Http(body_limit=MIB), root=root)
        endpoint = TCP4ServerEndpoint(IReactorTCP(reactor), 0, interface="127.0.0.1")
        port = cast(Port, await endpoint.listen(self.house.factory))
        self.addCleanup(self._close, port)
        return int(port.getHost().port)

    async def _close(self, port: Port) -> None:
        """Stop listening, and wait until the site has noticed that its clients have hung up."""
        await maybeDeferred(port.stopListening)
        while self.house.factory.protocols:
            await deferLater(IReactorTime(reactor), 0)

    async def connect(self, port: int, data: bytes) -> Client:
        client = Client(data)
        endpoint = TCP4ClientEndpoint(IReactorTCP(reactor), "127.0.0.1", port)
        await connectProtocol(endpoint, client)
        self.addCleanup(self._hang_up, client)
        return client

    async def _hang_up(self, client: Client) -> None:
        assert client.transport is not None
        client.transport.loseConnection()
        await client.ended


class SocketsTests(SocketsTestCase):
    async def test_a_body_over_the_limit(self) -> None:
        """The client can read the answer although it has not sent the whole body."""
        port = await self.listen()
        body = b"x" * (20 * MIB)
        chunks = b"".join(b"100000\r\n%s\r\n" % body[:MIB] for _ in range(20)) + b"0\r\n\r\n"
        for data in (
            HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body,
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks,
        ):
            client = await self.connect(port, data)
            answer = await client.answered
            self.assertEqual(answer.status, 413)
            self.assertEqual(answer.text, f"The body must not be larger than {MIB} bytes.\n")

    async def test_an_answer_that_nobody_reads(self) -> None:
        for connection in ("close", "keep-alive"):
            page = Large()
            root = Root([Door(pages=[Route("/large", "GET", page)])], PUBLIC_URL)
            port = await self.listen(root=root)
            headers = {"Connection": connection}
            client = await self.connect(port, request_bytes("GET", "/large", headers=headers))
            client.answered.addErrback(lambda _: None)
            cast(IPushProducer, client.transport).pauseProducing()
            await page.asked
            await deferLater(IReactorTime(reactor), 0)
            self.assertEqual(len(self.house.factory.protocols), 1)
            self.house.clock.advance(60)
            while self.house.factory.protocols:
                await deferLater(IReactorTime(reactor), 0)

    async def test_what_is_not_taken_at_once_stays_in_order(self) -> None:
        root = Root([Door(pages=[Route("/large", "GET", Large())])], PUBLIC_URL)
        port = await self.listen(root=root)
        last = request_bytes("GET", "/nothing", headers={"Connection": "close"})
        client = await self.connect(port, request_bytes("GET", "/large") + last)
        await client.answered
        await client.ended
        _, _, rest = client.received.partition(b"\r\n\r\n")
        large, head, text = rest[: 32 * MIB], rest[32 * MIB :][:12], rest[-40:]
        self.assertEqual(large, b"x" * (32 * MIB))
        self.assertEqual(head, b"HTTP/1.1 404")
        self.assertTrue(text.endswith(b"There is nothing at this address.\n"))
