"""Reports on feeds: what is good, missing and wrong in the answers of their servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.client.feed_findings import LARGE_BYTES, judge
from rsscloud_broker.client.feed_requests import FeedAnswer, Fetches, make_ask
from rsscloud_broker.client.feed_state import examine, render
from rsscloud_broker.interfaces import FeedReport as Report
from rsscloud_broker.interfaces import Finding, OutboundReply, OutboundRequest
from rsscloud_broker.interfaces.views import Kind
from rsscloud_broker.testing import FakeOutbound, reply
from rsscloud_broker.testing.clock import About, Clock
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.web_address import REDIRECTS

FEEDS = Path(__file__).parent.parent / "fixtures" / "feeds"
FEED = (FEEDS / "rss20-hints.xml").read_bytes()
SITE = "https://lighthouse.example.org"
HERE = f"{SITE}/feed.xml"
NOW = About(1_704_276_000.0)

GOOD_HEADERS = {
    "content-type": "application/rss+xml; charset=utf-8",
    "etag": '"v1"',
    "last-modified": "Mon, 01 Jan 2024 10:00:00 GMT",
    "cache-control": "max-age=900",
}


class FindingsCase(SynchronousTestCase):
    """Servers that answer nothing but what a test publishes, and reports about them."""

    def setUp(self) -> None:
        self.outbound = FakeOutbound(otherwise=reply(404))

    def report(self) -> Report:
        raise NotImplementedError

    def assert_finding(self, kind: Kind, subject: str, *parts: str) -> None:
        """A finding of this kind and subject contains all these texts."""
        report = self.report()
        texts = [finding.text for finding in report.of(kind) if finding.subject == subject]
        if not any(all(part in text for part in parts) for text in texts):
            self.fail(f"nobody said {parts} but {render(report)}")

    def assert_silent(self, subject: str, *kinds: Kind) -> None:
        found = [f for f in self.report().findings if f.subject == subject and f.kind in kinds]
        self.assertEqual(found, [])


class FeedStateCase(FindingsCase):
    def publish(
        self,
        body: bytes = FEED,
        status: int = 200,
        path: str = "/feed.xml",
        *,
        obeys: bool = True,
        packs: bool = True,
        **headers: str,
    ) -> None:
        """Publish at a path with good headers, except for the given ones; '' leaves one out.

        :param obeys: whether the server obeys conditional requests.
        :param packs: whether it compresses bodies.
        """
        given = {name.replace("_", "-"): text for name, text in headers.items()}
        wanted = {name: text for name, text in (GOOD_HEADERS | given).items() if text}

        def answer(request: OutboundRequest) -> OutboundReply:
            if obeys and request.headers.get("if-none-match", "-") == wanted.get("etag"):
                return reply(304)
            return OutboundReply(status, wanted, body, "", compressed=packs)

        self.outbound.answers[f"{SITE}{path}"] = answer

    def report(self, url: str = HERE) -> Report:
        ask = make_ask(self.outbound, Clock(NOW))
        return self.successResultOf(Deferred.fromCoroutine(examine(ask, url)))

    def assert_findings(self, *rows: tuple[dict[str, Any], Kind, str, str]) -> None:
        """For each way to publish there is a finding: its kind, its subject, a part of its text."""
        for published, kind, subject, part in rows:
            self.publish(**published)
            self.assert_finding(kind, subject, part)


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
        first, second = self.outbound.requests
        self.assertEqual((first.url, second.url, first.headers), (HERE, HERE, {}))
        since = GOOD_HEADERS["last-modified"]
        self.assertEqual(second.headers, {"if-none-match": '"v1"', "if-modified-since": since})

    def test_the_feed_is_named(self) -> None:
        self.publish()
        self.assert_finding("good", "feed", "an RSS feed, version 2.0", "“Lighthouse & Buoy”")
        self.assert_finding("good", "ttl", "keep the feed for 90 minutes")
        self.assert_finding("good", "skipDays", "on these days (GMT): Saturday, Sunday")
        self.assert_finding("good", "Cache-Control", "fresh for 15 minutes")

    def test_formats_that_leave_hints_to_http(self) -> None:
        self.publish((FEEDS / "atom-hub.xml").read_bytes(), content_type="application/atom+xml")
        for subject in ("ttl", "skipHours", "cloud"):
            self.assert_silent(subject, "missing")
        self.publish((FEEDS / "feed.json").read_bytes(), content_type="application/feed+json")
        self.assert_finding("good", "cloud", "https://cloud.example.net/pleaseNotify")
        self.assert_finding("good", "feed", "a JSON Feed")


class HttpTests(FeedStateCase):
    """Validators, caching, compression, size and Content-Type."""

    def test_no_validators(self) -> None:
        self.publish(etag="", last_modified="")
        self.assert_finding("missing", "ETag", "every reader takes all", "each time it asks")
        self.assertEqual(len(self.outbound.requests), 1)

    def test_headers(self) -> None:
        html = {"content_type": "text/html; charset=utf-8"}
        self.assert_findings(
            ({"obeys": False}, "wrong", "304", "same bytes instead of a 304"),
            ({"etag": ""}, "missing", "ETag", "only a Last-Modified header"),
            ({"etag": "v1"}, "wrong", "ETag", "double quotes; this one is v1"),
            (
                {"last_modified": "last week"},
                "wrong",
                "Last-Modified",
                "last week is not an HTTP date",
            ),
            (
                {"last_modified": "Mon, 01 Jan 2035 10:00:00 GMT"},
                "wrong",
                "Last-Modified",
                "in the future",
            ),
            ({"packs": False}, "missing", "gzip", "though the reader accepts gzip"),
            (html, "wrong", "Content-Type", "with the type text/html"),
            (html, "wrong", "Content-Type", "application/rss+xml"),
        )
        self.publish(etag='W/"v1"')
        self.assert_silent("ETag", "wrong", "missing")
        self.publish(b"<rss version='2.0'/>", packs=False)
        self.assert_silent("gzip", "missing")

    def test_second_answers(self) -> None:
        last = FeedAnswer(HERE, 200, {"etag": '"a"'}, FEED)
        for again, part in (
            (FeedAnswer(HERE, 200, {"etag": '"b"'}, FEED), "came with another ETag"),
            (FeedAnswer(HERE, 200, {"etag": '"b"'}, FEED + b" "), "changed between two requests"),
            (FeedAnswer(HERE, 500), "answered with status 500"),
        ):
            found = [f for f in judge(Fetches((), last, again)).findings if f.subject == "304"]
            self.assertEqual([each.kind for each in found], ["wrong"])
            self.assertIn(part, found[0].text)

    def test_caching(self) -> None:
        for value, kind, part in (
            ("", "missing", "does not say how long"),
            ("no-store", "wrong", "may not keep the feed"),
            ("no-cache", "good", "ask for changes each time"),
            ("max-age=31536000", "wrong", "365 days"),
            ("max-age=60", "good", "1 minute;"),
            ("max-age=1", "good", "1 second;"),
        ):
            self.publish(cache_control=value)
            found = [f for f in self.report().findings if f.subject == "Cache-Control"]
            self.assertEqual([f.kind for f in found], [kind], value)
            self.assertIn(part, found[0].text, value)

    def test_large(self) -> None:
        large = FeedAnswer(HERE, 200, {}, FEED + b" " * LARGE_BYTES)
        found = [f for f in judge(Fetches((), large)).findings if f.subject == "size"]
        self.assertIn("514 KiB", found[0].text)


class PlaceTests(FeedStateCase):
    """Feeds that have moved, have ended, or never existed."""

    def test_moved(self) -> None:
        self.publish()
        for status, parts in (
            (301, [f"leads to {HERE} (status 301): the feed has moved for good"]),
            (302, ["for the time being", "answer 301 instead"]),
        ):
            self.publish(b"", status, "/old", location="/feed.xml")
            report = self.report(f"{SITE}/old")
            (finding,) = [f for f in report.findings if f.subject == "redirect"]
            self.assertEqual((finding.kind, report.of("wrong")), ("good", ()))
            for part in parts:
                self.assertIn(part, finding.text)

    def test_circles(self) -> None:
        self.publish(b"", 301, location="/b")
        self.publish(b"", 301, "/b", location="/feed.xml#top")
        self.assert_finding("wrong", "redirect", "redirects in a circle")

    def test_too_many(self) -> None:
        for number in range(REDIRECTS + 2):
            self.publish(b"", 301, f"/{number}", location=f"/{number + 1}")
        self.publish(b"", 301, location="/0")
        self.assert_finding("wrong", "redirect", "too many redirects")
        self.assertEqual(len(self.outbound.requests), REDIRECTS + 1)

    def test_no_feed(self) -> None:
        nowhere = "status 301; a feed must be sent with status 200"
        self.assert_findings(
            ({"status": 301, "location": ""}, "wrong", "answer", nowhere),
            ({"status": 301, "location": "http://[broken/"}, "wrong", "answer", nowhere),
            ({"status": 410}, "good", "gone", "status 410: the feed has ended"),
            ({"status": 404}, "wrong", "not found", "answer 301"),
            ({"status": 404}, "wrong", "not found", "answer 410"),
            ({"status": 503}, "wrong", "answer", "status 503"),
        )

    def test_by_xml(self) -> None:
        document = b"<redirect><newLocation>%b</newLocation></redirect>"
        for url, kind, subject, part in (
            (b"https://new.example/rss", "good", "redirect", "moved to https://new.example/rss,"),
            (b"", "good", "gone", "like a status of 410"),
            (b"/rss", "wrong", "redirect", "newLocation is /rss. It must be the whole URL"),
            (b"http://[", "wrong", "redirect", "newLocation is http://[. It must be the whole"),
        ):
            self.publish(document % url)
            self.assert_finding(kind, subject, part)  # type: ignore[arg-type] # they are kinds


class ContentTests(FeedStateCase):
    """Findings about the content of the feed."""

    def test_what_feeds_say(self) -> None:
        bad = {"body": (FEEDS / "rss20-bad-hints.xml").read_bytes()}
        strange = {"link": "<http://[>; rel=hub, <http://[>; rel=self"}
        ttl = "ttl of -5 is ignored: it must be a number of minutes"
        other = FEED.replace(b"example.org/feed.xml", b"example.org/other.xml")
        no_url = FEED.replace(HERE.encode(), b"http://[")
        self.assert_findings(
            ({"body": b"<html/>"}, "wrong", "feed", "not a feed: it is neither RSS nor Atom"),
            (bad, "wrong", "feed", ttl),
            (bad, "wrong", "feed", "skipDays of Funday is ignored"),
            (bad, "missing", "ttl", "no valid ttl"),
            ({"body": other}, "wrong", "self link", "other.xml as its own address"),
            (strange, "wrong", "hub", "The hub http://[ is no URL"),
            (strange, "wrong", "self link", "header gives http://["),
            ({"body": no_url}, "wrong", "self link", "http://[ as its own address"),
        )
        self.publish(FEED.replace(HERE.encode(), b"/feed.xml"))
        self.assert_silent("self link", "wrong", "missing")

    def test_a_bare_feed(self) -> None:
        self.publish(b"<rss version='2.0'><channel/></rss>")
        self.assert_finding("good", "feed", "without a title, with 0 entries")
        for subject in ("link", "self link", "cloud", "hub", "ttl", "skipHours"):
            self.assert_finding("missing", subject, "")


class RenderTests(SynchronousTestCase):
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
