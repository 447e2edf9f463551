"""Tests the guarded agent, by the interfaces of Twisted and of treq."""

from __future__ import annotations

import io
from functools import partial
from ipaddress import ip_network
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import execute
from twisted.trial.unittest import TestCase
from twisted.web.client import FileBodyProducer, readBody
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IResponse
from zope.interface.verify import verifyObject

from rsscloud_broker.outbound import AddressGuard, TLSContext
from rsscloud_broker.outbound.agent import GuardedAgent
from rsscloud_broker.outbound.bodies import WholeBody
from rsscloud_broker.outbound.budget import AnswerBudget
from rsscloud_broker.outbound.decoding import BodyDecoder
from rsscloud_broker.outbound.exchanges import HTTPExchanger
from rsscloud_broker.testing.clock import Clock
from tests.outbound.servers import LOOPBACK, Names, Network, Pages, page, serve


class AgentTests(TestCase):
    def setUp(self) -> None:
        network: Any = Network(reactor, Clock())
        exchanges = HTTPExchanger(
            network,
            Names(),
            AddressGuard(map(ip_network, LOOPBACK)),
            TLSContext(),
            seconds=30,
            make_body=partial(WholeBody, limit=1000),
            budget=AnswerBudget(),
        )
        self.addCleanup(exchanges.idle_connections.close)
        self.agent = GuardedAgent(exchanges, BodyDecoder(1000, AnswerBudget(), execute))
        self.pages = Pages({})
        self.url = f"http://127.0.0.1:{serve(self, self.pages)}/".encode()

    async def test_answer(self) -> None:
        self.pages.answers["/"] = page(203, b"hello", x_one="1")
        self.assertTrue(verifyObject(IAgent, self.agent))
        response = await self.agent.request(b"GET", self.url)
        self.assertTrue(verifyObject(IResponse, response))
        self.assertEqual((response.version, response.code), ((b"HTTP", 1, 1), 203))
        self.assertEqual(response.phrase, b"Non-Authoritative Information")
        self.assertEqual(response.headers.getRawHeaders(b"x-one"), [b"1"])
        self.assertEqual(response.length, 5)
        self.assertEqual(await readBody(response), b"hello")

    async def test_request(self) -> None:
        headers = Headers({"X-A": ["one", "two"], "Host": ["evil.example"], "X-B": ["é"]})
        body: Any = FileBodyProducer(io.BytesIO(b"<a/>"))
        await self.agent.request(b"POST", self.url + b"a?b", headers, body)
        (seen,) = self.pages.seen
        self.assertEqual((seen.method, seen.uri, seen.body), ("POST", "/a?b", b"<a/>"))
        self.assertEqual(seen.headers.getRawHeaders("x-a"), ["two"])
        self.assertEqual(seen.headers.getRawHeaders("x-b"), ["é"])
        self.assertEqual(seen.headers.getRawHeaders("host"), [self.url.decode()[7:-1]])
        self.assertEqual(seen.headers.getRawHeaders("accept-encoding"), ["gzip, deflate"])

    async def test_body_that_fails(self) -> None:
        bad: Any = FileBodyProducer(io.BytesIO(b""))
        bad.startProducing = lambda consumer: 1 / 0
        asking = self.agent.request(b"POST", self.url, None, bad)
        await self.assertFailure(asking, ZeroDivisionError)
