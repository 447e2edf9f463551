"""Tests of the settings of the garbage collector and of the allocator."""

from __future__ import annotations

import gc
import importlib
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.composition.server import Server
from rsscloud_broker.runtime import memory
from rsscloud_broker.runtime.memory import (
    LARGE,
    freeze_existing_objects,
    postpone_collections,
    return_large_blocks,
)


class CollectionsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.addCleanup(gc.set_threshold, *gc.get_threshold())
        self.addCleanup(gc.unfreeze)

    def test_start_has_no_collections(self) -> None:
        postpone_collections()
        gc.collect()  # so that what other tests have made does not count
        before = gc.get_stats()
        made: list[list[int]] = [[] for _ in range(500_000 // 10)]
        self.assertEqual(gc.get_stats(), before, len(made))

    def test_objects_of_the_start_are_not_looked_at_again(self) -> None:
        mine = [self]
        freeze_existing_objects()
        self.assertFalse(any(each is mine for each in gc.get_objects()))
        self.assertEqual(gc.get_threshold()[0], 10_000)

    def test_twistd_loads_the_broker_without_collections(self) -> None:
        gc.set_threshold(1)
        starting = importlib.reload(importlib.import_module("rsscloud_broker.tap"))
        self.assertEqual(gc.get_threshold()[0], 500_000)
        self.assertIs(starting.Server, Server)


class ReturnLargeBlocksTests(SynchronousTestCase):
    def test_tells_the_library(self) -> None:
        options: list[tuple[int, int]] = []

        class Library:
            def __init__(self, name: None) -> None:
                pass

            def mallopt(self, option: int, value: int) -> int:
                options.append((option, value))
                return 1

        self.patch(memory, "CDLL", Library)
        self.assertTrue(return_large_blocks())
        self.assertEqual(options, [(-3, LARGE)])

    def test_other_libraries(self) -> None:
        class Library:
            def __init__(self, name: None) -> None:
                pass

        self.patch(memory, "CDLL", Library)
        self.assertFalse(return_large_blocks())

        def missing(name: Any) -> None:
            raise OSError("no such library")

        self.patch(memory, "CDLL", missing)
        self.assertFalse(return_large_blocks())
