"""Servers that send given bytes as their answers, and a test case with such servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import OutboundReply, OutboundRequest
from tests.outbound.servers import Client, listen, make_callback_client

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


class CallbackClientTestCase(TestCase):
    def serve(self, *answers: bytes | Callable[[Scripted], None], tls: Any = None) -> None:
        self.server = ScriptedFactory(*answers)
        self.port = listen(self, self.server, tls)
        self.url = f"http://127.0.0.1:{self.port}/"

    def begin(self, client: Client, url: str = "", **request: Any) -> Deferred[OutboundReply]:
        call: Any = client.outbound.request(
            OutboundRequest(request.pop("method", "GET"), url or self.url, **request)
        )
        return Deferred.fromCoroutine(call)

    async def answer(self, *answers: bytes | Callable[[Scripted], None], **request: Any) -> Any:
        """The client's reply if a server answers with these bytes."""
        self.serve(*answers)
        return await self.begin(make_callback_client(), **request)

    async def refusal(self, asking: Deferred[Any]) -> str:
        return str(await self.assertFailure(asking, OutboundError))
