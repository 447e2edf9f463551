"""Nodes copy the files for crawlers that another one has made, and serve the same bytes."""

from __future__ import annotations

import gzip
import os
from errno import EACCES, ENOSPC
from typing import Any, cast

from attrs import evolve
from sqlalchemy import update
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.database.columns import to_micros
from rsscloud_broker.errors import ClaimLost, Unavailable
from rsscloud_broker.events import FileCopied, FilePublished, WorkHinted
from rsscloud_broker.interfaces import SinkParts
from rsscloud_broker.model.shared import SharedDocument
from rsscloud_broker.sinks import files
from rsscloud_broker.sinks import mirror as mirror_module
from rsscloud_broker.sinks.archive import ArchiveOptions, ArchiveSink
from rsscloud_broker.sinks.files import drafted, publish_document, publish_draft, records_in
from rsscloud_broker.sinks.mirror import MISSING, Mirror
from rsscloud_broker.storage.operating_schema import document
from rsscloud_broker.testing import RecordingBus, make_sink_tests, memory_store, sink_parts
from rsscloud_broker.testing.clock import Clock
from rsscloud_broker.util.atomic_files import Copy, Draft, publish_file
from tests.sinks.pings import NOON, PingStore, ages, make_parts

LIST, ARCHIVE = "/changes.xml", "/2026/09/29/12.xml"
CLOSING = b"<weblogUpdates>\n</weblogUpdates>\n<!-- records: %d -->\n"


class MirrorContract(make_sink_tests(lambda case: Mirror(sink_parts()))):  # type: ignore[misc] # made at run time
    """The mirror is a sink."""


class MirrorTests(SynchronousTestCase):
    """One node makes files, and another one copies them."""

    def setUp(self) -> None:
        self.clock = Clock(NOON + 30)
        self.store = PingStore(self)
        self.patch(self.store.store, "shares_work", lambda: True)
        self.maker = self.parts()
        self.other = self.parts()
        self.bus = cast(RecordingBus, self.other.bus)
        self.lines = self.enterContext(capturedLogs())

    def parts(self) -> SinkParts:
        return make_parts(self.store, self.clock, FilePath(self.mktemp()))

    def start(self, **patched: Any) -> Mirror:
        for name, method in patched.items():
            self.patch(self.store.store, name, method)
        mirror = Mirror(self.other)
        mirror.startService()
        self.addCleanup(mirror.stopService)
        return mirror

    def wait(self, work: Any) -> Any:
        return self.successResultOf(work)

    def stored(self, name: str) -> list[SharedDocument]:
        """The whole documents of a name in the database."""
        return self.wait(self.store.store.shared_documents([name]))  # type: ignore[no-any-return]

    def file(self, parts: SinkParts, name: str) -> FilePath[str]:
        file: FilePath[str] = parts.public_directory.descendant(name[1:].split("/"))
        return file

    def publish(self, content: bytes, name: str = LIST) -> None:
        self.wait(publish_document(self.maker, self.file(self.maker, name), content, job=""))

    def same(self, name: str) -> None:
        """Check that both nodes have the same files, of the same time."""
        for suffix in ("", ".gz"):
            one, other = (self.file(parts, name + suffix) for parts in (self.maker, self.other))
            self.assertEqual(one.getContent(), other.getContent())
            times = [os.stat(each.path).st_mtime_ns for each in (one, other)]
            self.assertEqual(times[0], times[1])

    def test_copied_at_the_start(self) -> None:
        names = [LIST, ARCHIVE, "/resourcesync/changelist.xml", "/.well-known/resourcesync"]
        for name in names:
            self.publish(name.encode(), name)
        self.start()
        for name in names:
            self.same(name)
        copied = [one.path for one in self.bus.events if isinstance(one, FileCopied)]
        self.assertEqual(sorted(copied), sorted(names))

    def test_copied_at_a_hint(self) -> None:
        mirror = self.start()
        for content in (b"first", b"second"):
            self.publish(content)
            self.wait(mirror.handle(WorkHinted("document")))
            self.same(LIST)
        self.assertEqual(self.bus.events, [FileCopied(LIST)] * 2)
        self.wait(mirror.handle(WorkHinted("document")))
        self.assertEqual(len(self.bus.events), 2, "it is there already")
        self.publish(b"third")
        self.wait(mirror.handle(WorkHinted("fanout")))
        self.assertEqual(len(self.bus.events), 2, "that was another hint")
        self.clock.advance(30)
        self.same(LIST)  # although the hint was lost

    def test_copied_after_the_clock_was_set_back(self) -> None:
        self.publish(b"<list/>")
        self.stored_at(NOON + 86_400, LIST)
        mirror = self.start()
        self.publish(b"<archive/>", ARCHIVE)
        self.stored_at(NOON + 30, ARCHIVE)
        self.wait(mirror.handle(WorkHinted("document")))
        self.same(ARCHIVE)

    def stored_at(self, at: float, name: str) -> None:
        """Have the database say that a document was stored at a time."""
        stored = update(document).where(document.c.name == name).values(stored_at=to_micros(at))
        database = self.store.store._database
        self.wait(database.write(lambda conn: conn.execute(stored).rowcount))

    def slow(self, method: str) -> tuple[Deferred[None], list[Any]]:
        """Let a method of the store wait for a gate, and record the first argument of each call."""
        gate: Deferred[None] = Deferred()
        real, calls = getattr(self.store.store, method), list[Any]()

        async def waiting(*args: Any) -> Any:
            calls.append(args)
            await gate
            return await real(*args)

        self.patch(self.store.store, method, waiting)
        return gate, calls

    def stop_in_the_middle(self, gate: Deferred[None]) -> None:
        """Stop a mirror that waits for a gate."""
        stopped = self.start().stopService()
        assert stopped is not None
        self.assertNoResult(stopped)
        gate.callback(None)
        self.wait(stopped)

    def test_stop_while_files_are_copied(self) -> None:
        """One of them is under way; the others are copied after the next start."""
        self.publish(b"list")
        self.publish(b"archive", ARCHIVE)
        gate, _ = self.slow("document_part")
        self.stop_in_the_middle(gate)
        self.assertEqual(len(self.bus.events), 1)

    def test_stop_while_archives_are_stored(self) -> None:
        self.put_archives(3)
        gate, stored = self.slow("begin_document")
        self.stop_in_the_middle(gate)
        self.assertEqual(len(stored), 1)

    def put_archives(self, records: int) -> None:
        """Put two archives on the disk of the other node alone."""
        for hour in (11, 12):
            publish_file(self.file(self.other, f"/2026/09/29/{hour}.xml"), CLOSING % records)

    def test_hint_while_files_are_copied(self) -> None:
        gates: list[Deferred[None]] = []
        give = self.store.store.document_part

        async def slow(key: int, number: int) -> Any:
            gates.append(Deferred())
            await gates[-1]
            return await give(key, number)

        self.publish(b"first")
        mirror = self.start(document_part=slow)
        self.publish(b"archive", ARCHIVE)
        self.clock.advance(31)
        self.wait(mirror.handle(WorkHinted("document")))
        while gates:
            gates.pop().callback(None)
        self.same(LIST)
        self.same(ARCHIVE)
        self.assertEqual(self.lines, [], "nothing was left out")

    def test_copied_once_for_all_who_ask_for_it_at_the_same_time(self) -> None:
        """Otherwise anybody could have it copied very often, and keep other files waiting."""
        self.publish(b"content", ARCHIVE)
        gate, calls = self.slow("document_part")
        mirror = Mirror(self.other)
        asking = [Deferred.fromCoroutine(mirror.copy(ARCHIVE)) for _ in range(3)]
        gate.callback(None)
        self.assertEqual([self.wait(one) for one in asking], [True] * 3)
        self.same(ARCHIVE)
        self.assertEqual([number for _, number in calls], [0, 1])
        self.assertEqual(self.bus.events, [FileCopied(ARCHIVE)])

    def test_what_there_is_not(self) -> None:
        mirror = Mirror(self.other)
        self.assertFalse(self.wait(mirror.copy(ARCHIVE)))
        self.publish(b"content", ARCHIVE)
        self.assertFalse(self.wait(mirror.copy(ARCHIVE)), "that is remembered for a moment")
        self.clock.advance(MISSING)
        self.assertTrue(self.wait(mirror.copy(ARCHIVE)))

    def test_name_that_leads_elsewhere(self) -> None:
        """Nobody but the broker stores documents, so this is a matter of course."""
        key = self.wait(self.store.store.begin_document("/../secret", NOON))
        self.wait(self.store.store.finish_document(key, 0, 0))
        self.start()
        self.assertEqual(self.bus.events, [])

    def test_large_document_in_parts(self) -> None:
        self.patch(files, "PART", 1000)
        content = os.urandom(10_000)
        self.publish(content)
        (found,) = self.stored(LIST)
        parts = [
            self.wait(self.store.store.document_part(found.id, number)) for number in range(12)
        ]
        self.assertEqual([part is None for part in parts], [False] * 11 + [True])
        self.assertEqual(gzip.decompress(b"".join(filter(None, parts))), content)
        self.start()
        self.same(LIST)

    def publish_newer_while_it_is_copied(self) -> None:
        """Publish a list, and have it replaced when its third part is read."""
        self.patch(files, "PART", 1000)
        self.publish(os.urandom(5000))
        give = self.store.store.document_part

        def replaced(key: int, number: int) -> Any:
            if number == 2:
                self.patch(self.store.store, "document_part", give)
                self.publish(b"newer")
            return give(key, number)

        self.patch(self.store.store, "document_part", replaced)

    def test_version_that_is_replaced_while_somebody_asks_for_it(self) -> None:
        self.publish_newer_while_it_is_copied()
        self.assertTrue(self.wait(Mirror(self.other).copy(LIST)))
        self.same(LIST)

    def test_version_that_is_replaced_while_it_is_copied(self) -> None:
        self.publish_newer_while_it_is_copied()
        mirror = self.start()
        self.assertFalse(self.file(self.other, LIST).exists())
        self.assertEqual(self.other.public_directory.listdir(), [])
        self.wait(mirror.handle(WorkHinted("document")))
        self.same(LIST)

    def test_store_that_is_not_there(self) -> None:
        mirror = self.start()
        self.publish(b"content")

        def fail(*arguments: object) -> None:
            raise Unavailable("the server is down")

        patch = self.patch(self.store.store, "documents_since", fail)
        self.wait(mirror.handle(WorkHinted("document")))
        patch.restore()
        self.wait(mirror.handle(WorkHinted("document")))
        self.same(LIST)

    # --- troubles

    def test_file_that_cannot_be_written_keeps_no_others_waiting(self) -> None:
        in_the_way = self.other.public_directory
        in_the_way.makedirs()
        in_the_way.child("2026").setContent(b"a file, and no directory")
        self.publish(b"archive", ARCHIVE)
        self.start()
        self.publish(b"list")
        self.clock.pump([30.0] * 3)
        self.same(LIST)
        self.assertEqual(len(self.logged("cannot be copied")), 1, "it is logged once")
        in_the_way.child("2026").remove()
        self.clock.advance(30)
        self.same(ARCHIVE)
        self.assertEqual(len(self.logged("copied again")), 1)

    def test_full_disk(self) -> None:
        """Nothing else is tried before the next turn."""
        attempts: list[object] = []

        def fail(copy: object) -> None:
            attempts.append(copy)
            raise OSError(ENOSPC, "no space")

        patch = self.patch(Copy, "begin", fail)
        self.publish(b"list")
        self.publish(b"archive", ARCHIVE)
        self.start()
        self.assertEqual(len(attempts), 1)
        self.assertEqual(len(self.logged("the disk is full")), 1)
        patch.restore()
        self.clock.advance(30)
        self.same(LIST)
        self.same(ARCHIVE)
        self.assertEqual(len(self.logged("copied again")), 1)

    def test_damaged_document(self) -> None:
        self.damage(ARCHIVE)
        self.publish(b"another", "/2026/09/29/11.xml")
        mirror = self.start()
        self.publish(b"list")
        self.clock.pump([30.0] * 3)
        self.same(LIST)
        self.same("/2026/09/29/11.xml")
        self.assertFalse(self.file(self.other, ARCHIVE).exists())
        asked = Deferred.fromCoroutine(mirror.copy(ARCHIVE))
        self.assertIn("is damaged", str(self.failureResultOf(asked, OSError).value))
        self.assertEqual(len(self.logged("damaged")), 1)
        self.publish(b"whole", ARCHIVE)
        self.wait(mirror.handle(WorkHinted("document")))
        self.same(ARCHIVE)

    def test_bug_with_one_document_keeps_no_others_waiting(self) -> None:
        self.publish(b"archive", ARCHIVE)
        (archive,) = self.stored(ARCHIVE)
        give = self.store.store.document_part

        def fail(key: int, number: int) -> Any:
            if key == archive.id:
                raise ValueError("a bug")
            return give(key, number)

        self.start(document_part=fail)
        self.publish(b"list")
        self.clock.pump([30.0] * 3)
        self.same(LIST)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def damage(self, name: str) -> None:
        """Store a document whose bytes are no gzip."""
        store = self.store.store
        key = self.wait(store.begin_document(name, NOON))
        self.wait(store.put_document_part(key, 0, b"no gzip"))
        self.assertTrue(self.wait(store.finish_document(key, 100, 0)))

    def logged(self, text: str) -> list[str]:
        """The lines of the log with a text."""
        lines = [formatEvent(event) for event in self.lines]
        return [line for line in lines if text in line]

    def test_directory_that_cannot_be_compared_at_the_start(self) -> None:
        failing = [True]

        def unreadable(target: FilePath[str]) -> int | None:
            if failing:
                raise PermissionError(EACCES, "it may not be read")
            return records_in(target)

        self.patch(mirror_module, "records_in", unreadable)
        self.put_archives(3)
        self.start()
        self.assertEqual(self.records(), 0)
        self.assertEqual(len(self.logged("it may not be read")), 1)
        failing.clear()
        self.clock.advance(30)
        self.assertEqual(self.records(), 3)

    def test_archive_that_is_made_while_it_is_stored(self) -> None:
        """The mirror stores what it found on the disk, and the archive sink writes more."""
        file = self.file(self.other, ARCHIVE)
        publish_file(file, CLOSING % 3)
        begin, sealed = self.store.store.begin_document, list[str]()

        def made_meanwhile(name: str, made_at: float) -> Any:
            sealed.append(name)
            if len(sealed) == 1:
                self.wait(self.make(file, CLOSING % 4))
            return begin(name, made_at)

        self.patch(self.store.store, "begin_document", made_meanwhile)
        self.start()
        self.assertEqual(sealed, [ARCHIVE] * 2)
        self.assertEqual(file.getContent(), CLOSING % 4)
        self.assertEqual(self.records(), 4)
        self.assertEqual(len(file.parent().listdir()), 2, "and nothing unfinished is left")

    async def make(self, file: FilePath[str], content: bytes) -> None:
        """Put an archive of four pings in its place."""
        async with drafted(self.other, file) as draft:
            draft.write(content)
            await publish_draft(self.other, draft, file, job="", records=4)

    def test_archives_of_an_earlier_version_are_stored(self) -> None:
        """They were made on each node, and listed perhaps not the same pings."""
        for parts, count in ((self.maker, 2), (self.other, 3)):
            publish_file(self.file(parts, ARCHIVE), CLOSING % count)
        first = Mirror(self.maker)
        first.startService()
        self.assertEqual(self.records(), 2)
        self.start()
        self.assertEqual(self.records(), 3)
        self.wait(first.handle(WorkHinted("document")))
        self.same(ARCHIVE)

    def records(self) -> int:
        """How many pings the archive in the database lists."""
        found = self.stored(ARCHIVE)
        return found[0].records if found else 0

    def test_torn_archive_is_not_stored(self) -> None:
        publish_file(self.file(self.other, ARCHIVE), b"<weblogUpdates>\n<weblog")
        self.start()
        self.assertEqual(self.records(), 0)
        self.publish(b"whole", ARCHIVE)
        self.clock.advance(30)
        self.same(ARCHIVE)

    def test_lost_claim_leaves_the_old_file(self) -> None:
        self.publish(b"old")
        work = publish_document(self.maker, self.file(self.maker, LIST), b"new", job="lost")
        self.failureResultOf(work, ClaimLost)
        self.assertEqual(self.file(self.maker, LIST).getContent(), b"old")
        self.assertEqual(len(self.maker.public_directory.listdir()), 2)

    def test_archive_is_made_again_if_it_lacks_pings(self) -> None:
        """Whether this node has the file or not."""
        self.store.add(NOON - 1)
        maker = ArchiveSink(ArchiveOptions(), self.maker)
        maker.startService()
        maker.stopService()
        other = ArchiveSink(ArchiveOptions(), self.other)
        other.startService()
        self.clock.advance(60)
        self.assertEqual(self.bus.events, [], "it holds all pings")
        self.store.add(NOON - 2)
        self.clock.advance(60)
        self.assertEqual(len(ages(self.file(self.other, ARCHIVE))), 2)
        told = [one.path for one in self.bus.events if isinstance(one, FilePublished)]
        self.assertEqual(told, [ARCHIVE])


class AloneTests(SynchronousTestCase):
    """On SQLite there are no other nodes."""

    def test_nothing_is_stored(self) -> None:
        store = memory_store()
        self.addCleanup(store.stopService)
        parts = evolve(sink_parts(store=store), public_directory=FilePath(self.mktemp()))
        target = parts.public_directory.child("changes.xml")
        draft = Draft(target)
        draft.begin()
        draft.write(b"content")
        self.successResultOf(publish_draft(parts, draft, target, job="a job"))
        self.assertEqual(target.getContent(), b"content")
        self.assertEqual(self.successResultOf(store.documents_since(0.0, "", 10)), [])
        mirror = Mirror(parts)
        mirror.startService()
        self.assertFalse(self.successResultOf(mirror.copy("/changes.xml")))
