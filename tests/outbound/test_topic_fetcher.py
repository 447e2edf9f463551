"""Tests the requests of the topic fetcher, and its results for each kind of answer."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rsscloud_broker.errors import (
    AddressRefused,
    EndedTopic,
    OutboundError,
    TooLarge,
    TopicUnreadable,
)
from rsscloud_broker.interfaces import ITopicFetcher, OutboundReply, OutboundRequest
from rsscloud_broker.model import NO_VALIDATORS, Content, Validators
from rsscloud_broker.model.fetching import Fetched
from rsscloud_broker.outbound import TopicFetcher
from rsscloud_broker.testing import FakeOutbound, reply
from rsscloud_broker.testing.clock import About, Clock

FEED = "http://feeds.example/rss.xml?x=%2F"
NEW, OTHER, THIRD = (f"http://{name}.example/rss" for name in ("new", "other", "third"))

NOW = About(1_795_250_000.0)  # an hour and more after that date
ETAG, DATE = '"33a6"', "Sat, 21 Nov 2026 07:28:00 GMT"
KNOWN = Validators(ETAG, DATE)

AGENT = "rsscloud-broker/1.0 (+http://broker.example)"


def document(url: str) -> OutboundReply:
    """An XML redirect."""
    return reply(200, f"<redirect><newLocation>{url}</newLocation></redirect>".encode())


def after(answer: OutboundReply, *hops: tuple[int, str]) -> OutboundReply:
    """An answer at the end of redirects."""
    return evolve(answer, url=hops[-1][1], hops=hops)


class FetcherTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.outbound = FakeOutbound()
        self.clock = Clock(NOW)
        self.fetcher = TopicFetcher(
            self.outbound, self.clock, "rsscloud-broker/1.0", "http://broker.example", deadline=30.0
        )

    def fetch(self, known: Validators = NO_VALIDATORS, subscribers: int = 0) -> Deferred[Fetched]:
        return Deferred.fromCoroutine(self.fetcher.fetch(FEED, known, subscribers))

    def fetched(self, answer: OutboundReply) -> Fetched:
        """The result of a fetch with this answer."""
        self.outbound.answers[FEED] = answer
        return self.successResultOf(self.fetch(KNOWN))

    def unreadable(self, answer: OutboundReply | Exception) -> TopicUnreadable:
        """The error of a fetch with this answer."""
        self.outbound.answers[FEED] = answer
        error: TopicUnreadable = self.failureResultOf(self.fetch(KNOWN), TopicUnreadable).value
        self.assertEqual(error.url, FEED)
        return error

    def headers(self, known: Validators) -> Mapping[str, str]:
        """The headers of the conditional request, without the User-Agent."""
        self.successResultOf(self.fetch(known))
        sent = dict(self.outbound.requests[-1].headers)
        del sent["user-agent"]
        return sent


class AnswerTests(FetcherTestCase):
    def test_interface(self) -> None:
        self.assertTrue(verifyObject(ITopicFetcher, self.fetcher))

    def test_content(self) -> None:
        body = "<rss>é</rss>".encode("latin-1")
        self.outbound.otherwise = reply(200, body, content_type="text/xml; charset=latin-1")
        fetched = self.successResultOf(self.fetch())
        content = Content(body, "text/xml; charset=latin-1")
        self.assertEqual(fetched, Fetched(content, result="200, 12 bytes"))
        (request,) = self.outbound.requests
        self.assertEqual((request.method, request.url, request.redirects), ("GET", FEED, 5))
        self.assertEqual(request.headers, {"user-agent": AGENT})

    def test_no_content_type(self) -> None:
        self.assertEqual(self.fetched(reply(299, b"x")).content, Content(b"x", ""))

    def test_result_is_for_people(self) -> None:
        for size, result in ((0, "200, 0 bytes"), (1, "200, 1 byte"), (5120, "200, 5,120 bytes")):
            self.assertEqual(self.fetched(reply(200, b"x" * size)).result, result)

    def test_no_content(self) -> None:
        gone = "its server answered that it is gone for good (status 410)"
        without = "an XML redirect without a URL is there"
        many = "its server redirects more than 5 times"
        five = [(301, f"{NEW}/{n}") for n in range(5)]
        for answer, reason in (
            (reply(410, b"<rss/>"), gone),
            (after(reply(410), (301, NEW), (308, OTHER)), gone),
            (OutboundError("it does not resolve"), "it does not resolve"),
            (AddressRefused("it is not public"), "it is not public"),
            (document("http://[::1/"), "it redirects to what is not a URL"),
            (document(""), without),
            (after(reply(301, location=OTHER), *five), many),
            (after(document(OTHER), *five), many),
            (evolve(document(NEW), status=500), "its server answered with status 500"),
        ):
            error = self.unreadable(answer)
            self.assertTrue(error.reason.startswith(reason), error.reason)
            self.assertEqual(error.refused, isinstance(answer, AddressRefused))
            self.assertEqual(isinstance(error, EndedTopic), reason in {gone, without})

    def test_other_status(self) -> None:
        for status in (301, 401, 404, 408, 429, 500, 503):
            for hops in ((), ((301, NEW),)):
                error = self.unreadable(evolve(reply(status, b"<rss/>"), hops=hops))
                self.assertEqual(error.reason, f"its server answered with status {status}")
                self.assertEqual(error.lasting, status in (401, 404), status)
                self.assertIsNone(error.retry_after)

    def test_retry_after(self) -> None:
        self.assertEqual(self.unreadable(reply(503, b"", retry_after="60")).retry_after, 60.0)

    def test_freshness(self) -> None:
        for answer, seconds in (
            (reply(200), None),
            (reply(200, cache_control="max-age=600"), 600.0),
            (reply(304, cache_control="max-age=600"), 600.0),
            (reply(200, expires="Sat, 21 Nov 2026 08:34:20 GMT"), 60.0),
        ):
            expected = None if seconds is None else About(seconds)
            self.assertEqual(self.fetched(answer).fresh_seconds, expected, answer)


class LargeTests(FetcherTestCase):
    LARGE = TooLarge("the answer is larger than 1000 bytes")

    def test_its_account_says_what_that_means(self) -> None:
        """The limit is a rule of the broker, so the error counts as a refusal."""
        error = self.unreadable(self.LARGE)
        self.assertEqual(
            error.reason,
            "the answer is larger than 1000 bytes, too large to be read: its subscribers are "
            "not notified of changes",
        )
        self.assertEqual((error.refused, error.lasting), (True, True))

    def test_the_log_says_once_what_to_do(self) -> None:
        with capturedLogs() as logs:
            for _ in range(3):
                self.unreadable(self.LARGE)
            self.fetched(reply(200, b"small again"))
            self.unreadable(self.LARGE)
        lines = [formatEvent(event) for event in logs]
        self.assertEqual(
            lines,
            [
                f"{FEED}: the answer is larger than 1000 bytes; its subscribers are not notified "
                "of changes until it is smaller, or body_limit in [topics] of the configuration is "
                "raised."
            ]
            * 2,
        )


class RequestTests(FetcherTestCase):
    def test_as_they_came(self) -> None:
        for known, expected in (
            (Validators(), {}),
            (Validators(ETAG), {"if-none-match": ETAG}),
            (Validators("", DATE), {"if-modified-since": DATE}),
            (KNOWN, {"if-none-match": ETAG, "if-modified-since": DATE}),
            (Validators('W/"a"', "yesterday"),
             {"if-none-match": 'W/"a"', "if-modified-since": "yesterday"}),
            (Validators("no quotes"), {"if-none-match": "no quotes"}),
        ):  # fmt: skip
            self.assertEqual(self.headers(known), expected)

    def test_beyond_ascii(self) -> None:
        """The client decodes headers as Latin-1 and encodes UTF-8; the bytes must be the same."""
        came = '"é"'.encode().decode("latin-1")
        self.assertEqual(self.headers(Validators(came)), {"if-none-match": '"é"'})
        self.assertEqual(self.headers(Validators('"\xe9"')), {})

    def test_what_cannot_be_sent_is_not(self) -> None:
        for bad in ("a\r\nx-evil: 1", "a\nb", "a\rb", "a\x00", "\t", "\x7f", "é\x85", "x" * 1001):
            self.assertEqual(self.headers(Validators(bad, bad)), {}, bad)
            self.assertEqual(
                self.fetched(reply(200, etag=bad, last_modified=bad)).validators, Validators(), bad
            )
        self.assertEqual(self.headers(Validators("x" * 1000)), {"if-none-match": "x" * 1000})

    def test_what_was_modified_a_moment_ago_is_asked_for_in_full(self) -> None:
        """The content may change again in the same second, without a change of its date."""
        for sent, validators in (
            ("Sat, 21 Nov 2026 07:27:59 GMT", NO_VALIDATORS),
            (DATE, NO_VALIDATORS),
            ("Sat, 21 Nov 2026 07:28:01 GMT", NO_VALIDATORS),
            ("Sat, 21 Nov 2026 07:28:02 GMT", KNOWN),
        ):
            answer = reply(200, etag=ETAG, last_modified=DATE, date=sent)
            self.assertEqual(self.fetched(answer).validators, validators, sent)

    def test_validators_of_a_content(self) -> None:
        for answer, validators in (
            (reply(200), Validators()),
            (reply(200, etag='W/"b"'), Validators('W/"b"')),
            (reply(200, last_modified="Sat, 99 Nov"), Validators("", "Sat, 99 Nov")),
            (reply(200, etag=ETAG, last_modified=DATE), KNOWN),
        ):
            self.assertEqual(self.fetched(answer).validators, validators)

    def test_not_modified(self) -> None:
        fetched = self.fetched(reply(304))
        self.assertEqual(fetched, Fetched(None, KNOWN, result="304, not modified"))

    def test_not_modified_with_other_validators(self) -> None:
        fetched = self.fetched(reply(304, etag='"new"'))
        self.assertEqual(fetched.validators, Validators('"new"', DATE))

    def test_not_modified_unasked(self) -> None:
        for known in (Validators(), Validators("a\nb")):
            self.outbound.otherwise = reply(304)
            error = self.failureResultOf(self.fetch(known), TopicUnreadable).value
            self.assertIn("status 304, though it was not asked", error.reason)

    def test_number_of_subscribers(self) -> None:
        for subscribers, said in (
            (0, ""),
            (1, "; 1 subscriber"),
            (2, "; 2 subscribers"),
            (10_000, "; 10000 subscribers"),
            (10_001, "; more than 10,000 subscribers"),
        ):
            self.successResultOf(self.fetch(KNOWN, subscribers))
            expected = f"rsscloud-broker/1.0 (+http://broker.example{said})"
            self.assertEqual(self.outbound.requests[-1].headers["user-agent"], expected)


class MoveTests(FetcherTestCase):
    def test_where_permanent_redirects_lead(self) -> None:
        for statuses, expected in (
            ((301,), NEW),
            ((308,), NEW),
            ((302,), ""),
            ((303,), ""),
            ((307,), ""),
            ((301, 308), OTHER),
            ((301, 302, 301), NEW),
            ((302, 301), ""),
            ((301, 301, 307), OTHER),
        ):
            hops = list(zip(statuses, (NEW, OTHER, THIRD), strict=False))
            fetched = self.fetched(after(reply(200, b"x"), *hops))
            self.assertEqual((fetched.moved_to, fetched.content), (expected, Content(b"x", "")))

    def test_url_that_is_too_long_for_a_topic(self) -> None:
        hops = ((301, NEW), (301, f"{NEW}?{'x' * 2048}"))
        self.assertEqual(self.fetched(after(reply(200), *hops)).moved_to, NEW)

    def test_what_was_known_was_elsewhere(self) -> None:
        """A 304 at another URL may be about an older file, so the topic is fetched in full."""
        self.outbound.answers[NEW] = reply(200, b"x", etag='"new"')
        fetched = self.fetched(after(reply(304), (301, NEW)))
        self.assertEqual(fetched.content, Content(b"x", ""))
        self.assertEqual((fetched.moved_to, fetched.validators), (NEW, Validators('"new"')))
        first, second = self.outbound.requests
        self.assertIn("if-none-match", first.headers)
        self.assertEqual((second.url, dict(second.headers)), (NEW, {"user-agent": AGENT}))

    def test_not_modified_behind_a_temporary_redirect(self) -> None:
        fetched = self.fetched(after(reply(304), (302, NEW)))
        self.assertEqual((fetched.content, fetched.moved_to), (None, ""))

    def test_gone_behind_a_temporary_redirect(self) -> None:
        for hops in (((302, NEW),), ((301, NEW), (307, OTHER))):
            for answer in (reply(410), document("")):
                error = self.unreadable(after(answer, *hops))
                self.assertNotIsInstance(error, EndedTopic)
                self.assertIn("but a temporary redirect led there", error.reason)


class XMLRedirectTests(FetcherTestCase):
    def test_moves(self) -> None:
        self.outbound.answers[NEW] = reply(200, b"x", etag=ETAG)
        fetched = self.fetched(document(NEW))
        expected = Fetched(Content(b"x", ""), Validators(ETAG), NEW, result="200, 1 byte")
        self.assertEqual(fetched, expected)
        first, second = self.outbound.requests
        self.assertIn("if-none-match", first.headers)
        self.assertEqual(dict(second.headers), {"user-agent": AGENT})
        self.assertEqual((first.redirects, second.redirects), (5, 4))

    def test_relative_and_beyond_ascii(self) -> None:
        self.outbound.answers["http://feeds.example/%C3%A9%E2%82%AC"] = reply(200, b"x")
        fetched = self.fetched(document("/é€#top"))
        self.assertEqual(fetched.moved_to, "http://feeds.example/%C3%A9%E2%82%AC")

    def test_is_part_of_the_chain(self) -> None:
        self.outbound.answers[THIRD] = reply(200)
        for status, expected in ((301, THIRD), (302, "")):
            fetched = self.fetched(after(document(THIRD), (status, NEW)))
            self.assertEqual(fetched.moved_to, expected)

    def test_one_deadline_for_all_requests(self) -> None:
        """A courier that is not done long after the deadline of a fetch is killed."""

        def answer_late(request: OutboundRequest) -> Deferred[OutboundReply]:
            there = document(f"http://hop.example/{len(self.outbound.requests)}")
            return deferLater(self.clock, 12.0, lambda: there)

        self.outbound.otherwise = answer_late
        fetching = self.fetch()
        for seconds in (12.0, 12.0, 5.5):
            self.clock.advance(seconds)
            self.assertNoResult(fetching)
        self.clock.advance(1.0)
        error = self.failureResultOf(fetching, TopicUnreadable).value
        self.assertEqual(error.reason, "no whole answer within 30 seconds, redirects included")
        self.clock.advance(60.0)
        self.assertEqual(len(self.outbound.requests), 3)

    def test_circle(self) -> None:
        self.outbound.answers[NEW] = document(OTHER)
        self.outbound.answers[OTHER] = document(NEW)
        error = self.unreadable(document(NEW))
        self.assertEqual(error.reason, f"its redirects lead in circles: {NEW} to {OTHER} to {NEW}")
        self.assertEqual(len(self.outbound.requests), 3)

    def test_circle_with_redirects(self) -> None:
        self.outbound.answers[NEW] = after(reply(200), (302, FEED))
        self.assertIn("lead in circles", self.unreadable(document(NEW)).reason)

    def test_hundred_hops(self) -> None:
        places = [f"{NEW}/{number}" for number in range(100)]
        for place, following in pairwise(places):
            self.outbound.answers[place] = document(following)
        error = self.unreadable(document(places[0]))
        self.assertEqual(error.reason, "its server redirects more than 5 times")
        self.assertEqual(len(self.outbound.requests), 6)

    def test_what_is_not_called(self) -> None:
        self.outbound.answers["file:///etc/passwd"] = AddressRefused("the URL must begin so")
        error = self.unreadable(document("file:///etc/passwd"))
        self.assertTrue(error.refused)
