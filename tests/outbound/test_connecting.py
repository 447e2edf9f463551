"""Connections that cannot be opened: whose fault it is."""

from __future__ import annotations

import socket
from errno import EADDRNOTAVAIL, ECONNREFUSED, EMFILE, ENETUNREACH, ENOBUFS
from functools import partial
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from rsscloud_broker.errors import CallsUnavailable
from rsscloud_broker.outbound.bodies import TruncatingBody
from rsscloud_broker.outbound.budget import AnswerBudget
from rsscloud_broker.outbound.connecting import OneConnection
from rsscloud_broker.outbound.guard import AddressGuard
from rsscloud_broker.outbound.http1 import Http1, HTTPAnswer, Message, NotConnected
from tests.outbound.servers import answer_to


class ConnectingTests(TestCase):
    def begin(self, address: str = "192.0.2.1") -> tuple[Http1, Deferred[HTTPAnswer]]:
        """Begin a request at an address that nobody has (RFC 5737, RFC 3849)."""
        connection = Http1(
            (False, address, 80), None, partial(TruncatingBody, limit=1000), AnswerBudget()
        )
        asking = answer_to(connection, Message(b"GET / HTTP/1.1\r\n\r\n"))
        real: Any = reactor
        factory = OneConnection(real, AddressGuard(), connection, address)
        connection.attempt = real.connectTCP(address, 80, factory, None)
        return connection, asking

    async def failure(self, address: str = "192.0.2.1") -> type[BaseException]:
        """What such a request fails with."""
        try:
            await self.begin(address)[1]
        except (NotConnected, CallsUnavailable) as error:
            return type(error)
        raise AssertionError("there was an answer")

    async def test_errors_of_the_system(self) -> None:
        for number, address, expected in (
            (ECONNREFUSED, "192.0.2.1", NotConnected),
            (ENETUNREACH, "192.0.2.1", NotConnected),
            (ENOBUFS, "192.0.2.1", CallsUnavailable),
            (ENOBUFS, "2001:db8::1", CallsUnavailable),
            (EADDRNOTAVAIL, "192.0.2.1", CallsUnavailable),  # there is no port left
            (EADDRNOTAVAIL, "2001:db8::1", NotConnected),  # there may be no IPv6 here
        ):

            class Failing(socket.socket):
                def connect_ex(self, address: Any, number: int = number) -> int:
                    return number

            self.patch(socket, "socket", Failing)
            self.assertIs(await self.failure(address), expected, (number, address))

    async def test_no_file_descriptors(self) -> None:
        def none(*args: Any) -> socket.socket:
            raise OSError(EMFILE, "Too many open files")

        self.patch(socket, "socket", none)
        self.assertIs(await self.failure(), CallsUnavailable)

    async def test_not_wanted_any_more(self) -> None:
        """Nobody is connected to if the attempt is called off before it has begun."""
        connected: list[object] = []

        class Recording(socket.socket):
            def connect_ex(self, address: Any) -> int:
                connected.append(address)
                return ECONNREFUSED

        self.patch(socket, "socket", Recording)
        connection, asking = self.begin()
        connection.attempt.stopConnecting()
        await self.assertFailure(asking, NotConnected)
        await deferLater(reactor, 0)
        self.assertEqual(connected, [])
