"""Tests how the bodies of answers are collected while they arrive."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import OutboundError, TooLarge
from rsscloud_broker.outbound.bodies import AnswerBody, TruncatingBody, WholeBody


def fields(*codings: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"Server", b"x"), *((b"Content-Encoding", coding) for coding in codings)]


def fed(body: AnswerBody, data: bytes, size: int) -> bytes:
    for start in range(0, len(data), size):
        if not body.add(data[start : start + size]):
            break
    return body.end(True)


class CutOffTests(SynchronousTestCase):
    def test_up_to_the_limit(self) -> None:
        for size in (1, 7, 1000):
            for length in (0, 9, 10):
                self.assertEqual(fed(TruncatingBody([], 10), b"x" * length, size), b"x" * length)
            self.assertEqual(fed(TruncatingBody([], 10), b"x" * 11, size), b"x" * 10)

    def test_wants_no_more_than_is_needed_to_see_that_it_is_too_much(self) -> None:
        body = TruncatingBody([], 10)
        self.assertEqual(
            [body.add(b"x" * 5), body.add(b"x" * 5), body.add(b"x")], [True, True, False]
        )


class WholeTests(SynchronousTestCase):
    def assert_refused(self, why: str, data: bytes, *codings: bytes) -> None:
        with self.assertRaises(OutboundError) as caught:
            fed(WholeBody(fields(*codings), 100), data, 10)
        self.assertIn(why, str(caught.exception))

    def test_as_it_comes(self) -> None:
        for coding in (b"gzip", b"utf-8", b"identity", b""):
            for size in (1, 7, 1000):
                self.assertEqual(fed(WholeBody(fields(coding), 100), b"x" * 100, size), b"x" * 100)
        self.assertEqual(fed(WholeBody([], 100), b"", 1), b"")

    def test_limit(self) -> None:
        body = WholeBody([], 100)
        with self.assertRaises(TooLarge) as caught:
            fed(body, b"x" * 101, 10)
        self.assertEqual(str(caught.exception), "the answer is larger than 100 bytes")
        self.assertEqual(body.size, 100)

    def test_what_was_not_asked_for(self) -> None:
        self.assert_refused("the answer is compressed by br, unasked", b"x", b"br")
        self.assertEqual(WholeBody(fields(b"br"), 100).end(True), b"")  # such as a 304

    def test_more_than_once(self) -> None:
        why = "the answer is compressed more than once"
        self.assert_refused(why, b"x", b"gzip, gzip")
        self.assert_refused(why, b"x", b"gzip", b"deflate")

    def test_breaks_off(self) -> None:
        body = WholeBody([], 100)
        body.add(b"x")
        error = self.assertRaises(OutboundError, body.end, False)
        self.assertEqual(str(error), "the answer breaks off")
