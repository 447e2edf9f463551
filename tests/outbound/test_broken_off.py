"""Tests answers that break off, and requests that are sent in pieces."""

from __future__ import annotations

import socket
from collections.abc import Callable
from socket import SHUT_WR
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from tests.outbound.authority import authority
from tests.outbound.scripted import OK, CallbackClientTestCase, Scripted
from tests.outbound.servers import Client, Names, make_callback_client, make_client

#: An answer whose body ends with the connection.
HALF = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nthe first half"


def says_goodbye(connection: Scripted) -> None:
    connection.transport.write(HALF)
    connection.transport.loseConnection()


def _then(connection: Scripted, end: Callable[[Any], object]) -> None:
    """Send half an answer, and then end the TCP connection in the given way."""
    connection.transport.write(HALF)
    tcp: Any = connection.transport
    while hasattr(tcp, "transport"):
        tcp = tcp.transport

    def finish() -> None:
        tcp.doWrite()  # after the written data was sent
        end(tcp)

    IReactorTime(reactor).callLater(0, finish)  # by then TLS has passed the data on


def closes_without_goodbye(connection: Scripted) -> None:
    _then(connection, lambda tcp: tcp.socket.shutdown(SHUT_WR))


def breaks_off(connection: Scripted) -> None:
    _then(connection, lambda tcp: tcp.abortConnection())


class EitherSchemeTestCase(CallbackClientTestCase):
    def serve_by(self, scheme: str, answer: Callable[[Scripted], None]) -> str:
        """Start a server with this scheme; return its URL."""
        self.serve(answer, tls=authority().server("a.example") if scheme == "https" else None)
        return f"{scheme}://a.example:{self.port}/"

    def client(self, make: Callable[..., Client] = make_callback_client, **options: Any) -> Client:
        """A client that may call such a URL."""
        names = Names({"a.example": ["127.0.0.1"]})
        return make(names, trusted=[authority().trusted], **options)


class BrokenOffTests(EitherSchemeTestCase):
    async def told_of(
        self, make: Callable[..., Client], scheme: str, answer: Callable[[Scripted], None]
    ) -> str:
        """The body that the caller got, or the reason why there is none."""
        asking = self.begin(self.client(make), self.serve_by(scheme, answer))
        asking.addCallbacks(lambda reply: reply.body.decode(), lambda failure: str(failure.value))
        told: Any = await asking
        return str(told)

    async def test_body_that_ends_with_the_connection(self) -> None:
        for make in (make_client, make_callback_client):
            for scheme in ("http", "https"):
                self.assertEqual(await self.told_of(make, scheme, says_goodbye), "the first half")
        told = await self.told_of(make_client, "http", closes_without_goodbye)
        self.assertEqual(told, "the first half")  # a regular end in HTTP without TLS

    async def test_topic_that_breaks_off(self) -> None:
        for scheme, answer in (
            ("https", closes_without_goodbye),
            ("https", breaks_off),
            ("http", breaks_off),
        ):
            told = await self.told_of(make_client, scheme, answer)
            self.assertNotEqual(told, "the first half", (scheme, answer.__name__))

    async def test_host_with_several_addresses_may_take_its_time(self) -> None:
        """The time of each address is for connecting; the answer may take the rest."""
        asked: Deferred[Scripted] = Deferred()
        self.serve(asked.callback)
        client = make_callback_client(Names({"a.example": ["127.0.0.1", "127.0.0.2"]}))
        asking = self.begin(client, f"http://a.example:{self.port}/")
        connection: Scripted = await asked
        client.clock.advance(10)
        connection.transport.write(OK)
        self.assertEqual((await asking).status, 200)

    async def test_notification_was_taken_when_its_answer_breaks_off(self) -> None:
        told = await self.told_of(make_callback_client, "https", closes_without_goodbye)
        self.assertEqual(told, "the first half")


class PiecesTests(EitherSchemeTestCase):
    async def test_what_the_system_does_not_take_at_once_follows(self) -> None:
        class Narrow(socket.socket):
            def send(self, data: Any, flags: int = 0) -> int:
                return super().send(data[:700], flags)

        self.patch(socket, "socket", Narrow)
        for scheme in ("http", "https"):
            for closes in (False, True):
                received: list[bytes] = []

                def answer(connection: Scripted, received: list[bytes] = received) -> None:
                    received.append(self.server.requests[-1])
                    if b"".join(received).endswith(b"x" * 5000):
                        connection.transport.write(OK)
                    else:
                        self.server.answers.insert(0, answer)

                url = self.serve_by(scheme, answer)
                client = self.client(idle_limit=0 if closes else 2)
                reply = await self.begin(client, url, method="POST", body=b"x" * 5000)
                self.assertEqual(reply.status, 200, (scheme, closes))
                if closes:
                    await self.server.connections[0].lost


class Parting(Scripted):
    """Notes how its connection ended."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.end = reason.type
        super().connectionLost(reason)


class PartingTests(EitherSchemeTestCase):
    async def end(self, scheme: str, size: int, idle_limit: int = 0) -> Any:
        """How the server sees a connection end, at once or after it was idle for a while."""
        received = 0

        def answer(connection: Scripted) -> None:
            nonlocal received
            received += len(self.server.requests[-1])
            if received > size:
                connection.transport.write(OK)

        url = self.serve_by(scheme, lambda connection: None)
        self.server.protocol = Parting
        self.server.answer = answer  # type: ignore[method-assign] # in this test
        client = self.client(idle_limit=idle_limit)
        await self.begin(client, url, method="POST", body=b"x" * size)
        await deferLater(IReactorTime(reactor), 0)  # until then the answer was being read
        client.clock.advance(5)
        (connection,) = self.server.connections
        await connection.lost
        assert isinstance(connection, Parting)
        return connection.end

    async def test_says_goodbye(self) -> None:
        for scheme in ("http", "https"):
            for idle_limit in (0, 1):
                self.assertIs(await self.end(scheme, 10, idle_limit), ConnectionDone, scheme)

    async def test_breaks_off_after_large_requests(self) -> None:
        """Data that the server does not read is not kept in memory."""
        self.assertIs(await self.end("http", 50_000), ConnectionLost)
