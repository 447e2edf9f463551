"""While the disk is nearly full, the broker accepts nothing new."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.counters import Counters
from rsscloud_broker.database.disk_space import MEGABYTE, PERIOD, DiskSpace
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.testing.clock import Clock


class DiskSpaceTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock: Any = Clock()
        self.free = self.size = 1000 * MEGABYTE
        self.failure: Exception | None = None
        self.looks = 0
        self.counters = Counters()

    async def in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        self.assertEqual((function, args), (os.statvfs, ("data",)))
        self.looks += 1
        if self.failure is not None:
            raise self.failure
        block = 4096
        return SimpleNamespace(
            f_frsize=block, f_blocks=self.size // block, f_bavail=self.free // block
        )

    def watching(self, min_free: int = 100) -> DiskSpace:
        space = DiskSpace("data", min_free * MEGABYTE, self.clock, self.in_thread, self.counters)
        space.startService()
        self.addCleanup(space.stopService)
        return space

    def test_too_little(self) -> None:
        """The broker logs one line when space is short, and one when it is there again."""
        space = self.watching()
        space.check()
        with capturedLogs() as logs:
            self.free = 99 * MEGABYTE
            self.clock.pump([PERIOD] * 3)
            error = self.assertRaises(Unavailable, space.check)
            self.assertIn("must be ([storage] min_free_mb)", str(error))
            self.free = 101 * MEGABYTE
            self.clock.pump([PERIOD] * 3)
        space.check()
        self.assertEqual(len(logs), 2)

    def test_a_tenth_of_a_small_disk_is_enough(self) -> None:
        self.size = 50 * MEGABYTE
        self.free = 6 * MEGABYTE
        space = self.watching()
        space.check()
        self.free = 4 * MEGABYTE
        self.clock.advance(PERIOD)
        self.assertRaises(Unavailable, space.check)

    def test_no_limit(self) -> None:
        self.free = 0
        self.watching(0).check()
        self.assertEqual(self.looks, 1)

    def test_free_space_is_a_metric(self) -> None:
        self.watching()
        for free in (200 * MEGABYTE, 60 * MEGABYTE):
            self.free = free
            self.clock.advance(PERIOD)
            name = "rsscloud_disk_free_bytes"
            shown = self.counters.registry.get_sample_value(name)
            self.assertEqual(shown, free // 4096 * 4096)

    def test_a_disk_that_cannot_be_looked_at(self) -> None:
        """The last result counts."""
        self.free = 0
        space = self.watching()
        self.failure = OSError("input/output error")
        self.clock.advance(PERIOD)
        self.assertRaises(Unavailable, space.check)

    def test_it_looks_no_more_once_it_is_stopped(self) -> None:
        space = self.watching()
        space.stopService()
        before = self.looks
        self.clock.pump([PERIOD] * 3)
        self.assertEqual(self.looks, before)
