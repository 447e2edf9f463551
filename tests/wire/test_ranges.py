"""Which part of a file a Range header asks for."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire.ranges import asked_part
from tests import examples


class AskedPartTests(SynchronousTestCase):
    def test_parts(self) -> None:
        for header, part in (
            ("bytes=0-", (0, 100)),
            ("bytes=0-0", (0, 1)),
            ("bytes=10-19", (10, 20)),
            ("BYTES=90-500", (90, 100)),
            ("bytes=-1", (99, 100)),
            ("bytes=-50", (50, 100)),
            ("bytes=-500", (0, 100)),
            ("bytes=100-", (100, 100)),
            ("bytes=500-600", (100, 100)),
            ("bytes=-0", (100, 100)),
        ):
            self.assertEqual(asked_part(header, 100), part, header)

    def test_the_whole(self) -> None:
        for header in (
            *("", "bytes=", "bytes=-", "bytes=9-0", "bytes=0-1,5-6", "bytes=--1", "lines=1-2"),
            *("bytes=\u0663-", "bytes=" + "9" * 5000 + "-", "bytes=-" + "9" * 5000, "bytes= 1-2"),
        ):
            self.assertIsNone(asked_part(header, 100), header)

    @settings(max_examples=examples(200))
    @given(st.from_regex(r"bytes=[0-9]{0,3}-[0-9]{0,3}", fullmatch=True), st.integers(0, 200))
    def test_a_part_is_within_the_file(self, header: str, size: int) -> None:
        part = asked_part(header, size)
        if part is not None:
            first, end = part
            self.assertTrue(0 <= first < end <= size or first == end == size, part)
