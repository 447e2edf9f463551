"""Tests the hourly archives: they hold every ping once, even if the broker stops in between."""

from __future__ import annotations

from twisted.logger import capturedLogs, formatEvent
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import FilePublished, PingsTakenIn
from rsscloud_broker.sinks.archive import ArchiveOptions, ArchiveSink
from rsscloud_broker.testing import RecordingBus
from rsscloud_broker.testing.clock import About, Clock
from rsscloud_broker.wire.change_list import archive_path
from tests.sinks.pings import HOUR, NOON, PingStore, ages, make_parts, read_list


class ArchivePathTests(SynchronousTestCase):
    def test_hours_of_a_day(self) -> None:
        for hour, path in ((-12, "29/01.xml"), (11, "29/24.xml"), (12, "30/01.xml")):
            self.assertEqual("/".join(archive_path(NOON // HOUR + hour)), f"2026/09/{path}")


class ArchiveSinkTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock(NOON + 30)
        self.store = PingStore(self)
        self.directory = FilePath(self.mktemp())
        self.bus = RecordingBus()

    def start(self, options: ArchiveOptions | None = None) -> ArchiveSink:
        parts = make_parts(self.store, self.clock, self.directory, bus=self.bus)
        sink = ArchiveSink(options or ArchiveOptions(), parts)
        sink.startService()
        return sink

    def archive(self, hour_begins: float) -> FilePath[str]:
        return self.directory.descendant(archive_path(int(hour_begins // HOUR)))

    def advance(self, seconds: float) -> None:
        """Let time pass minute by minute, or in longer steps if there are hours of it."""
        step = 60 if seconds < 2 * HOUR else 600
        self.clock.pump([step] * int(seconds // step) + [seconds % step])

    def test_hour_in_which_pings_were_taken_in_is_made_again(self) -> None:
        sink = self.start()
        self.store.add(NOON - 5 * HOUR)
        self.advance(60)
        self.assertFalse(self.archive(NOON - 5 * HOUR).exists(), "nobody looks that far back")
        event = PingsTakenIn(NOON - 5 * HOUR)
        self.assertIsNone(self.successResultOf(sink.handle(event)))
        self.store.failure = Unavailable("the disk is full")
        self.advance(60)
        self.store.failure = None
        self.advance(60)
        self.assertTrue(self.archive(NOON - 5 * HOUR).exists())
        self.flushLoggedErrors()

    def test_made_soon_after_the_hour(self) -> None:
        self.start()
        self.store.add(NOON, NOON + 3599, NOON + 3600)
        self.advance(3570 + 4)
        self.assertFalse(self.archive(NOON).exists())
        self.advance(1)
        root = read_list(self.archive(NOON))
        self.assertEqual(root.get("updated"), "Tue, 29 Sep 2026 13:00:00 GMT")
        self.assertEqual(root.get("count"), "3")
        self.assertEqual(ages(self.archive(NOON)), ["0", "60"])

    def test_every_closed_hour_that_is_missing_is_made_at_start(self) -> None:
        self.store.add(NOON - 30 * HOUR, NOON - HOUR, NOON)
        self.start(ArchiveOptions(unit="seconds"))
        self.assertEqual(ages(self.archive(NOON - 30 * HOUR)), ["3600"])
        self.assertEqual(ages(self.archive(NOON - HOUR)), ["3600"])
        self.assertFalse(self.archive(NOON).exists(), "that hour is not over")

    def test_a_restart_in_the_middle_of_an_hour_loses_and_repeats_nothing(self) -> None:
        first = self.start()
        self.store.add(NOON + 10, NOON + 20)
        self.advance(600)
        first.stopService()
        self.start()
        self.store.add(NOON + 1000)
        self.advance(HOUR)
        urls = [weblog.get("url") for weblog in read_list(self.archive(NOON))]
        self.assertEqual(urls, [ping.url for ping in self.store.all()])

    def test_made_once_only(self) -> None:
        self.store.add(NOON - 1)
        self.start().stopService()
        self.store.limits.clear()
        self.start()
        self.advance(HOUR)
        self.assertEqual(self.store.limits, [], "it was read again")

    def test_each_archive_that_is_made_is_told_of(self) -> None:
        self.store.add(NOON - HOUR - 1, NOON - 1)
        self.start()
        paths = ("/2026/09/29/11.xml", "/2026/09/29/12.xml")
        expected = [FilePublished(path, About(NOON + 30)) for path in paths]
        self.assertEqual(self.bus.events, expected)
        self.advance(60)
        self.assertEqual(len(self.bus.events), 2)

    def test_a_late_commit_makes_it_again(self) -> None:
        self.store.add(NOON - 1)
        self.start()
        self.store.add(NOON - 2)
        self.advance(60)
        self.assertEqual(len(ages(self.archive(NOON - 1))), 2)

    def test_a_torn_file_is_made_again(self) -> None:
        self.store.add(NOON - 1)
        self.start().stopService()
        whole = self.archive(NOON - 1).getContent()
        self.archive(NOON - 1).setContent(whole[:-30])
        self.start()
        self.assertEqual(self.archive(NOON - 1).getContent(), whole)

    def test_an_hour_without_pings_has_no_archive(self) -> None:
        self.start()
        self.advance(2 * HOUR)
        self.assertFalse(self.archive(NOON).exists())

    def test_old_pings_are_pruned_and_stay_archived(self) -> None:
        self.store.add(NOON - 25 * HOUR, NOON - 24 * HOUR - 1, NOON - 24 * HOUR)
        self.start(ArchiveOptions(keep_hours=24))
        self.assertEqual([ping.received_at for ping in self.store.all()], [NOON - 24 * HOUR])
        archived = self.archive(NOON - 25 * HOUR).getContent()
        self.assertEqual(len(ages(self.archive(NOON - 25 * HOUR))), 2)
        self.advance(HOUR)
        self.assertEqual(self.store.all(), [])
        self.assertEqual(self.archive(NOON - 25 * HOUR).getContent(), archived)
        self.assertEqual(len(ages(self.archive(NOON - 24 * HOUR))), 1)

    def test_an_archive_is_never_replaced_by_a_smaller_one(self) -> None:
        self.store.add(NOON - 1, NOON - 2)
        self.start().stopService()
        archived = self.archive(NOON - 1).getContent()
        self.store = PingStore(self)
        self.store.add(NOON - 3)
        self.start()
        self.assertEqual(self.archive(NOON - 1).getContent(), archived)

    def test_what_is_not_archived_is_not_pruned(self) -> None:
        self.store.add(NOON - 200 * HOUR, NOON - 190 * HOUR)
        in_the_way = self.archive(NOON - 190 * HOUR)
        in_the_way.makedirs()
        self.start()
        self.assertEqual(len(self.store.all()), 2)
        in_the_way.remove()
        self.advance(60)
        self.assertEqual(len(ages(in_the_way)), 1)
        self.assertEqual(self.store.all(), [])

    def test_a_late_ping_of_an_old_hour_is_archived_before_it_is_pruned(self) -> None:
        self.start(ArchiveOptions(keep_hours=24))
        self.store.add(NOON - 20 * HOUR)  # committed late, or the clock was wrong
        self.advance(4 * HOUR)
        self.assertEqual(len(self.store.all()), 1)
        self.advance(HOUR)
        self.assertEqual(self.store.all(), [])
        self.assertEqual(len(ages(self.archive(NOON - 20 * HOUR))), 1)

    def test_old_pings_are_pruned_though_the_wall_clock_was_wrong_for_a_while(self) -> None:
        self.start(ArchiveOptions(keep_hours=24))
        self.clock.set_wall(365 * 24 * HOUR)
        self.advance(120)
        self.clock.set_wall(-365 * 24 * HOUR)
        self.store.add(NOON - 20 * HOUR)
        self.advance(6 * HOUR)
        self.assertEqual(self.store.all(), [])
        self.assertEqual(len(ages(self.archive(NOON - 20 * HOUR))), 1)

    def test_pings_stay_though_the_wall_clock_is_ahead_for_a_moment(self) -> None:
        self.start(ArchiveOptions(keep_hours=24))
        self.store.add(NOON + 10)
        self.advance(60)
        for by in (365 * 24 * HOUR, -365 * 24 * HOUR):
            self.clock.set_wall(by)
            self.advance(10)
        self.assertEqual(len(self.store.all()), 1)
        self.store.add(NOON + 120)
        self.advance(HOUR)
        self.assertEqual(len(ages(self.archive(NOON))), 2)

    def test_an_hour_that_could_not_be_archived_is_tried_until_it_can(self) -> None:
        self.store.add(NOON - 1)
        self.store.failure = Unavailable("the database is locked")
        with capturedLogs() as logs:
            self.start()
            self.advance(5 * HOUR)
        expected = ["archive: the database is locked; it is tried again in its next turn."]
        self.assertEqual([formatEvent(line) for line in logs], expected)
        self.assertEqual(self.bus.events, [])
        self.store.failure = None
        self.advance(60)
        self.assertEqual(len(ages(self.archive(NOON - 1))), 1)

    def test_wrong_options(self) -> None:
        with self.assertRaises(ValueError):
            ArchiveOptions(keep_hours=23)
