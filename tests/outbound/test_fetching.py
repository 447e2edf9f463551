"""Tests fetches over real sockets, from servers that behave well or badly."""

from __future__ import annotations

import gzip
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase
from twisted.web.server import Request

from rsscloud_broker.errors import TopicUnreadable
from rsscloud_broker.interfaces import OutboundRequest
from rsscloud_broker.model import NO_VALIDATORS, Validators
from rsscloud_broker.model.fetching import Fetched
from rsscloud_broker.outbound import TopicFetcher
from rsscloud_broker.testing.clock import Clock
from tests.outbound.scripted import RawFactory
from tests.outbound.servers import Pages, listen, make_client, page, serve

DATE = "Sat, 21 Nov 2026 07:28:00 GMT"


class FetchingTestCase(TestCase):
    def setUp(self) -> None:
        self.pages = Pages({})
        self.base = f"http://127.0.0.1:{serve(self, self.pages)}"
        self.client = make_client()
        self.fetcher = TopicFetcher(
            self.client.outbound, Clock(), "broker/1", "http://b.example", deadline=30.0
        )

    async def fetch(self, path: str = "/", known: Validators = NO_VALIDATORS) -> Fetched:
        return await self.fetcher.fetch(self.base + path, known, 7)

    async def unreadable(self, url: str = "", known: Validators = NO_VALIDATORS) -> str:
        fetching: Any = self.fetcher.fetch(url or f"{self.base}/", known, 7)
        error = await self.assertFailure(Deferred.fromCoroutine(fetching), TopicUnreadable)
        return str(error.reason)

    def redirect(self, path: str, location: str, status: int = 301) -> None:
        self.pages.answers[path] = page(status, b"moved", location=location)


class ReplyTests(FetchingTestCase):
    """What the client of topics says of an answer."""

    async def test_headers_that_are_lists_are_joined(self) -> None:
        def feed(request: Request) -> bytes:
            for name in ("link", "content-type"):
                request.responseHeaders.setRawHeaders(name, ["</a>; rel=hub", "</b>; rel=self"])
            return b"<rss/>"

        self.pages.answers["/"] = feed
        reply = await self.client.outbound.request(OutboundRequest("GET", f"{self.base}/"))
        self.assertEqual(reply.headers["link"], "</a>; rel=hub, </b>; rel=self")
        self.assertEqual(reply.headers["content-type"], "</b>; rel=self")


class StateTests(FetchingTestCase):
    async def test_not_modified(self) -> None:
        def feed(request: Request) -> bytes:
            return b"" if request.setETag(b'"a"') else b"<rss/>"

        self.pages.answers["/"] = feed
        first = await self.fetch()
        self.assertEqual((first.result, first.validators), ("200, 6 bytes", Validators('"a"')))
        second = await self.fetch("/", first.validators)
        self.assertEqual((second.result, second.content), ("304, not modified", None))
        self.assertEqual(second.validators, first.validators)
        agents = [seen.headers.getRawHeaders("user-agent") for seen in self.pages.seen]
        self.assertEqual(agents, [["broker/1 (+http://b.example; 7 subscribers)"]] * 2)

    async def test_validators_go_back_byte_for_byte(self) -> None:
        for etag in (b'W/"a"', b'"a b"', '"é€"'.encode(), b"bare"):
            self.pages.answers["/"] = page(200, b"x")
            known = Validators(etag.decode("latin-1"), DATE)
            await self.fetch("/", known)
            headers = self.pages.seen[-1].headers
            self.assertEqual(headers.getRawHeaders(b"if-none-match"), [etag])
            self.assertEqual(headers.getRawHeaders("if-modified-since"), [DATE])


class BadServerTests(FetchingTestCase):
    async def test_the_limit_can_change(self) -> None:
        body = b"<rss/>" * 30_000
        outbound: Any = self.client.outbound
        for coding, answer in (("", body), ("gzip", gzip.compress(body))):
            headers = {"content_encoding": coding} if coding else {}
            self.pages.answers["/"] = page(200, answer, **headers)
            outbound.change_body_limit(1000)
            self.assertIn("the answer is larger than 1000 bytes", await self.unreadable())
            outbound.change_body_limit(len(body))
            fetched = await self.fetch()
            assert fetched.content is not None
            self.assertEqual(fetched.content.body, body)

    async def test_wrong_lengths(self) -> None:
        for length in (b"9", b"-1", b"0x6", b"6\r\nContent-Length: 7", b"9" * 30):
            raw = RawFactory(b"HTTP/1.1 200 OK\r\nContent-Length: " + length + b"\r\n\r\n<rss/>")
            reason = await self.unreadable(f"http://127.0.0.1:{listen(self, raw)}/")
            self.assertTrue(reason)
            self.assertNotIn("\n", reason)
