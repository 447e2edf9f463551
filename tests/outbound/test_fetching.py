"""Tests what the topic fetcher and its client need of each other, over real sockets."""

from __future__ import annotations

import gzip

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase
from twisted.web.server import Request

from rsscloud_broker.errors import TopicUnreadable
from rsscloud_broker.interfaces import OutboundRequest
from rsscloud_broker.model import NO_VALIDATORS, Validators
from rsscloud_broker.model.fetching import Fetched
from rsscloud_broker.outbound import TopicClient, TopicFetcher
from rsscloud_broker.testing.clock import Clock
from tests.outbound.servers import Pages, make_client, page, serve

DATE = "Sat, 21 Nov 2026 07:28:00 GMT"


class FetchingTests(TestCase):
    def setUp(self) -> None:
        self.pages = Pages({})
        self.url = f"http://127.0.0.1:{serve(self, self.pages)}/"
        self.client = make_client().outbound
        self.fetcher = TopicFetcher(
            self.client, Clock(), "broker/1", "http://b.example", deadline=30.0
        )

    def fetch(self, known: Validators = NO_VALIDATORS) -> Deferred[Fetched]:
        return Deferred.fromCoroutine(self.fetcher.fetch(self.url, known, 7))

    async def test_headers_that_are_lists_are_joined(self) -> None:
        def feed(request: Request) -> bytes:
            for name in ("link", "content-type"):
                request.responseHeaders.setRawHeaders(name, ["</a>; rel=hub", "</b>; rel=self"])
            return b"<rss/>"

        self.pages.answers["/"] = feed
        reply = await self.client.request(OutboundRequest("GET", self.url))
        self.assertEqual(reply.headers["link"], "</a>; rel=hub, </b>; rel=self")
        self.assertEqual(reply.headers["content-type"], "</b>; rel=self")

    async def test_validators_go_back_byte_for_byte(self) -> None:
        for etag in (b'W/"a"', b'"a b"', '"é€"'.encode(), b"bare"):
            self.pages.answers["/"] = page(200, b"x")
            await self.fetch(Validators(etag.decode("latin-1"), DATE))
            headers = self.pages.seen[-1].headers
            self.assertEqual(headers.getRawHeaders(b"if-none-match"), [etag])
            self.assertEqual(headers.getRawHeaders("if-modified-since"), [DATE])

    async def test_the_limit_can_change(self) -> None:
        body = b"<rss/>" * 30_000
        assert isinstance(self.client, TopicClient)
        for coding, answer in (("", body), ("gzip", gzip.compress(body))):
            headers = {"content_encoding": coding} if coding else {}
            self.pages.answers["/"] = page(200, answer, **headers)
            self.client.change_body_limit(1000)
            error = await self.assertFailure(self.fetch(), TopicUnreadable)
            self.assertIn("the answer is larger than 1000 bytes", str(error))
            self.client.change_body_limit(len(body))
            fetched = await self.fetch()
            assert fetched.content is not None
            self.assertEqual(fetched.content.body, body)
