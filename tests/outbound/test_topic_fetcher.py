"""Reading topics: 2xx only, and why not."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rsscloud_broker.interfaces import ITopicFetcher
from rsscloud_broker.model import (
    AddressRefused,
    Content,
    OutboundError,
    TopicEnded,
    TopicUnreadable,
)
from rsscloud_broker.outbound import TopicFetcher
from rsscloud_broker.testing import FakeOutbound, reply

FEED = "http://feeds.example/rss.xml?x=%2F"


class TopicFetcherTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.outbound = FakeOutbound()
        self.fetcher = TopicFetcher(self.outbound)

    def fetch(self) -> Deferred[Content]:
        return Deferred.fromCoroutine(self.fetcher.fetch(FEED))

    def test_interface(self) -> None:
        self.assertTrue(verifyObject(ITopicFetcher, self.fetcher))

    def test_content(self) -> None:
        body = "<rss>é</rss>".encode("latin-1")
        self.outbound.otherwise = reply(200, body, content_type="text/xml; charset=latin-1")
        content = self.successResultOf(self.fetch())
        self.assertEqual(content, Content(body, "text/xml; charset=latin-1"))
        (request,) = self.outbound.requests
        self.assertEqual((request.method, request.url, request.redirects), ("GET", FEED, 5))

    def test_no_content_type(self) -> None:
        self.outbound.otherwise = reply(299, b"x")
        self.assertEqual(self.successResultOf(self.fetch()), Content(b"x", ""))

    def test_other_status(self) -> None:
        for status in (301, 304, 401, 404, 408, 429, 500, 503):
            self.outbound.otherwise = reply(status, b"<rss/>")
            error = self.failureResultOf(self.fetch(), TopicUnreadable).value
            self.assertEqual(error.url, FEED)
            self.assertEqual(error.reason, f"its server answered with status {status}")
            self.assertEqual(error.lasting, status in (401, 404), status)

    def test_gone(self) -> None:
        self.outbound.otherwise = reply(410, b"<rss/>")
        error = self.failureResultOf(self.fetch(), TopicEnded).value
        self.assertIn("410", error.reason)

    def test_no_answer(self) -> None:
        self.outbound.otherwise = OutboundError("the name feeds.example does not resolve")
        error = self.failureResultOf(self.fetch(), TopicUnreadable).value
        self.assertEqual(str(error), f"{FEED}: the name feeds.example does not resolve")
        self.assertFalse(error.refused)

    def test_refused(self) -> None:
        self.outbound.otherwise = AddressRefused("the address 10.1.2.3 is not public")
        error = self.failureResultOf(self.fetch(), TopicUnreadable).value
        self.assertEqual(error.reason, "the address 10.1.2.3 is not public")
        self.assertTrue(error.refused)
