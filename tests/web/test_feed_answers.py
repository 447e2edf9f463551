"""Answers to requests for feeds; the tests of the applications send real ones."""

from __future__ import annotations

import gzip
from typing import cast

from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import Request
from twisted.web.test.requesthelper import DummyRequest

from rsscloud_broker.web.feed_answers import FeedAnswers, WrittenFeed, later_second


class LaterSecondTests(SynchronousTestCase):
    def test_each_version_has_a_later_second(self) -> None:
        self.assertEqual(later_second(1000.7, 0), 1000.7)
        self.assertEqual(later_second(1001.0, 1000.7), 1001.0)
        self.assertEqual(later_second(1000.9, 1000.7), 1001.0)  # in the same second
        self.assertEqual(later_second(1000.9, 1001.0), 1002.0)  # for the third time
        self.assertEqual(later_second(500.0, 1002.0), 1003.0)  # the clock was set back


class FeedAnswersTests(SynchronousTestCase):
    def answers(self, packed: bytes = b"", modified_at: float = 1000.0) -> FeedAnswers:
        return FeedAnswers.of(b"<rss/>", packed, "text/xml", "abc", modified_at, 1000.5)

    def test_who_is_shown_a_feed(self) -> None:
        """A browser gets the same bytes as plain XML, by which it obeys the style sheet."""
        rss = "application/rss+xml; charset=utf-8"
        styled = FeedAnswers.of(b"<rss/>", b"", rss, "abc", 1.0, 2.0, is_styled=True)
        self.assertEqual(styled.plain.whole.headers["vary"], "Accept, Accept-Encoding")
        browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
        for accept, shown in (
            (browser, "application/xml; charset=utf-8"),
            ("application/rss+xml, text/html;q=0.5", rss),
            ("*/*", rss),
            (None, rss),
        ):
            request = DummyRequest([b""])
            if accept is not None:
                request.requestHeaders.setRawHeaders("accept", [accept])
            answer = styled.answer_to(cast(Request, request))
            self.assertEqual((answer.content_type, answer.body), (shown, b"<rss/>"))
            self.assertEqual(
                self.answers().answer_to(cast(Request, request)).content_type, "text/xml"
            )

    def test_date_in_the_future_is_left_out(self) -> None:
        self.assertIn("last-modified", self.answers().plain.whole.headers)
        self.assertNotIn("last-modified", self.answers(modified_at=1001.0).plain.whole.headers)

    def test_what_is_not_compressed_has_one_form(self) -> None:
        answers = self.answers()
        self.assertIs(answers.packed, answers.plain)
        packed = self.answers(b"packed").packed
        self.assertEqual((packed.whole.body, packed.etag), (b"packed", '"abc-gzip"'))
        self.assertEqual(packed.whole.headers["content-encoding"], "gzip")

    def test_a_written_feed(self) -> None:
        """The same bytes are the same version, compressed or not."""
        feed = WrittenFeed.of(b"<rss/>", "application/rss+xml")
        self.assertEqual(WrittenFeed.of(b"<rss/>", "application/rss+xml"), feed)
        self.assertNotEqual(WrittenFeed.of(b"<rss />", "application/rss+xml").etag, feed.etag)
        answers = feed.answers(1000.0, 1000.5, "<x>; rel=hub")
        self.assertEqual(answers.plain.whole.body, b"<rss/>")
        self.assertEqual(gzip.decompress(answers.packed.whole.body), b"<rss/>")
        self.assertEqual(answers.packed.whole.headers["link"], "<x>; rel=hub")
        self.assertTrue(answers.is_styled)
        json = WrittenFeed.of(b"{}", "application/feed+json")
        self.assertFalse(json.answers(1000.0, 1000.5, "").is_styled)
