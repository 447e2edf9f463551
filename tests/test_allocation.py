"""Tests that large blocks of memory are returned to the system, if the C library supports it."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker import allocation
from rsscloud_broker.allocation import LARGE, return_large_blocks


class ReturnLargeBlocksTests(SynchronousTestCase):
    def test_tells_the_library(self) -> None:
        options: list[tuple[int, int]] = []

        class Library:
            def __init__(self, name: None) -> None:
                pass

            def mallopt(self, option: int, value: int) -> int:
                options.append((option, value))
                return 1

        self.patch(allocation, "CDLL", Library)
        self.assertTrue(return_large_blocks())
        self.assertEqual(options, [(-3, LARGE)])

    def test_other_libraries(self) -> None:
        class Library:
            def __init__(self, name: None) -> None:
                pass

        self.patch(allocation, "CDLL", Library)
        self.assertFalse(return_large_blocks())

        def missing(name: Any) -> None:
            raise OSError("no such library")

        self.patch(allocation, "CDLL", missing)
        self.assertFalse(return_large_blocks())
