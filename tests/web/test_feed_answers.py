"""Answers to requests for feeds; the tests of the applications send real ones."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.web.feed_answers import FeedAnswers, later_second


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

    def test_date_in_the_future_is_left_out(self) -> None:
        self.assertIn("last-modified", self.answers().plain.whole.headers)
        self.assertNotIn("last-modified", self.answers(modified_at=1001.0).plain.whole.headers)

    def test_what_is_not_compressed_has_one_form(self) -> None:
        answers = self.answers()
        self.assertIs(answers.packed, answers.plain)
        packed = self.answers(b"packed").packed
        self.assertEqual((packed.whole.body, packed.etag), (b"packed", '"abc-gzip"'))
        self.assertEqual(packed.whole.headers["content-encoding"], "gzip")
