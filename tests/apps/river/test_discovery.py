"""Finding the feed of a page."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.river.discovery import MAX_TRIES, Discovery, FoundFeed, typed_url
from rsscloud_broker.apps.river.model import InvalidFeed
from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.testing import FakeOutbound, reply
from rsscloud_broker.testing.parsing import parse_here
from tests.apps.river.house import rss

PAGE = "http://blog.example/2026/"
FEED = reply(200, rss("one"))


class TypedTests(SynchronousTestCase):
    def test_what_people_type(self) -> None:
        for text, url in (
            ("example.org", "https://example.org/"),
            (" HTTP://Example.org:80/a#b ", "http://example.org/a"),
            ("example.org:8080/x", "https://example.org:8080/x"),
            ("feed://example.org/rss", "https://example.org/rss"),
            ("feed:https://example.org/rss", "https://example.org/rss"),
        ):
            self.assertEqual(typed_url(text), url)
        for text in ("", "https://", "mailto:a@b.example", "two words", "http://[::1", "x" * 3000):
            self.assertRaises(InvalidFeed, typed_url, text)


class DiscoveryTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.web = FakeOutbound(otherwise=reply(404))
        self.discovery = Discovery(self.web, parse_here)

    def find(self, url: str = PAGE) -> FoundFeed:
        found = self.successResultOf(self.discovery.find(url))
        assert isinstance(found, FoundFeed)
        return found

    def error(self, *kinds: type[Exception]) -> Any:
        work = Deferred.fromCoroutine(self.discovery.find(PAGE))
        return self.failureResultOf(work, *kinds).value

    def page(self, head: str, **headers: str) -> None:
        self.web.answers[PAGE] = reply(200, f"<head>{head}</head><p>x".encode(), **headers)

    def test_the_feed_itself(self) -> None:
        self.web.answers[PAGE] = FEED
        found = self.find()
        self.assertEqual((found.url, len(found.digest)), (PAGE, 32))
        assert found.document is not None
        self.assertEqual(found.document.title, "A blog")

    def test_the_feed_of_a_page(self) -> None:
        """The page names it, or a header does, or it is at one of the usual paths."""
        several = (
            '<link rel="stylesheet" href="/s"><link rel="alternate" hreflang="de" href="/de/">'
            '<link rel="ALTERNATE" type="application/rss+xml; x=y" href="f#top">'
        )
        malformed = '<base href="http://["><link rel="feed" href="http://[a:b]/">'
        typed = '</f>; rel="alternate"; type="application/rss+xml"'
        for head, header, url in (
            (several, "", f"{PAGE}f"),
            ('<base href="/base/"><link rel="feed" href="f">', "", "http://blog.example/base/f"),
            (f'{malformed}<link rel="feed" href="f">', "<http://[>; rel=alternate", f"{PAGE}f"),
            ("", typed, "http://blog.example/f"),
            ('<link rel="alternate" type="text/xml" href="/none">', "nonsense",
             "http://blog.example/atom.xml"),
        ):  # fmt: skip
            self.setUp()
            self.page(head, link=header)
            self.web.answers[url] = FEED
            self.assertEqual(self.find().url, url)

    def test_few_requests_for_a_page(self) -> None:
        links = (f'<link rel="alternate" type="text/xml" href="/{n}">' for n in range(1000))
        self.page("".join(links) + '<link rel="feed" href="javascript:alert(1)">')
        self.assertIn("names none that can be read", str(self.error(InvalidFeed)))
        self.assertEqual(len(self.web.requests), 1 + MAX_TRIES)

    def test_pages_that_answer_with_nothing_of_use(self) -> None:
        strange = b"<link rel=alternate type=text/xml href='http://['>"
        for body in (b"", b"\0\xff", b"<" * 1000, strange):
            self.web.answers[PAGE] = reply(200, body)
            self.error(InvalidFeed)
        self.web.answers[PAGE] = reply(500)
        self.assertIn("HTTP status 500", str(self.error(InvalidFeed)))
        self.web.answers[PAGE] = OutboundError("no such host")
        self.error(OutboundError)

    def test_what_moved_for_good_is_followed_there(self) -> None:
        for statuses, url in (((301, 308), "http://new.example/f"), ((301, 302), PAGE)):
            hops = tuple((status, "http://new.example/f") for status in statuses)
            answer = OutboundReply(200, {}, rss("one"), "http://new.example/f", hops)
            self.web.answers[PAGE] = answer
            self.assertEqual(self.find().url, url)
