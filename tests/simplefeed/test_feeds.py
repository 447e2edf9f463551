"""Feeds serve the documents of logs, write them seldom, and archive and prune them."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine
from twisted.internet.defer import Deferred, succeed
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.simplefeed import feeds, log, pruning
from rsscloud_broker.simplefeed.documents import parse
from rsscloud_broker.simplefeed.entries import EntryLink
from rsscloud_broker.simplefeed.feeds import Archive, ArchivedFile, DocumentGone, Feeds, Written
from rsscloud_broker.testing import Clock
from tests.simplefeed.logs import NOON, URLS, in_memory, some


class Database:
    """Runs operations at once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def write(self, operation: Callable[[Any], Any]) -> Deferred[Any]:
        with self._engine.begin() as conn:
            return succeed(operation(conn))

    read = write


class FeedsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.engine = self.enterContext(in_memory())
        self.archive = Archive(FilePath(self.mktemp()))
        self.clock = Clock()
        self.in_thread: list[str] = []
        self.waits: Deferred[None] = succeed(None)
        self.feed_id = self.open_log("Events")
        self.feeds = Feeds(
            Database(self.engine),  # type: ignore[arg-type] # it has its methods
            self.archive,
            self.call,
            self.clock,
            lambda name: URLS,
            [EntryLink("http://h.example/", "hub")],
        )

    def open_log(self, title: str) -> str:
        """Open the log, and return the id of its feed."""
        with self.engine.begin() as conn:
            described = log.Description("events", title, per_document=3)
            return log.open_log(conn, described, NOON).feed_id

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.in_thread.append(getattr(function, "func", function).__name__)
        await self.waits
        return function(*arguments)

    def append(self, count: int) -> None:
        with self.engine.begin() as conn:
            found = log.find_log(conn, "events")
            assert found is not None
            log.append(conn, "events", some(count, found.count + 1))

    def recent(self) -> Written:
        found = self.successResultOf(Deferred.fromCoroutine(self.feeds.recent("events")))
        assert found is not None
        return found

    def asked(self, number: int, name: str = "events") -> Deferred[Written | ArchivedFile | None]:
        return Deferred.fromCoroutine(self.feeds.document(name, number))

    def filed(self, number: int) -> bytes:
        found = self.successResultOf(self.asked(number))
        assert isinstance(found, ArchivedFile)
        return found.file.getContent()

    def titles(self, body: bytes) -> list[str]:
        entries, _ = parse(body, "http://a.example/", {}).entries(True)
        return [each.title for each in entries]

    def test_recent_document(self) -> None:
        self.append(4)
        recent = self.recent()
        self.assertEqual(self.titles(recent.body), ["4"])
        self.assertEqual((recent.updated, recent.newest), (NOON + 4, 4))
        self.assertIn(b'rel="hub"', recent.body)
        self.assertIn(b'href="http://a.example/recent"', recent.body)

    def test_written_once_per_change(self) -> None:
        self.append(1)
        first = self.recent()
        for _ in range(5):
            self.assertIs(self.recent(), first)
        self.clock.advance(feeds.FRESH + 1)
        self.assertIs(self.recent(), first)
        self.assertEqual(self.in_thread, ["render"])
        self.append(1)
        self.assertIs(self.recent(), first)  # nobody has said so, and the moment is not over
        self.feeds.changed("events")
        second = self.recent()
        self.assertEqual(self.titles(second.body), ["1", "2"])
        self.assertNotEqual(second.etag, first.etag)
        self.append(1)
        self.clock.advance(feeds.FRESH + 1)
        self.assertEqual(self.titles(self.recent().body), ["1", "2", "3"])
        self.assertEqual(self.in_thread, ["render"] * 3)

    def test_log_that_was_made_again(self) -> None:
        self.append(2)
        first = self.recent()
        with self.engine.begin() as conn:
            log.remove_log(conn, "events")
        feed_id = self.open_log("Other events")
        self.append(2)  # as many entries as the first log had
        self.feeds.changed("events")
        second = self.recent()
        self.assertIn(feed_id.encode("ascii"), second.body)
        self.assertNotEqual(second.etag, first.etag)

    def test_many_ask_at_the_same_time(self) -> None:
        self.append(1)
        self.waits = Deferred()
        asked = [Deferred.fromCoroutine(self.feeds.recent("events")) for _ in range(5)]
        self.waits.callback(None)
        self.assertEqual(len({id(self.successResultOf(each)) for each in asked}), 1)
        self.assertEqual(self.in_thread, ["render"])

    def test_archived_documents_are_files(self) -> None:
        self.append(7)
        first = self.filed(1)
        self.assertEqual(self.titles(first), ["1", "2", "3"])
        self.assertIn(b"next-archive", first)
        self.assertEqual(self.filed(1), first)
        self.assertEqual(self.in_thread, ["_make_file"])
        file = self.archive.file(self.feed_id, 1)
        self.assertEqual(gzip.decompress(file.siblingExtension(".gz").getContent()), first)
        self.assertEqual(file.getModificationTime(), NOON + 3)

    def test_current_document_is_no_file(self) -> None:
        self.append(5)
        found = self.successResultOf(self.asked(2))
        assert isinstance(found, Written)
        self.assertEqual(self.titles(found.body), ["4", "5"])
        self.assertNotIn(b"next-archive", found.body)
        self.assertNotIn(b'"via"', found.body)

    def test_lost_files_are_made_again(self) -> None:
        self.append(4)
        first = self.filed(1)
        for lost in ("", ".gz"):
            file = self.archive.file(self.feed_id, 1)
            (file.siblingExtension(lost) if lost else file).remove()
            self.assertEqual(self.filed(1), first)

    def test_file_is_written_by_one_thread(self) -> None:
        self.append(4)
        self.waits = Deferred()
        asked = [self.asked(1), self.asked(1)]
        self.waits.callback(None)
        for each in asked:
            self.assertIsInstance(self.successResultOf(each), ArchivedFile)
        self.assertEqual(self.in_thread, ["_make_file"])

    def test_what_there_is_not(self) -> None:
        self.append(4)
        for name, number in (("events", 0), ("events", 3), ("events", -1), ("other", 1)):
            self.assertIsNone(self.successResultOf(self.asked(number, name)))
        self.assertIsNone(self.successResultOf(self.feeds.recent("x")))

    def test_removed_documents(self) -> None:
        self.append(10)
        self.filed(1)
        self.filed(3)
        with self.engine.begin() as conn:
            self.assertEqual(pruning.prune(conn, "events", 2).entries, 6)
        self.archive.remove(self.feed_id, 2)
        for number in (1, 2):
            self.failureResultOf(self.asked(number), DocumentGone)
        self.assertEqual(self.titles(self.filed(3)), ["7", "8", "9"])
        names = sorted(self.archive.file(self.feed_id, 1).parent().listdir())
        self.assertEqual(names, ["3.atom", "3.atom.gz"])
