"""Connections that cannot be made: whose fault it is."""

from __future__ import annotations

from errno import ECONNREFUSED, EMFILE
from functools import partial
from typing import Any

from twisted.internet import error
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.model import Unavailable
from rsscloud_broker.outbound.bodies import CutOff
from rsscloud_broker.outbound.connections import Dialling
from rsscloud_broker.outbound.guard import AddressGuard
from rsscloud_broker.outbound.http1 import Http1, Message, NotConnected


class DiallingTests(SynchronousTestCase):
    def failure_of(self, reason: Exception) -> type[BaseException]:
        """What a request fails with when its connection fails in a way."""
        connection = Http1((False, "192.0.2.1", 80), None, partial(CutOff, limit=1000))
        asking = connection.ask(Message(b"GET / HTTP/1.1\r\n\r\n"))
        unused: Any = None
        Dialling(connection, AddressGuard(), "192.0.2.1").clientConnectionFailed(
            unused, Failure(reason)
        )
        return type(self.failureResultOf(asking).value)

    def test_the_other_side(self) -> None:
        refused = error.ConnectionRefusedError(ECONNREFUSED, "refused")
        for reason in (refused, error.ConnectError(None, "no")):
            self.assertIs(self.failure_of(reason), NotConnected)

    def test_our_own_want_is_no_fault_of_the_host(self) -> None:
        reason = error.ConnectBindError(EMFILE, "Too many open files")
        self.assertIs(self.failure_of(reason), Unavailable)
