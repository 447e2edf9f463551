"""Tests that files for crawlers are whole or absent, whatever the disk and the store do."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, execute, succeed
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.model import Ping
from rsscloud_broker.sinks import files
from rsscloud_broker.sinks.files import drafted, records_in, write_change_list
from rsscloud_broker.testing.clock import Clock
from rsscloud_broker.util.atomic_files import Draft, publish_file
from tests.sinks.pings import NOON, PingStore, fill_disk, make_parts, read_list


class DraftTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = FilePath(self.mktemp())
        self.target = self.directory.child("list.xml")

    def publish(self, *pieces: bytes) -> None:
        draft = Draft(self.target)
        draft.begin()
        for piece in pieces:
            draft.write(piece)
        draft.publish()

    def test_a_file_and_its_twin(self) -> None:
        self.publish(b"one ", b"two")
        self.assertEqual(self.target.getContent(), b"one two")
        twin = self.target.siblingExtension(".gz").getContent()
        self.assertEqual(gzip.decompress(twin), b"one two")
        self.assertEqual(sorted(self.directory.listdir()), ["list.xml", "list.xml.gz"])

    def test_the_same_content_makes_the_same_bytes(self) -> None:
        self.publish(b"content")
        first = self.target.siblingExtension(".gz").getContent()
        self.publish(b"content")
        self.assertEqual(self.target.siblingExtension(".gz").getContent(), first)
        self.assertEqual(first[4:8], bytes(4), "there is a time in the header")

    def test_the_old_file_stays_until_the_new_one_is_whole(self) -> None:
        Draft(self.target).discard()
        self.assertFalse(self.directory.exists())
        self.publish(b"old")
        for end, content in ((Draft.discard, b"old"), (Draft.publish, b"new")):
            draft = Draft(self.target)
            draft.begin()
            draft.write(b"new")
            self.assertEqual(self.target.getContent(), b"old")
            end(draft)
            self.assertEqual(self.target.getContent(), content)
            self.assertEqual(sorted(self.directory.listdir()), ["list.xml", "list.xml.gz"])

    def test_what_a_crash_left_is_overwritten(self) -> None:
        self.directory.makedirs()
        self.directory.child("list.xml.part").setContent(b"a long beginning of something")
        self.publish(b"new")
        self.assertEqual(self.target.getContent(), b"new")
        self.assertEqual(sorted(self.directory.listdir()), ["list.xml", "list.xml.gz"])

    def test_the_twin_is_replaced_first(self) -> None:
        replaced: list[str] = []
        replace = os.replace

        def record(source: str, destination: str) -> None:
            replaced.append(os.path.basename(destination))
            replace(source, destination)

        self.patch(os, "replace", record)
        self.publish(b"content")
        self.assertEqual(replaced, ["list.xml.gz", "list.xml"])


class PublishTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.store = PingStore(self)
        self.directory = FilePath(self.mktemp())
        self.target = self.directory.descendant(["2026", "list.xml"])

    def publish(self, in_thread: Callable[..., Any] = execute) -> Deferred[int]:
        return Deferred.fromCoroutine(self.published(in_thread))

    async def published(self, in_thread: Callable[..., Any]) -> int:
        parts = make_parts(self.store, Clock(), self.directory, in_thread)
        async with drafted(parts, self.target) as draft:
            count, since = self.store.store.count_pings, NOON - 100_000
            listed = await write_change_list(parts, draft, since, NOON, unit="seconds", count=count)
            await parts.in_thread(draft.publish)
        return listed

    def test_newest_first_and_all_of_the_window(self) -> None:
        self.store.add(NOON - 2, NOON - 1, NOON, NOON - 100_000, NOON - 100_001)
        self.assertEqual(self.successResultOf(self.publish()), 3)
        root = read_list(self.target)
        self.assertEqual([weblog.get("when") for weblog in root], ["1", "2", "100000"])
        self.assertEqual(root.get("count"), "5")
        self.assertEqual(root.get("updated"), "Tue, 29 Sep 2026 12:00:00 GMT")
        self.assertEqual(records_in(self.target), 3)

    def test_several_slices_lose_and_repeat_nothing(self) -> None:
        self.patch(files, "SLICE", 10)
        self.store.add(*(NOON - 1 - n // 2 for n in range(21)))  # two share each second
        self.successResultOf(self.publish())
        urls = [weblog.get("url") for weblog in read_list(self.target)]
        self.assertEqual(len(urls), 21)
        self.assertEqual(set(urls), {ping.url for ping in self.store.all()})

    def test_pings_that_come_meanwhile(self) -> None:
        """However late a ping is stored, a list holds no more pings than it says ever came."""
        self.patch(files, "SLICE", 4)
        give = self.store.store.pings

        def pings(since: float, until: float, before: Ping | None, limit: int) -> Deferred[Any]:
            if self.store.count() < 30:  # received a while ago, and committed only now
                self.store.add(NOON - 3, NOON - 4 - self.store.count())
            return give(since, until, before, limit)

        self.patch(self.store.store, "pings", pings)
        self.store.add(NOON - 1)
        for _ in range(5):
            records = self.successResultOf(self.publish())
            root = read_list(self.target)
            self.assertEqual(len(root), records)
            self.assertLessEqual(records, int(root.get("count", "")))

    def test_a_hundred_thousand_pings_never_come_at_once(self) -> None:
        """However many pings there are, the reactor handles one slice at a time."""
        jobs: list[tuple[Any, ...]] = []

        async def in_thread(function: Callable[..., Any], *args: Any) -> None:
            jobs.append(args)
            # Nothing is written; the test counts how much is handed over at a time.

        left = 100_000

        def pings(since: float, until: float, before: Ping | None, limit: int) -> Deferred[Any]:
            nonlocal left
            given = min(limit, left)
            left -= given
            return succeed([Ping("A Site", "https://example.org/", NOON - 1)] * given)

        self.patch(self.store.store, "pings", pings)
        self.patch(self.store.store, "count_pings", lambda: succeed(100_000))
        self.assertEqual(self.successResultOf(self.publish(in_thread)), 100_000)
        slices = [args[1] for args in jobs if args[1:] and isinstance(args[1], list)]
        self.assertEqual(sum(map(len, slices)), 100_000)
        self.assertLessEqual(max(map(len, slices)), 2000)
        others = [args[0] for args in jobs if args and isinstance(args[0], bytes)]
        self.assertLess(max(map(len, others)), 200)

    def test_a_store_that_fails_leaves_the_old_file(self) -> None:
        self.store.add(NOON - 1)
        self.successResultOf(self.publish())
        old = self.target.getContent()
        self.store.failure = Unavailable("the database is locked")
        self.failureResultOf(self.publish(), Unavailable)
        self.assertEqual(self.target.getContent(), old)
        self.assertEqual(sorted(self.target.parent().listdir()), ["list.xml", "list.xml.gz"])

    def test_a_disk_that_fails_leaves_nothing_behind(self) -> None:
        self.store.add(NOON - 1)
        fill_disk(self)
        self.failureResultOf(self.publish(), OSError)
        self.assertEqual(self.target.parent().listdir(), [])

    def test_a_directory_that_cannot_be_made(self) -> None:
        self.directory.setContent(b"in the way")
        self.failureResultOf(self.publish(), OSError)
        self.assertEqual(self.directory.getContent(), b"in the way")


class PublishFileTests(SynchronousTestCase):
    def test_a_disk_that_fails_leaves_the_old_file(self) -> None:
        target = FilePath(self.mktemp()).descendant([".well-known", "name"])
        publish_file(target, b"content")
        fill_disk(self)
        self.assertRaises(OSError, publish_file, target, b"other")
        self.assertEqual(target.getContent(), b"content")
        self.assertEqual(gzip.decompress(target.siblingExtension(".gz").getContent()), b"content")
        self.assertEqual(sorted(target.parent().listdir()), ["name", "name.gz"])


class RecordsInTests(SynchronousTestCase):
    def test_no_whole_file(self) -> None:
        path = FilePath(self.mktemp())
        self.assertIsNone(records_in(path))
        path.setContent(b"<weblog")  # it is shorter than a closing
        self.assertIsNone(records_in(path))
