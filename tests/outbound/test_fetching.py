"""Tests fetches over real sockets, from servers that behave well or badly."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase
from twisted.web.server import Request

from rsscloud_broker.errors import EndedTopic, TopicUnreadable
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

    async def test_moves(self) -> None:
        self.redirect("/", "/a", 308)
        self.redirect("/a", "/b", 302)
        self.redirect("/b", "/c", 301)
        fetched = await self.fetch()
        self.assertEqual(fetched.moved_to, f"{self.base}/a")
        self.assertEqual([seen.uri for seen in self.pages.seen], ["/", "/a", "/b", "/c"])

    async def test_xml_redirect(self) -> None:
        moved = b'<?xml version="1.0"?>\n<redirect>\n<newLocation>%s</newLocation></redirect>'
        self.pages.answers["/"] = page(200, moved % b"/new?a=1&amp;b=2")
        fetched = await self.fetch("/", Validators('"a"'))
        self.assertEqual(fetched.moved_to, f"{self.base}/new?a=1&b=2")
        self.assertFalse(self.pages.seen[1].headers.hasHeader("if-none-match"))
        self.pages.answers["/"] = page(200, moved % b"")
        with self.assertRaises(EndedTopic):
            await self.fetch()


class BadServerTests(FetchingTestCase):
    async def test_redirects_to_where_nothing_is_called(self) -> None:
        document = "<redirect><newLocation>{}</newLocation></redirect>"
        for location, reason in (
            ("http://10.0.0.1/rss.xml", "is not public (private)"),
            ("http://169.254.169.254/latest/", "is not public (link-local)"),
            ("file:///etc/passwd", "must begin with http:// or https://"),
            ("http://127.0.0.1:25/", "port 25 is for other services"),
        ):
            self.redirect("/", location)
            self.assertIn(reason, await self.unreadable())
            self.pages.answers["/"] = page(200, document.format(location).encode())
            self.assertIn(reason, await self.unreadable())

    async def test_more_than_is_taken_in(self) -> None:
        """A large topic is refused without retries, and subscribers are notified so."""
        for pack, headers in (
            (bytes, {}),
            (gzip.compress, {"content_encoding": "gzip"}),
            (zlib.compress, {"content_encoding": "deflate"}),
        ):
            self.pages.answers["/"] = page(200, pack(b"x" * 1000), **headers)
            self.assertEqual((await self.fetch()).result, "200, 1,000 bytes")
            self.pages.answers["/"] = page(200, pack(b"x" * 1001), **headers)
            with self.assertRaises(TopicUnreadable) as caught:
                await self.fetch()
            error = caught.exception
            self.assertIn("the answer is larger than 1000 bytes", error.reason)
            self.assertTrue(error.refused and error.lasting)

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

    async def test_a_failure_that_passes(self) -> None:
        for page_of in (page(500), page(200, b"no gzip", content_encoding="gzip")):
            self.pages.answers["/"] = page_of
            with self.assertRaises(TopicUnreadable) as caught:
                await self.fetch()
            self.assertFalse(caught.exception.refused or caught.exception.lasting)

    async def test_body_that_does_not_come(self) -> None:
        raw = RawFactory(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<rss/>", closes=False)
        fetching: Any = self.fetcher.fetch(f"http://127.0.0.1:{listen(self, raw)}/")
        asking = Deferred.fromCoroutine(fetching)
        await raw.spoken_to
        self.client.clock.advance(15)
        reason = self.failureResultOf(asking, TopicUnreadable).value.reason
        self.assertEqual(reason, "no whole answer within 15 seconds")

    async def test_wrong_lengths(self) -> None:
        for length in (b"9", b"-1", b"0x6", b"6\r\nContent-Length: 7", b"9" * 30):
            raw = RawFactory(b"HTTP/1.1 200 OK\r\nContent-Length: " + length + b"\r\n\r\n<rss/>")
            reason = await self.unreadable(f"http://127.0.0.1:{listen(self, raw)}/")
            self.assertTrue(reason)
            self.assertNotIn("\n", reason)

    async def test_length_that_is_too_short(self) -> None:
        """The rest of the body must not count as the answer to another request."""
        raw = RawFactory(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<rss/><!-- more -->")
        fetched = await self.fetcher.fetch(f"http://127.0.0.1:{listen(self, raw)}/")
        self.assertEqual(fetched.result, "200, 6 bytes")

    async def test_dates_that_are_none(self) -> None:
        for date in ("yesterday", "Sat, 99 Nov 2026", "0", "-1", "9" * 300):
            headers = {"last_modified": date, "expires": date, "date": date, "retry_after": date}
            self.pages.answers["/"] = page(200, b"x", **headers)
            fetched = await self.fetch()
            self.assertEqual(fetched.fresh_seconds, 0.0)
            self.assertEqual(fetched.validators.last_modified, date)
            await self.fetch("/", fetched.validators)
            sent = self.pages.seen[-1].headers.getRawHeaders("if-modified-since")
            self.assertEqual(sent, [date])

    async def test_stored_validators_bring_no_headers(self) -> None:
        for bad in ('"a"\r\nX-Evil: 1', '"a"\nX-Evil: 1', '"a"\r\n\r\nGET /evil HTTP/1.1', "\x00"):
            await self.fetch("/", Validators(bad, bad))
            headers = self.pages.seen[-1].headers
            for name in ("x-evil", "if-none-match", "if-modified-since"):
                self.assertFalse(headers.hasHeader(name), bad)
        self.assertEqual({seen.uri for seen in self.pages.seen}, {"/"})
