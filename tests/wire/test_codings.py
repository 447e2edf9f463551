"""Content codings are decoded, up to a limit."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire.codings import CONTENT_CODINGS, DecodingFailed, TooLong, decode_content

TEXT = b"<rss>" + bytes(range(256)) + b"</rss>"


def raw_deflate(data: bytes, level: int = -1) -> bytes:
    """A raw deflate stream without zlib's header, as some programs send it."""
    packing = zlib.compressobj(level, wbits=-zlib.MAX_WBITS)
    return packing.compress(data) + packing.flush()


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
