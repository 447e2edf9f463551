"""Tests that the limit of file descriptors is raised, up to the hard limit."""

from __future__ import annotations

from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.runtime import service
from rsscloud_broker.runtime.service import raise_descriptor_limit


class AllowTests(SynchronousTestCase):
    def limited(self, soft: int, hard: int) -> None:
        """Make the system report these limits."""
        self.set: list[tuple[int, int]] = []
        self.patch(service, "getrlimit", lambda which: (soft, hard))
        self.patch(service, "setrlimit", lambda which, limits: self.set.append(limits))

    def test_of_this_process(self) -> None:
        soft, hard = getrlimit(RLIMIT_NOFILE)
        self.addCleanup(setrlimit, RLIMIT_NOFILE, (soft, hard))
        setrlimit(RLIMIT_NOFILE, (512, hard))
        self.assertEqual(raise_descriptor_limit(600), 600)
        self.assertEqual(getrlimit(RLIMIT_NOFILE), (600, hard))

    def test_raised_as_far_as_may_be_and_never_lowered(self) -> None:
        for soft, hard, now in (
            (1024, RLIM_INFINITY, 16_384),
            (1024, 20_000, 16_384),
            (1024, 4096, 4096),
            (20_000, RLIM_INFINITY, 20_000),
            (4096, 4096, 4096),
            (RLIM_INFINITY, RLIM_INFINITY, 16_384),
        ):
            self.limited(soft, hard)
            self.assertEqual(raise_descriptor_limit(16_384), now)
            self.assertEqual(self.set, [(now, hard)] if soft == 1024 else [])

    def test_a_system_that_refuses(self) -> None:
        def refuse(which: int, limits: tuple[int, int]) -> None:
            raise ValueError("current limit exceeds maximum limit")

        self.limited(256, RLIM_INFINITY)
        self.patch(service, "setrlimit", refuse)
        self.assertEqual(raise_descriptor_limit(16_384), 256)
