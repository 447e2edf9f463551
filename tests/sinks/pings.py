"""Helpers for tests of the sinks that write files: a store of pings, and readers of the files."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from typing import Any

from lxml import etree
from twisted.internet.defer import Deferred, execute, fail
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.interfaces import IEventBus, SinkParts
from rsscloud_broker.model import Ping
from rsscloud_broker.testing import RecordingBus, memory_store, sink_parts
from rsscloud_broker.testing.clock import Clock

HOUR = 3600
#: 2026-09-29 12:00:00 UTC
NOON = 1_790_683_200


class PingStore:
    """A store in memory that a test can make fail.

    :ivar failure: is raised instead of returning slices of pings, while it is set.
    :ivar limits: the ``limit`` of every slice that was requested.
    """

    def __init__(self, case: SynchronousTestCase) -> None:
        self._case = case
        self.store = memory_store()
        self.failure: Exception | None = None
        self.limits: list[int] = []
        self._give = self.store.pings
        case.patch(self.store, "pings", self._watched)
        case.addCleanup(self.store.stopService)

    def add(self, *times: float) -> None:
        """Record pings that were received at these times, each with a URL of its own."""
        for time in times:
            number = self.count() + 1
            ping = Ping("A Site", f"https://example.org/{number}", time)
            self._case.successResultOf(self.store.add_ping(ping, 0))

    def all(self) -> list[Ping]:
        """All stored pings, newest first."""
        return self._case.successResultOf(self._give(0, 2 * NOON, None, 100_000))

    def count(self) -> int:
        return self._case.successResultOf(self.store.count_pings())

    def _watched(
        self, since: float, until: float, before: Ping | None, limit: int
    ) -> Deferred[list[Ping]]:
        self.limits.append(limit)
        if self.failure is not None:
            # A new exception each time, since the traceback of one grows with every raise.
            return fail(type(self.failure)(*self.failure.args))
        return self._give(since, until, before, limit)


def make_parts(
    store: PingStore,
    clock: Clock,
    directory: FilePath[str],
    in_thread: Callable[..., Any] = execute,
    bus: IEventBus | None = None,
) -> SinkParts:
    return sink_parts(
        store=store.store,
        bus=bus or RecordingBus(),
        notifiers={},
        clock=clock,
        public_directory=directory,
        in_thread=in_thread,
    )


def read_list(path: FilePath[str]) -> etree._Element:
    """The root element of a published change list; checks that its twin has the same content."""
    content = path.getContent()
    assert gzip.decompress(path.siblingExtension(".gz").getContent()) == content
    return etree.fromstring(content)


def ages(path: FilePath[str]) -> list[str]:
    """The ``when`` of each record in a published change list."""
    return [str(weblog.get("when")) for weblog in read_list(path)]


def fill_disk(case: SynchronousTestCase) -> Any:
    """Have no file be written; what is returned has a method ``restore``."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    return case.patch(os, "fsync", full)
