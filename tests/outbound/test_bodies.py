"""Bodies of answers: how much of them is kept, and how they are decompressed."""

from __future__ import annotations

import gzip
import zlib

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.model import OutboundError
from rsscloud_broker.outbound.bodies import Body, CutOff, Unpacked

TEXT = b"<rss>" + bytes(range(256)) + b"</rss>"


def raw_deflate(data: bytes, level: int = -1) -> bytes:
    packing = zlib.compressobj(level, wbits=-zlib.MAX_WBITS)
    return packing.compress(data) + packing.flush()


def fields(*codings: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"Server", b"x"), *((b"Content-Encoding", coding) for coding in codings)]


def fed(body: Body, data: bytes, size: int) -> bytes:
    for start in range(0, len(data), size):
        if not body.add(data[start : start + size]):
            break
    return body.end(True)


class CutOffTests(SynchronousTestCase):
    def test_up_to_the_limit(self) -> None:
        for size in (1, 7, 1000):
            for length in (0, 9, 10):
                self.assertEqual(fed(CutOff([], 10), b"x" * length, size), b"x" * length)
            self.assertEqual(fed(CutOff([], 10), b"x" * 11, size), b"x" * 10)

    def test_wants_no_more_than_is_needed_to_see_that_it_is_too_much(self) -> None:
        body = CutOff([], 10)
        self.assertEqual(
            [body.add(b"x" * 5), body.add(b"x" * 5), body.add(b"x")], [True, True, False]
        )


class UnpackedTests(SynchronousTestCase):
    def assert_refused(self, why: str, packed: bytes, *codings: bytes, limit: int = 1000) -> None:
        with self.assertRaises(OutboundError) as caught:
            fed(Unpacked(fields(*codings), limit), packed, 100)
        self.assertIn(why, str(caught.exception))

    def test_codings(self) -> None:
        for coding, packed in (
            (b"gzip", gzip.compress(TEXT)),
            (b"X-Gzip ", gzip.compress(TEXT)),
            (b"deflate", zlib.compress(TEXT)),
            (b"Deflate", raw_deflate(TEXT)),
            (b"utf-8", TEXT),
            (b"identity", TEXT),
            (b"", TEXT),
        ):
            for size in (1, 10, 1000):
                with self.subTest(coding=coding, size=size):
                    self.assertEqual(fed(Unpacked(fields(coding), 1000), packed, size), TEXT)
        self.assertEqual(fed(Unpacked([], 1000), TEXT, 10), TEXT)

    def test_both_kinds_of_deflate_at_every_level(self) -> None:
        for level in range(10):
            for text in (b"", b"x", TEXT, b"ab" * 400):
                for packed in (zlib.compress(text, level), raw_deflate(text, level)):
                    body = Unpacked(fields(b"deflate"), 1000)
                    self.assertEqual(fed(body, packed, 3), text)

    def test_no_body_at_all(self) -> None:
        self.assertEqual(Unpacked(fields(b"gzip"), 10).end(True), b"")

    def test_what_follows_the_end_is_no_part_of_it(self) -> None:
        packed = gzip.compress(TEXT) + b"\0" * 300
        self.assertEqual(fed(Unpacked(fields(b"gzip"), 1000), packed, 100), TEXT)

    def test_limit_after_decompression(self) -> None:
        for coding, pack in ((b"gzip", gzip.compress), (b"deflate", zlib.compress)):
            body = Unpacked(fields(coding), 1000)
            self.assertEqual(fed(body, pack(b"x" * 1000), 5), b"x" * 1000)
            self.assert_refused("larger than 1000 bytes", pack(b"x" * 1001), coding)

    def test_bomb_is_not_expanded(self) -> None:
        body = Unpacked(fields(b"gzip"), 1000)
        bomb = gzip.compress(b"0" * 50_000_000)
        with self.assertRaises(OutboundError):
            body.add(bomb)
        self.assertEqual(body.size, 1001)

    def test_limit_before_decompression(self) -> None:
        self.assert_refused("larger than 100 bytes", b"x" * 101, limit=100)
        empty = gzip.compress(b"") + b"\0" * 1000  # more than is read, of nothing
        self.assert_refused("larger than 1000 bytes", empty, b"gzip")

    def test_what_was_not_asked_for(self) -> None:
        body = Unpacked(fields(b"br"), 1000)
        error = self.assertRaises(OutboundError, body.add, TEXT)
        self.assertEqual(str(error), "the answer is compressed by br, unasked")
        self.assertEqual(Unpacked(fields(b"br"), 1000).end(True), b"")  # a 304, say

    def test_more_than_once(self) -> None:
        why = "the answer is compressed more than once"
        self.assert_refused(why, b"x", b"gzip, gzip")
        self.assert_refused(why, b"x", b"gzip", b"deflate")

    def test_not_what_it_says(self) -> None:
        why = "the answer cannot be decompressed"
        self.assert_refused(why, TEXT, b"gzip")
        self.assert_refused(why, TEXT, b"deflate")
        self.assert_refused(why, gzip.compress(TEXT)[:-8] + b"\xff" * 8, b"gzip")

    def test_breaks_off(self) -> None:
        for coding, packed in (
            (b"gzip", gzip.compress(TEXT)),
            (b"deflate", zlib.compress(TEXT)),
            (b"deflate", raw_deflate(TEXT)),
        ):
            for end in (1, 2, len(packed) // 2, len(packed) - 1):
                self.assert_refused("the answer breaks off", packed[:end], coding)
