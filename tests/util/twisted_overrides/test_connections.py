"""Outgoing TCP connections, by the reactor that runs: see ``test_uvloop_reactor``."""

from __future__ import annotations

import gc
import socket
from typing import Any
from unittest import SkipTest
from weakref import ref

from twisted.internet import error, reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IConnector
from twisted.internet.protocol import ClientFactory, Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from rsscloud_broker.testing.clock import Clock
from rsscloud_broker.util.twisted_overrides.uvloop_reactor import UvloopReactor
from tests.outbound.scripted import RawFactory
from tests.outbound.servers import Network, black_hole, listen


class Client(Protocol):
    """Tells what happens to a connection."""

    transport: Any

    def __init__(self) -> None:
        self.made: Deferred[None] = Deferred()
        self.lost: Deferred[Any] = Deferred()
        self.received = b""

    def connectionMade(self) -> None:
        self.made.callback(None)

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        self.at_data()

    def at_data(self) -> None:
        """Do what a test wants when data comes."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost.callback(reason.value)


class Factory(ClientFactory):
    """Tells what becomes of an attempt to connect.

    :ivar reached: where the connection leads to.
    """

    noisy = False

    def __init__(self, wanted: bool = True) -> None:
        self.client = Client() if wanted else None
        self.reached: Any = None
        self.failed: Deferred[Any] = Deferred()

    def buildProtocol(self, addr: Any) -> Any:
        self.reached = addr
        return self.client

    def clientConnectionFailed(self, connector: IConnector, reason: Failure) -> None:
        self.failed.callback(reason.value)


class ConnectTCPTests(TestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.network: Any = Network(reactor, self.clock)

    def connect(self, port: int, host: str = "127.0.0.1", **what: Any) -> Factory:
        self.factory = Factory(**what)
        self.attempt = self.network.connectTCP(host, port, self.factory, 5)
        return self.factory

    async def connected(self, port: int) -> Client:
        client = self.connect(port).client
        assert client is not None
        await client.made
        return client

    async def test_says_and_hears(self) -> None:
        server = RawFactory(b"hello", closes=True)
        client = await self.connected(listen(self, server))
        client.transport.write(b"good ")
        client.transport.write(b"day")
        self.assertIsInstance(await client.lost, error.ConnectionDone)
        self.assertEqual(client.received, b"hello")

    async def test_address_that_was_reached(self) -> None:
        server = RawFactory()
        for host, interface in (("127.0.0.1", "127.0.0.1"), ("::1", "::1")):
            port = listen(self, server, interface=interface)
            factory = self.connect(port, host)
            assert factory.client is not None
            await factory.client.made
            self.assertEqual((factory.reached.host, factory.reached.port), (host, port))
            factory.client.transport.abortConnection()
            await factory.client.lost

    async def test_much_is_sent_and_then_closed(self) -> None:
        """What does not fit into the operating system's buffers goes out before the end."""
        server = RawFactory()
        client = await self.connected(listen(self, server))
        client.transport.write(b"x" * 20_000_000)
        client.transport.write(b"end")
        client.transport.loseConnection()
        await client.lost
        await server.connections[0].lost
        received = b"".join(server.requests)
        self.assertEqual((len(received), received[-3:]), (20_000_003, b"end"))

    async def test_sequences_keep_their_place(self) -> None:
        """They are neither overtaken by what is written after them, nor lost at the end."""
        for large in (b"", b"x" * 20_000_000):
            server = RawFactory()
            client = await self.connected(listen(self, server))
            client.transport.write(large)
            client.transport.writeSequence([b"one ", b"two "])
            client.transport.write(b"three ")
            client.transport.writeSequence([b"end"])
            client.transport.loseConnection()
            await client.lost
            await server.connections[0].lost
            received = b"".join(server.requests)
            self.assertEqual(received[len(large) :], b"one two three end")

    async def test_closed_while_it_reads(self) -> None:
        for method, expected in (
            ("loseConnection", error.ConnectionDone),
            ("abortConnection", error.ConnectionAborted),
        ):
            server = RawFactory(b"hello", closes=False)
            client = await self.connected(listen(self, server))
            client.at_data = getattr(client.transport, method)  # type: ignore[method-assign]
            client.transport.write(b"good day")
            self.assertIsInstance(await client.lost, expected)
            await server.connections[0].lost

    async def test_nothing_is_sent_after_the_end(self) -> None:
        client = await self.connected(listen(self, RawFactory()))
        transport = client.transport
        transport.loseConnection()
        transport.write(b"more")
        await client.lost
        transport.write(b"more")
        transport.loseConnection()

    async def test_nobody_listens(self) -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            reason = await self.connect(nobody.getsockname()[1]).failed
        self.assertIsInstance(reason, error.ConnectionRefusedError)

    async def test_nobody_answers(self) -> None:
        port = listen(self, RawFactory())
        black_hole(self, "127.0.0.2", port)
        factory = self.connect(port, "127.0.0.2")
        probe = await self.connected(port)  # so the attempt before it has begun
        self.clock.advance(4.9)
        self.assertNoResult(factory.failed)
        self.clock.advance(0.2)
        self.assertIsInstance(await factory.failed, error.TimeoutError)
        probe.transport.abortConnection()
        await probe.lost
        self.assertEqual(self.clock.getDelayedCalls(), [])

    async def test_given_up(self) -> None:
        """Before it has begun, and while it is under way."""
        port = listen(self, RawFactory())
        black_hole(self, "127.0.0.2", port)
        for begun in (False, True):
            factory = self.connect(port, "127.0.0.2")
            attempt = self.attempt
            if begun:
                probe = await self.connected(port)
                probe.transport.abortConnection()
                await probe.lost
            attempt.stopConnecting()
            self.assertIsInstance(await factory.failed, error.UserError)
            self.assertEqual(self.clock.getDelayedCalls(), [])

    async def test_protocol_that_is_not_wanted(self) -> None:
        server = RawFactory()
        factory = self.connect(listen(self, server), wanted=False)
        while not server.connections:
            await self.turn()
        await server.connections[0].lost
        self.assertIsNotNone(factory.reached)

    async def turn(self) -> None:
        """Let the reactor do what is next."""
        turn: Deferred[None] = Deferred()
        self.network.callLater(0, turn.callback, None)
        await turn

    async def test_nothing_is_left_for_the_collector_of_garbage(self) -> None:
        if not isinstance(reactor, UvloopReactor):
            raise SkipTest("Twisted's own connections leave something")
        server = RawFactory(b"hello", closes=True)
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        client = await self.connected(listen(self, server))
        transport = ref(client.transport)
        client.transport.write(b"good day")
        await client.lost
        del client, self.factory
        await self.turn()
        self.assertIsNone(transport())
