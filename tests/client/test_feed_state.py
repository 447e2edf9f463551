"""Reports on feeds, after real exchanges without sockets."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http import CACHED
from twisted.web.resource import Resource
from twisted.web.server import Request

from rsscloud_broker.client.feed_findings import LARGE_BYTES, judge
from rsscloud_broker.client.feed_requests import (
    FeedAnswer,
    Fetches,
    fetch_twice,
    make_ask,
)
from rsscloud_broker.client.feed_state import examine, render
from rsscloud_broker.client.web import ClientError
from rsscloud_broker.interfaces import FeedReport as Report
from rsscloud_broker.interfaces import Finding
from rsscloud_broker.interfaces.views import Kind
from rsscloud_broker.testing.clock import About, Clock
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.web_address import REDIRECTS
from tests.client.recording import client_to

FEEDS = Path(__file__).parent.parent / "fixtures" / "feeds"
FEED = (FEEDS / "rss20-hints.xml").read_bytes()
HERE = "https://lighthouse.example.org/feed.xml"
NOW = About(1_704_276_000.0)

GOOD_HEADERS = {
    "Content-Type": "application/rss+xml; charset=utf-8",
    "ETag": '"v1"',
    "Last-Modified": "Mon, 01 Jan 2024 10:00:00 GMT",
    "Cache-Control": "max-age=900",
}


class Publisher(Resource):
    """A publisher's server, with a status, headers and a body for each path.

    :ivar obeys: whether it obeys conditional requests.
    :ivar packs: whether it compresses bodies.
    """

    isLeaf = True

    def __init__(self, *, obeys: bool = True, packs: bool = True) -> None:
        super().__init__()
        self.obeys = obeys
        self.packs = packs
        self.pages: dict[str, tuple[int, Mapping[str, str], bytes]] = {}
        self.asked: list[tuple[str, str | None, str | None]] = []

    def render(self, request: Request) -> bytes:
        uri = request.uri.decode()
        self.asked.append(
            (uri, request.getHeader("if-none-match"), request.getHeader("if-modified-since"))
        )
        status, headers, body = self.pages[uri]
        request.setResponseCode(status)
        for name, value in headers.items():
            request.setHeader(name, value)
        etag = headers.get("ETag", "").encode()
        if self.obeys and etag and request.setETag(etag) is CACHED:
            return b""
        if self.packs and "gzip" in (request.getHeader("accept-encoding") or ""):
            request.setHeader("Content-Encoding", "gzip")
            return gzip.compress(body)
        return body


class FeedStateCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.publisher = Publisher()
        self.clock = Clock(NOW)

    def publish(
        self, body: bytes = FEED, status: int = 200, uri: str = "/feed.xml", **headers: str
    ) -> None:
        """Publish at a path with good headers, except for the given ones; '' leaves one out."""
        given_headers = {name.replace("_", "-"): text for name, text in headers.items()}
        wanted = {name: text for name, text in (GOOD_HEADERS | given_headers).items() if text}
        self.publisher.pages[uri] = (status, wanted, body)

    def report(self, url: str = HERE) -> Report:
        ask = make_ask(client_to(self.publisher, self.clock), self.clock)
        return self.successResultOf(Deferred.fromCoroutine(examine(ask, url)))

    def assert_finding(self, kind: Kind, subject: str, *parts: str) -> None:
        """A finding of this kind and subject contains all these texts."""
        report = self.report()
        texts = [finding.text for finding in report.of(kind) if finding.subject == subject]
        for text in texts:
            if all(part in text for part in parts):
                return
        self.fail(f"nobody said {parts} but {render(report)}")

    def assert_silent(self, subject: str, *kinds: Kind) -> None:
        found = [f for f in self.report().findings if f.subject == subject and f.kind in kinds]
        self.assertEqual(found, [])


class GoodFeedTests(FeedStateCase):
    """A feed with nothing missing or wrong."""

    def test_what_is_good(self) -> None:
        self.publish()
        report = self.report()
        self.assertEqual(
            [finding.subject for finding in report.of("good")],
            [
                *("304", "Cache-Control", "gzip", "feed", "hub", "hub"),
                *("ttl", "syndication", "skipHours", "skipDays"),
            ],
        )
        self.assertEqual([finding.subject for finding in report.of("missing")], ["cloud"])
        self.assertEqual(report.of("wrong"), ())

    def test_what_is_asked(self) -> None:
        self.publish()
        self.report()
        self.assertEqual(
            self.publisher.asked,
            [
                ("/feed.xml", None, None),
                ("/feed.xml", '"v1"', GOOD_HEADERS["Last-Modified"]),
            ],
        )

    def test_the_feed_is_named(self) -> None:
        self.publish()
        self.assert_finding("good", "feed", "an RSS feed, version 2.0", "“Lighthouse & Buoy”")
        self.assert_finding("good", "ttl", "keep the feed for 90 minutes")
        self.assert_finding("good", "skipDays", "on these days (GMT): Saturday, Sunday")
        self.assert_finding("good", "Cache-Control", "fresh for 15 minutes")

    def test_formats_that_leave_hints_to_http(self) -> None:
        self.publish((FEEDS / "atom-hub.xml").read_bytes(), Content_Type="application/atom+xml")
        for subject in ("ttl", "skipHours", "cloud"):
            self.assert_silent(subject, "missing")
        self.publish((FEEDS / "feed.json").read_bytes(), Content_Type="application/feed+json")
        self.assert_finding("good", "cloud", "https://cloud.example.net/pleaseNotify")
        self.assert_finding("good", "feed", "a JSON Feed")


class ValidatorTests(FeedStateCase):
    """ETag, Last-Modified, and whether the server obeys them."""

    def test_none(self) -> None:
        self.publish(ETag="", Last_Modified="")
        self.assert_finding("missing", "ETag", "every reader takes all", "each time it asks")
        self.assertEqual(len(self.publisher.asked), 1)

    def test_not_heeded(self) -> None:
        self.publisher.obeys = False
        self.publish()
        self.assert_finding("wrong", "304", "same bytes instead of a 304")

    def test_last_modified_only(self) -> None:
        self.publish(ETag="")
        self.assert_finding("missing", "ETag", "only a Last-Modified header")

    def test_an_etag_without_quotes(self) -> None:
        self.publish(ETag="v1")
        self.assert_finding("wrong", "ETag", "double quotes", "v1")
        self.publish(ETag='W/"v1"')
        self.assert_silent("ETag", "wrong", "missing")

    def test_dates(self) -> None:
        self.publish(Last_Modified="last week")
        self.assert_finding("wrong", "Last-Modified", "last week is not an HTTP date")
        self.publish(Last_Modified="Mon, 01 Jan 2035 10:00:00 GMT")
        self.assert_finding("wrong", "Last-Modified", "in the future")

    def test_another_etag_each_time(self) -> None:
        last = FeedAnswer(HERE, 200, {"etag": '"a"'}, FEED)
        again = FeedAnswer(HERE, 200, {"etag": '"b"'}, FEED)
        texts = [finding.text for finding in judge(Fetches((), last, again)).findings]
        self.assertIn("The same bytes came with another ETag", " ".join(texts))

    def test_another_feed_each_time(self) -> None:
        last = FeedAnswer(HERE, 200, {"etag": '"a"'}, FEED)
        again = FeedAnswer(HERE, 200, {"etag": '"b"'}, FEED + b" ")
        texts = [finding.text for finding in judge(Fetches((), last, again)).findings]
        self.assertIn("The feed changed between two requests in a row", " ".join(texts))

    def test_an_error_the_second_time(self) -> None:
        last, again = FeedAnswer(HERE, 200, {"etag": '"a"'}, FEED), FeedAnswer(HERE, 500)
        found = judge(Fetches((), last, again)).findings
        self.assertIn(("wrong", "304"), [(finding.kind, finding.subject) for finding in found])


class HttpTests(FeedStateCase):
    """Caching, compression, size and Content-Type."""

    def test_caching(self) -> None:
        for value, kind, part in (
            ("", "missing", "does not say how long"),
            ("no-store", "wrong", "may not keep the feed"),
            ("no-cache", "good", "ask for changes each time"),
            ("max-age=31536000", "wrong", "365 days"),
            ("max-age=60", "good", "1 minute;"),
            ("max-age=1", "good", "1 second;"),
        ):
            with self.subTest(value):
                self.publish(Cache_Control=value)
                found = [f for f in self.report().findings if f.subject == "Cache-Control"]
                self.assertEqual([f.kind for f in found], [kind])
                self.assertIn(part, found[0].text)

    def test_not_compressed(self) -> None:
        self.publisher.packs = False
        self.publish()
        self.assert_finding("missing", "gzip", "though the reader accepts gzip")
        self.publish(b"<rss version='2.0'/>")
        self.assert_silent("gzip", "missing")

    def test_compressed_twice(self) -> None:
        self.publisher.packs = False
        self.publish(gzip.compress(gzip.compress(FEED)), Content_Encoding="gzip, gzip")
        ask = make_ask(client_to(self.publisher), self.clock)
        error = self.failureResultOf(examine(ask, HERE), ClientError)
        self.assertIn("compressed more than once", str(error.value))

    def test_large(self) -> None:
        large = FeedAnswer(HERE, 200, {}, FEED + b" " * LARGE_BYTES)
        found = [f for f in judge(Fetches((), large)).findings if f.subject == "size"]
        self.assertIn("514 KiB", found[0].text)

    def test_labels(self) -> None:
        self.publish(Content_Type="text/html; charset=utf-8")
        self.assert_finding(
            "wrong", "Content-Type", "with the type text/html", "application/rss+xml"
        )


class PlaceTests(FeedStateCase):
    """Feeds that have moved, have ended, or never existed."""

    def test_moved_for_good(self) -> None:
        self.publish(b"", 301, "/old", Location="/feed.xml")
        self.publish()
        report = self.report("https://lighthouse.example.org/old")
        (finding,) = [f for f in report.findings if f.subject == "redirect"]
        self.assertEqual(finding.kind, "good")
        self.assertIn(f"leads to {HERE} (status 301): the feed has moved for good", finding.text)
        self.assertEqual(report.of("wrong"), ())

    def test_for_the_time_being(self) -> None:
        self.publish(b"", 302, "/old", Location="/feed.xml")
        self.publish()
        (finding, *_) = self.report("https://lighthouse.example.org/old").findings
        self.assertIn("for the time being", finding.text)
        self.assertIn("answer 301 instead", finding.text)

    def test_circles(self) -> None:
        self.publish(b"", 301, Location="/b")
        self.publish(b"", 301, "/b", Location="/feed.xml#top")
        self.assert_finding("wrong", "redirect", "redirects in a circle")

    def test_too_many(self) -> None:
        for number in range(REDIRECTS + 2):
            self.publish(b"", 301, f"/{number}", Location=f"/{number + 1}")
        self.publish(b"", 301, Location="/0")
        self.assert_finding("wrong", "redirect", "too many redirects")
        self.assertEqual(len(self.publisher.asked), REDIRECTS + 1)

    def test_redirects_to_nowhere(self) -> None:
        for location in ("", "http://[broken/"):
            with self.subTest(location):
                self.publish(b"", 301, Location=location)
                self.assert_finding(
                    "wrong", "answer", "status 301; a feed must be sent with status 200"
                )

    def test_a_redirect_to_another_protocol(self) -> None:
        self.publish(b"", 301, Location="file:///etc/passwd")
        fetching = Deferred.fromCoroutine(
            fetch_twice(make_ask(client_to(self.publisher), self.clock), HERE, lambda _: None)
        )
        self.failureResultOf(fetching, ClientError)

    def test_gone(self) -> None:
        self.publish(b"", 410)
        self.assert_finding("good", "gone", "status 410: the feed has ended")

    def test_not_found(self) -> None:
        self.publish(b"", 404)
        self.assert_finding("wrong", "not found", "answer 301", "answer 410")

    def test_errors(self) -> None:
        self.publish(b"", 503)
        self.assert_finding("wrong", "answer", "status 503")

    def test_by_xml(self) -> None:
        document = "<redirect><newLocation>{}</newLocation></redirect>"
        self.publish(document.format("https://new.example/rss").encode())
        self.assert_finding("good", "redirect", "moved to https://new.example/rss, like a status")
        self.publish(document.format("").encode())
        self.assert_finding("good", "gone", "like a status of 410")
        self.publish(document.format("/rss").encode())
        self.assert_finding("wrong", "redirect", "newLocation is /rss. It must be the whole URL")
        self.publish(document.format("http://[").encode())
        self.assert_finding("wrong", "redirect", "newLocation is http://[. It must be the whole")


class ContentTests(FeedStateCase):
    """Findings about the content of the feed."""

    def test_no_feed(self) -> None:
        self.publish(b"<html/>", Content_Type="text/html")
        self.assert_finding("wrong", "feed", "This is not a feed: it is neither RSS nor Atom")

    def test_problems_are_passed_on(self) -> None:
        self.publish((FEEDS / "rss20-bad-hints.xml").read_bytes())
        self.assert_finding("wrong", "feed", "ttl of -5 is ignored: it must be a number of minutes")
        self.assert_finding("wrong", "feed", "skipDays of Funday is ignored")
        self.assert_finding("missing", "ttl", "no valid ttl")

    def test_a_bare_feed(self) -> None:
        self.publish(b"<rss version='2.0'><channel/></rss>")
        self.assert_finding("good", "feed", "without a title, with 0 entries")
        for subject in ("link", "self link", "cloud", "hub", "ttl", "skipHours"):
            self.assert_finding("missing", subject, "")

    def test_the_address_of_its_own(self) -> None:
        self.publish(FEED.replace(b"example.org/feed.xml", b"example.org/other.xml"))
        self.assert_finding("wrong", "self link", "other.xml as its own address")
        self.publish(FEED.replace(HERE.encode(), b"/feed.xml"))
        self.assert_silent("self link", "wrong", "missing")

    def test_addresses_that_are_no_urls(self) -> None:
        self.publish(Link="<http://[>; rel=hub, <http://[>; rel=self")
        self.assert_finding("wrong", "hub", "The hub http://[ is no URL")
        self.assert_finding("wrong", "self link", "header gives http://[")
        self.publish(FEED.replace(HERE.encode(), b"http://["))
        self.assert_finding("wrong", "self link", "http://[ as its own address")


class RenderTests(FeedStateCase):
    """The report as text."""

    def test_the_worst_comes_first(self) -> None:
        report = Report(
            HERE,
            (
                Finding("good", "gzip", "It is compressed."),
                Finding("missing", "ttl", "There is none. " * 10),
                Finding("wrong", "ETag", "It is \x1b[31m red\nand bad."),
            ),
        )
        lines = render(report).split("\n")
        self.assertEqual(lines[:3], [HERE, "", "wrong    ETag: It is [31m red and bad."])
        self.assertTrue(lines[4].startswith("missing  ttl: There is none. There is none."))
        self.assertRegex(lines[5], "^ {9}[a-zA-Z]")
        self.assertEqual(
            lines[-3:],
            ["good     gzip: It is compressed.", "", "In all: 1 good, 1 missing, 1 wrong."],
        )

    @given(
        st.builds(
            FeedAnswer,
            url=st.just(HERE),
            status=st.sampled_from((200, 200, 301, 404)),
            headers=st.dictionaries(
                st.sampled_from(("etag", "last-modified", "cache-control", "content-type"))
                | st.just("location"),
                st.text(max_size=20),
            ),
            body=st.binary(max_size=50)
            | st.sampled_from([path.read_bytes() for path in sorted(FEEDS.iterdir())]),
            compressed=st.booleans(),
        )
    )
    def test_any_answer_can_be_told(self, answer: FeedAnswer) -> None:
        findings = judge(Fetches((), answer)).findings
        self.assertTrue(findings)
        text = render(Report(answer.url, tuple(findings)))
        for line in text.split("\n"):
            self.assertEqual(clean(line), line.strip())
