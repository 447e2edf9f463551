"""Connections that cannot be made: whose fault it is."""

from __future__ import annotations

from collections.abc import Callable
from errno import EADDRNOTAVAIL, ECONNREFUSED, EMFILE, ENETUNREACH, ENOBUFS
from functools import partial
from socket import socket
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.outbound import dialling
from rsscloud_broker.outbound.bodies import TruncatingBody
from rsscloud_broker.outbound.budget import AnswerBudget
from rsscloud_broker.outbound.dialling import Dialler
from rsscloud_broker.outbound.guard import AddressGuard
from rsscloud_broker.outbound.http1 import Http1, Message, NotConnected


class DiallingTests(SynchronousTestCase):
    def failure_of(self, dials: Callable[[Http1], object]) -> type[BaseException]:
        """What a request fails with when its connection is dialled in a way."""
        connection = Http1(
            (False, "192.0.2.1", 80), None, partial(TruncatingBody, limit=1000), AnswerBudget()
        )
        asking = connection.ask(Message(b"GET / HTTP/1.1\r\n\r\n"))
        dials(connection)
        return type(self.failureResultOf(asking).value)

    def dial(self, connection: Http1, address: str = "192.0.2.1") -> None:
        reactor = MemoryReactorClock()
        Dialler(reactor, AddressGuard()).dial(connection, address, None)
        reactor.advance(0)

    def test_errors_of_the_system(self) -> None:
        for number, address, expected in (
            (ECONNREFUSED, "192.0.2.1", NotConnected),
            (ENETUNREACH, "192.0.2.1", NotConnected),
            (ENOBUFS, "192.0.2.1", Unavailable),
            (ENOBUFS, "2001:db8::1", Unavailable),
            (EADDRNOTAVAIL, "192.0.2.1", Unavailable),  # there is no port left
            (EADDRNOTAVAIL, "2001:db8::1", NotConnected),  # there may be no IPv6 here
        ):

            class Failing(socket):
                def connect_ex(self, address: Any, number: int = number) -> int:
                    return number

            self.patch(dialling, "socket", Failing)
            self.assertIs(self.failure_of(partial(self.dial, address=address)), expected)

    def test_what_is_no_address_to_the_system(self) -> None:
        class Failing(socket):
            def connect_ex(self, address: Any) -> int:
                raise OSError("no such address")

        self.patch(dialling, "socket", Failing)
        self.assertIs(self.failure_of(self.dial), NotConnected)

    def test_not_wanted_any_more(self) -> None:
        connected: list[object] = []

        class Recording(socket):
            def connect_ex(self, address: Any) -> int:
                connected.append(address)
                return ECONNREFUSED

        self.patch(dialling, "socket", Recording)

        def called_off(connection: Http1) -> None:
            reactor = MemoryReactorClock()
            Dialler(reactor, AddressGuard()).dial(connection, "192.0.2.1", None)
            connection.connector.stopConnecting()
            reactor.advance(0)

        self.assertIs(self.failure_of(called_off), NotConnected)
        self.assertEqual(connected, [])

    def test_no_file_descriptors(self) -> None:
        def none(*args: Any) -> socket:
            raise OSError(EMFILE, "Too many open files")

        self.patch(dialling, "socket", none)
        self.assertIs(self.failure_of(self.dial), Unavailable)
