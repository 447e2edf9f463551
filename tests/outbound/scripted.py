"""Servers that send given bytes as their answers, and test cases for both outbound clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import OutboundReply, OutboundRequest
from tests.outbound.servers import Client, Pages, listen, make_callback_client, make_client, serve

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class Scripted(Protocol):
    """Answers each request on a connection with the next of its answers."""

    factory: ScriptedFactory
    transport: Any

    def connectionMade(self) -> None:
        self.requests = 0
        self.lost: Deferred[None] = Deferred()
        self.factory.connections.append(self)

    def dataReceived(self, data: bytes) -> None:
        self.requests += 1
        self.factory.requests.append(data)
        self.factory.answer(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost.callback(None)


class ScriptedFactory(Factory[Scripted]):
    protocol = Scripted
    noisy = False

    def __init__(self, *answers: bytes | Callable[[Scripted], None]) -> None:
        self.answers = list(answers)
        self.connections: list[Scripted] = []
        self.requests: list[bytes] = []

    def answer(self, connection: Scripted) -> None:
        answer = self.answers.pop(0) if self.answers else OK
        if isinstance(answer, bytes):
            connection.transport.write(answer)
        else:
            answer(connection)


class RawFactory(ScriptedFactory):
    """Sends given bytes when data arrives; the test says what it does then.

    :ivar spoken_to: fires when the first data has arrived.
    """

    def __init__(self, says: bytes = b"", closes: bool = True) -> None:
        super().__init__()
        self.says = says
        self.closes = closes
        self.spoken_to: Deferred[None] = Deferred()

    def answer(self, connection: Scripted) -> None:
        if self.says:
            connection.transport.write(self.says)
            if self.closes:
                connection.transport.loseConnection()
        if not self.spoken_to.called:
            self.spoken_to.callback(None)


class OutboundTestCase(TestCase):
    def begin(self, client: Client, url: str, **request: Any) -> Deferred[OutboundReply]:
        """Begin a request, without waiting for the answer."""
        method = request.pop("method", "GET")
        call: Any = client.outbound.request(OutboundRequest(method, url, **request))
        return Deferred.fromCoroutine(call)

    async def refusal(self, asking: Deferred[OutboundReply]) -> str:
        error = await self.assertFailure(asking, OutboundError)
        return str(error)


class ClientTestCase(OutboundTestCase):
    """Tests the client for topics; a subclass may use the other client."""

    make_client: Callable[..., Client] = staticmethod(make_client)

    def setUp(self) -> None:
        self.pages = Pages({})
        self.port = serve(self, self.pages)
        self.base = f"http://127.0.0.1:{self.port}"

    async def ask(self, path: str = "/", client: Client | None = None, **request: Any) -> Any:
        return await self.begin(client or self.make_client(), self.base + path, **request)

    async def refused(self, path: str = "/", client: Client | None = None, **request: Any) -> str:
        return await self.refusal(
            self.begin(client or self.make_client(), self.base + path, **request)
        )

    def begin_raw(
        self, says: bytes, closes: bool = True, **request: Any
    ) -> Deferred[OutboundReply]:
        """Begin a request to a server that sends given bytes."""
        self.raw = RawFactory(says, closes)
        url = f"http://127.0.0.1:{listen(self, self.raw)}/"
        return self.begin(self.make_client(), url, **request)


class CallbackClientTestCase(OutboundTestCase):
    def serve(self, *answers: bytes | Callable[[Scripted], None], tls: Any = None) -> None:
        self.server = ScriptedFactory(*answers)
        self.port = listen(self, self.server, tls)
        self.url = f"http://127.0.0.1:{self.port}/"

    def begin(self, client: Client, url: str = "", **request: Any) -> Deferred[OutboundReply]:
        return super().begin(client, url or self.url, **request)

    async def answer(self, *answers: bytes | Callable[[Scripted], None], **request: Any) -> Any:
        """The client's reply if a server answers with these bytes."""
        self.serve(*answers)
        return await self.begin(make_callback_client(), **request)
