"""The site over TLS, as an ``ssl:`` endpoint serves it."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from http.client import HTTPSConnection
from typing import Any

from twisted.internet import reactor
from twisted.internet.interfaces import IProtocolNegotiationFactory
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from tests.front_doors.fixture import House
from tests.outbound.authority import authority


def status_over_tls(port: int, protocols: Sequence[str]) -> int:
    """What a client gets that lets the server choose between protocols."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(protocols)
    connection = HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    finally:
        connection.close()


class TLSTests(TestCase):
    def setUp(self) -> None:
        self.house = House(self)
        listening: Any = reactor
        self.port = listening.listenSSL(
            0, self.house.factory, authority().server("localhost"), interface="127.0.0.1"
        )
        self.addCleanup(self.port.stopListening)

    def test_interface(self) -> None:
        verifyObject(IProtocolNegotiationFactory, self.house.factory)

    async def test_clients_that_let_us_choose_the_protocol(self) -> None:
        """Browsers and curl do; others offer nothing."""
        port = self.port.getHost().port
        for protocols in (["h2", "http/1.1"], ["http/1.1"], []):
            self.assertEqual(await deferToThread(status_over_tls, port, protocols), 200, protocols)
