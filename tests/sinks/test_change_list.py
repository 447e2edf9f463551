"""Tests that changes.xml and shortChanges.xml are written each minute, from the store."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, execute
from twisted.logger import capturedLogs, formatEvent
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import FilePublished, PingReceived
from rsscloud_broker.model import Ping
from rsscloud_broker.sinks import files
from rsscloud_broker.sinks.change_list import ChangeListOptions, ChangeListSink
from rsscloud_broker.testing import RecordingBus
from rsscloud_broker.testing.clock import About, Clock
from tests.sinks.pings import HOUR, NOON, PingStore, ages, fill_disk, make_parts, read_list


class ChangeListSinkTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock(NOON + 30)
        self.store = PingStore(self)
        self.directory = FilePath(self.mktemp())
        self.changes = self.directory.child("changes.xml")
        self.short_changes = self.directory.child("shortChanges.xml")

    def start(
        self,
        options: ChangeListOptions | None = None,
        in_thread: Callable[..., Any] = execute,
    ) -> ChangeListSink:
        self.bus = RecordingBus()
        parts = make_parts(self.store, self.clock, self.directory, in_thread, self.bus)
        sink = ChangeListSink(options or ChangeListOptions(), parts)
        sink.startService()
        return sink

    def test_made_at_start(self) -> None:
        self.store.add(NOON - 1000 * HOUR, NOON)
        self.successResultOf(self.store.store.prune_pings(NOON - HOUR, 1000))
        sink = self.start()
        self.assertEqual(sink.handles, ())
        event = PingReceived(Ping("A", "https://example.org/", NOON))
        self.assertIsNone(self.successResultOf(sink.handle(event)))
        paths = ("/shortChanges.xml", "/changes.xml")
        told = [FilePublished(path, About(NOON + 30)) for path in paths]
        self.assertEqual(self.bus.events, told)
        root = read_list(self.changes)
        self.assertEqual(root.get("count"), "2")
        self.assertEqual(root.get("updated"), "Tue, 29 Sep 2026 12:00:30 GMT")
        self.assertEqual(ages(self.changes), ["0"])
        self.assertEqual(ages(self.short_changes), ["0"])

    def test_made_at_the_top_of_each_minute(self) -> None:
        self.start()
        self.store.add(NOON + 40)
        self.clock.advance(30)
        self.assertEqual(ages(self.changes), [])
        self.clock.advance(1)
        self.assertEqual(ages(self.changes), ["0"])
        self.assertEqual(read_list(self.changes).get("updated"), "Tue, 29 Sep 2026 12:01:00 GMT")
        self.clock.advance(60)
        self.assertEqual(ages(self.changes), ["1"])

    def test_windows_and_units(self) -> None:
        now = NOON + 30
        self.store.add(now - 3 * HOUR - 1, now - 3 * HOUR + 1, now - 301, now - 299, now - 1)
        self.start()
        self.assertEqual(ages(self.changes), ["0", "4", "5", "179"])
        self.assertEqual(ages(self.short_changes), ["0", "4"])
        self.start(ChangeListOptions(hours=1, unit="seconds"))
        self.assertEqual(ages(self.changes), ["1", "299", "301"])

    def test_most_lines(self) -> None:
        """The newest pings are listed, whatever the size of slices; all pings are counted."""
        now = NOON + 30
        self.store.add(*(now - age for age in range(1, 8)))
        for slices, most in ((2000, 4), (2, 4), (3, 4), (2, 7), (2, 100), (2000, 1)):
            self.patch(files, "SLICE", slices)
            self.start(ChangeListOptions(unit="seconds", max_lines=most)).stopService()
            for changes in (self.changes, self.short_changes):
                newest = [str(age) for age in range(1, 8)][:most]
                self.assertEqual(ages(changes), newest)
                self.assertEqual(read_list(changes).get("count"), "7")
                self.assertEqual(files.records_in(changes), len(newest))

    def test_wrong_options(self) -> None:
        for wrong in ({"hours": 0}, {"hours": 25}, {"unit": "hours"}, {"max_lines": 0}):
            with self.assertRaises(ValueError):
                ChangeListOptions(**wrong)

    def test_a_run_that_takes_long_is_not_joined_by_another(self) -> None:
        waiting: list[Deferred[None]] = []

        async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
            gate: Deferred[None] = Deferred()
            waiting.append(gate)
            await gate
            return function(*args)

        sink = self.start(in_thread=in_thread)
        self.clock.advance(31)
        self.assertEqual(len(waiting), 1)
        stopped = sink.stopService()
        assert stopped is not None
        self.assertNoResult(stopped)
        for gate in waiting:  # it grows while the run goes on
            gate.callback(None)
        self.successResultOf(stopped)
        self.assertEqual(ages(self.changes), [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_the_store_or_the_disk_fails_for_a_minute(self) -> None:
        self.start()
        self.store.add(NOON + 31)
        self.store.failure = Unavailable("the database is locked")
        with capturedLogs() as logs:
            self.clock.advance(31)
        expected = ["change_list: the database is locked; it is tried again in its next turn."]
        self.assertEqual([formatEvent(line) for line in logs], expected)
        self.assertEqual(ages(self.changes), [], "the old file is gone")
        self.store.failure = None
        patch = fill_disk(self)
        self.clock.advance(60)
        self.assertEqual(ages(self.changes), [], "the old file is gone")
        self.assertEqual(len(self.directory.listdir()), 4, "something was left behind")
        patch.restore()
        self.clock.advance(60)
        self.assertEqual(ages(self.changes), ["2"])


class NodesTests(SynchronousTestCase):
    """Several nodes on one database make the same lists, whatever their clocks show."""

    def setUp(self) -> None:
        self.store = PingStore(self)
        self.patch(self.store.store, "shares_work", lambda: True)
        self.store.add(NOON - 10, NOON + 20)
        self.nodes = [self.node(NOON + 30), self.node(NOON + 45)]

    def node(self, at: float) -> tuple[Clock, FilePath[str]]:
        """A node that starts at a time: its clock and its directory."""
        clock, directory = Clock(at), FilePath(self.mktemp())
        ChangeListSink(ChangeListOptions(), make_parts(self.store, clock, directory)).startService()
        return clock, directory

    def made(self, name: str) -> bytes:
        """A list that all nodes have made, and as many times as each file has."""
        found = set[tuple[bytes, bytes, int, int]]()
        for _, directory in self.nodes:
            file = directory.child(name)
            twin = file.siblingExtension(".gz")
            time, of_twin = (os.stat(each.path).st_mtime_ns for each in (file, twin))
            found.add((file.getContent(), twin.getContent(), time, of_twin))
        self.assertEqual(len(found), 1)
        (content, _, time, of_twin), *_ = found
        self.assertEqual(time, of_twin)
        self.assertEqual(time % 60_000_000_000, 0)
        return content

    def test_nodes_that_start_in_the_same_minute(self) -> None:
        """They make the list of the last whole minute."""
        for name in ("changes.xml", "shortChanges.xml"):
            content = self.made(name)
            self.assertIn(b'updated="Tue, 29 Sep 2026 12:00:00 GMT" count="1"', content)
            self.assertEqual(content.count(b"<weblog "), 1)

    def test_a_node_that_is_behind(self) -> None:
        """It counts no ping of the new minute, though the other one has had some of them."""
        (first, _), (second, _) = self.nodes
        first.advance(31)
        self.store.add(NOON + 60, NOON + 61)
        second.advance(17)
        for name in ("changes.xml", "shortChanges.xml"):
            content = self.made(name)
            self.assertIn(b'updated="Tue, 29 Sep 2026 12:01:00 GMT" count="2"', content)
            self.assertEqual(content.count(b"<weblog "), 2)

    def test_a_ping_that_is_committed_late(self) -> None:
        """It is in the list of the next minute, and the nodes agree again."""
        (first, _), (second, _) = self.nodes
        first.advance(31)
        self.store.add(NOON + 59)
        second.advance(16)
        for clock in (first, second):
            clock.advance(60)
        self.assertEqual(self.made("changes.xml").count(b"<weblog "), 3)
