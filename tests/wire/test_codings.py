"""Content codings are decoded, up to a limit."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire.codings import (
    CONTENT_CODINGS,
    DecodingFailed,
    TooLong,
    allows_gzip,
    decode_content,
)

DECOMPRESSOBJ = zlib.decompressobj
TEXT = b"<rss>" + bytes(range(256)) + b"</rss>"


def raw_deflate(data: bytes, level: int = -1) -> bytes:
    """A raw deflate stream without zlib's header, as some programs send it."""
    packing = zlib.compressobj(level, wbits=-zlib.MAX_WBITS)
    return packing.compress(data) + packing.flush()


class AllowsGzipTests(SynchronousTestCase):
    def test_what_allows_it(self) -> None:
        for accepted, allowed in {
            b"gzip": True,
            b"GZIP;q=0.5": True,
            b"x-gzip": True,
            b"*": True,
            b"br;q=1, gzip ; q=0.001": True,
            b"": False,
            b"br": False,
            b"gzip;q=0": False,
            b"gzip; Q=0.000, *": False,
            b"*;q=0": False,
            b"gzip;q=high": False,
        }.items():
            self.assertIs(allows_gzip(accepted), allowed, accepted)


class DecodeContentTests(SynchronousTestCase):
    def assert_refused(self, why: str, coding: bytes, encoded: bytes, limit: int = 1000) -> None:
        with self.assertRaises(DecodingFailed) as caught:
            decode_content(coding, encoded, limit)
        self.assertIn(why, str(caught.exception))

    def test_both_kinds_of_deflate_at_every_level(self) -> None:
        for level in range(10):
            for text in (b"", b"x", TEXT, b"ab" * 400):
                for encoded in (zlib.compress(text, level), raw_deflate(text, level)):
                    self.assertEqual(decode_content(b"deflate", encoded, 1000), text)

    def test_what_follows_the_end_is_no_part_of_it(self) -> None:
        encoded = gzip.compress(TEXT) + b"\0" * 300
        self.assertEqual(decode_content(b"gzip", encoded, len(TEXT)), TEXT)

    def test_several_members(self) -> None:
        """RFC 1952, section 2.2: a gzip file is a series of members."""
        large = random.Random(1).randbytes(100_000)
        for parts in ((b"a", b"b"), (b"", b"a", b""), (large, b"x", large, TEXT), (b"a",) * 1000):
            whole = b"".join(parts)
            encoded = b"".join(map(gzip.compress, parts))
            for coding in (b"gzip", b"x-gzip"):
                for rest in (b"", b"\0" * 300, b"\x1f"):
                    self.assertEqual(decode_content(coding, encoded + rest, len(whole)), whole)

    def test_several_members_have_one_limit(self) -> None:
        encoded = gzip.compress(b"x" * 600) + gzip.compress(b"y" * 401)
        self.assertRaises(TooLong, decode_content, b"gzip", encoded, 1000)
        self.assertEqual(len(decode_content(b"gzip", encoded, 1001)), 1001)
        full = gzip.compress(b"x" * 1000)
        self.assertEqual(decode_content(b"gzip", full + gzip.compress(b""), 1000), b"x" * 1000)
        self.assertRaises(TooLong, decode_content, b"gzip", full + gzip.compress(b"y"), 1000)

    def test_a_faulty_member_behind_the_first(self) -> None:
        first, second = gzip.compress(TEXT), gzip.compress(b"y" * 50)
        for end in (3, 10, len(second) - 1):
            self.assert_refused("breaks off", b"gzip", first + second[:end])
        wrong = first + second[:-8] + b"\xff" * 8
        self.assert_refused("cannot be decompressed", b"gzip", wrong)

    def test_too_many_members(self) -> None:
        self.assert_refused("1000 members", b"gzip", gzip.compress(b"") * 1001)

    def test_members_cost_no_more_for_what_is_behind_them(self) -> None:
        """Nothing copies the rest of the body for each member."""
        given: list[int] = []

        class Counted:
            """A decompressor of zlib that counts the bytes that it gets."""

            def __init__(self, wbits: int) -> None:
                self._decoder = DECOMPRESSOBJ(wbits)

            def decompress(self, data: bytes, most: int) -> bytes:
                given.append(len(data))
                return self._decoder.decompress(data, most)

            def __getattr__(self, name: str) -> Any:
                return getattr(self._decoder, name)

        self.patch(zlib, "decompressobj", Counted)
        members, rest = gzip.compress(b"") * 900, bytes(20_000_000)
        self.assertEqual(decode_content(b"gzip", members + rest, 1000), b"")
        self.assertLess(sum(given), len(rest))
        self.assertEqual(len(given), 900)

    def test_not_what_it_says(self) -> None:
        why = "cannot be decompressed"
        self.assert_refused(why, b"gzip", TEXT)
        self.assert_refused(why, b"deflate", TEXT)
        self.assert_refused(why, b"gzip", gzip.compress(TEXT)[:-8] + b"\xff" * 8)

    def test_breaks_off(self) -> None:
        for coding, encoded in (
            (b"gzip", gzip.compress(TEXT)),
            (b"deflate", zlib.compress(TEXT)),
            (b"deflate", raw_deflate(TEXT)),
        ):
            for end in (1, 2, len(encoded) // 2, len(encoded) - 1):
                self.assert_refused("breaks off", coding, encoded[:end])

    def test_limit(self) -> None:
        for coding in CONTENT_CODINGS:
            pack = zlib.compress if coding == b"deflate" else gzip.compress
            self.assertEqual(decode_content(coding, pack(b"x" * 1000), 1000), b"x" * 1000)
            self.assertRaises(TooLong, decode_content, coding, pack(b"x" * 1001), 1000)

    def test_little_more_is_made_than_there_may_be(self) -> None:
        for coding in CONTENT_CODINGS:
            pack = zlib.compress if coding == b"deflate" else gzip.compress
            bomb = pack(bytes(20_000_000))
            tracemalloc.start()
            self.addCleanup(tracemalloc.stop)
            self.assertRaises(TooLong, decode_content, coding, bomb, 1000)
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            self.assertLess(most, 200_000)
