"""Logs on SQLite and PostgreSQL: entries are numbered in the order of commits, without gaps."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import chain
from threading import Event
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, bindparam, select, text
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.simplefeed import log, pruning, schema
from rsscloud_broker.simplefeed.entries import Category, Entry, EntryContent, EntryLink, Person
from tests.postgresql import TIMEOUT
from tests.simplefeed.logs import NOON, in_file, on_postgresql, some

_ROWS = (
    select(schema.entries.c.first, schema.entries.c.last)
    .join(schema.log, schema.log.c.id == schema.entries.c.log_id)
    .where(schema.log.c.name == bindparam("name"))
    .order_by(schema.entries.c.last)
)

P = ParamSpec("P")
T = TypeVar("T")

EVENTS = log.Description("events", "Everything", per_document=3)


class LogTests(SynchronousTestCase):
    """A log on SQLite."""

    def new_engine(self) -> AbstractContextManager[Engine]:
        return in_file(self.mktemp())

    def setUp(self) -> None:
        self.engine = self.enterContext(self.new_engine())
        with self.engine.begin() as conn:
            self.log = log.open_log(conn, EVENTS, NOON)

    def call(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **more: P.kwargs
    ) -> T:
        """Call a function in a transaction of its own."""
        with self.engine.begin() as conn:
            return function(conn, *args, **more)

    def append(self, *entries: Entry, name: str = "events") -> list[int]:
        return self.call(log.append, name, entries)

    def document(self, number: int | None = None) -> log.LogDocument:
        found = self.call(log.read_document, "events", number)
        assert found is not None
        return found

    def titles(self, number: int | None = None) -> list[str]:
        """The titles of the entries of a document, the newest first."""
        return [each.title for each in self.document(number).entries]

    def test_new_log_is_empty(self) -> None:
        document = self.document()
        self.assertEqual((document.number, document.entries, document.archived), (1, [], False))
        self.assertEqual(document.updated, NOON)
        self.assertRegex(document.log.feed_id, r"^urn:uuid:[0-9a-f-]{36}$")

    def test_every_part_of_an_entry_is_kept(self) -> None:
        entry = Entry(
            "A title",
            NOON + 0.123456,
            author=Person("jsmith", "http://a.example/", "j@a.example"),
            links=(EntryLink("http://a.example/1", "related", "text/html", "One"),),
            content=EntryContent("image/png", data=b"\x89PNG"),
            categories=(Category("a", "http://a.example/scheme", "A"),),
            summary="In short",
        )
        self.append(entry)
        self.assertEqual(self.document().entries, [entry])

    def test_a_document_is_archived_when_the_next_begins(self) -> None:
        self.assertEqual(self.append(*some(3)), [1, 2, 3])
        full = self.document()
        self.assertEqual((full.number, full.archived), (1, False))
        self.assertEqual(self.append(*some(4, 4)), [4, 5, 6, 7])
        first, second, current = map(self.document, (1, 2, None))
        titles = [*map(self.titles, (1, 2, None))]
        self.assertEqual(titles, [["3", "2", "1"], ["6", "5", "4"], ["7"]])
        self.assertEqual([first.archived, second.archived, current.archived], [True, True, False])
        self.assertEqual((first.updated, second.updated), (NOON + 3, NOON + 6))
        self.assertEqual(current.number, 3)

    def test_a_changed_size_changes_no_archived_document(self) -> None:
        self.append(*some(4))
        again = self.call(log.open_log, log.Description("events", "New", "me", 2), NOON + 99)
        self.assertEqual((again.feed_id, again.title), (self.log.feed_id, "New"))
        self.append(*some(3, 5))
        titles = [*map(self.titles, (1, 2, 3))]
        self.assertEqual(titles, [["3", "2", "1"], ["5", "4"], ["7", "6"]])

    def test_large_entries_make_short_documents(self) -> None:
        large = EntryContent("image/png", data=bytes(log.MAX_DOCUMENT_BYTES))
        self.append(Entry("large", NOON, content=large), Entry("small", NOON))
        self.assertEqual((self.titles(1), self.titles()), (["large"], ["small"]))

    def test_times_never_go_back(self) -> None:
        """But the first entry may be older than the log."""
        self.append(Entry("a", NOON - 3600), Entry("b", NOON - 7200))
        self.append(Entry("c", NOON - 8000), Entry("d", NOON + 6))
        entries = (*self.document(1).entries, *self.document(2).entries)
        self.assertEqual([each.updated - NOON for each in entries], [-3600, -3600, -3600, 6])

    def test_what_fails_leaves_no_gap(self) -> None:
        self.append(*some(1))
        with self.assertRaises(ZeroDivisionError), self.engine.begin() as conn:
            log.append(conn, "events", some(5))
            raise ZeroDivisionError
        self.assertEqual(self.append(*some(1, 2)), [2])

    def test_what_there_is_not(self) -> None:
        self.assertEqual(self.append(), [])
        self.assertRaises(log.UnknownLog, self.append, *some(1), name="no-such-log")
        self.append(*some(4))
        for name, number in (("events", 0), ("events", 3), ("no-such-log", None)):
            self.assertIsNone(self.call(log.read_document, name, number))

    def test_a_cursor_reads_on(self) -> None:
        self.append(*some(5))
        pages = [self.call(log.entries_after, "events", after, 2) for after in (0, 2, 4, 5)]
        numbers = [[number for number, _ in page or ()] for page in pages]
        self.assertEqual(numbers, [[1, 2], [3, 4], [5], []])

    def test_pruned_documents(self) -> None:
        self.append(*some(8))
        with self.engine.begin() as conn:
            for through, count in ((1, 3), (2, 3), (2, 0), (9, 0)):
                pruned = pruning.prune(conn, "events", through)
                self.assertEqual(pruned, pruning.Pruned(count, more=False))
            self.assertIsNone(log.entries_after(conn, "events", 5, 2))
            page = log.entries_after(conn, "events", 6, 2) or []
        self.assertEqual([number for number, _ in page], [7, 8])
        self.assertEqual([self.document(n).gone for n in (1, 2, 3)], [True, True, False])
        self.assertEqual(self.append(*some(1, 9)), [9])

    def test_old_documents_are_found_by_time(self) -> None:
        self.append(*some(8))
        ends = [NOON + at for at in (3, 3.1, 6.1, 99)]
        found = [self.call(pruning.archived_before, "events", end) for end in ends]
        self.assertEqual(found, [0, 1, 2, 2])

    def test_logs_are_independent(self) -> None:
        with self.engine.begin() as conn:
            other = log.open_log(conn, log.Description("a", "Other"), NOON)
            self.assertEqual([each.name for each in log.logs(conn)], ["a", "events"])
            self.assertEqual([each.name for each in log.logs(conn, "a", 1)], ["events"])
        self.assertNotEqual(other.feed_id, self.log.feed_id)
        self.append(*some(2))
        self.assertEqual(self.append(*some(1), name="a"), [1])
        with self.engine.begin() as conn:
            self.assertTrue(log.remove_log(conn, "events"))
            self.assertFalse(log.remove_log(conn, "events"))
            self.assertIsNone(log.find_log(conn, "events"))
            counted = [conn.execute(text(f"SELECT count(*) FROM {t}")).scalar() for t in ALL]
        self.assertEqual(counted, [1, 1, 0])

    def test_several_writers(self) -> None:
        """Numbers ascend in the order in which the transactions end, without gaps or repetition."""

        def write(writer: int) -> list[int]:
            return [self.append(Entry(str(writer), NOON))[0] for _ in range(25)]

        with ThreadPoolExecutor(4) as threads:
            written = list(threads.map(write, range(4)))
        self.assertEqual(sorted(chain(*written)), list(range(1, 101)))
        for numbers in written:
            self.assertEqual(numbers, sorted(numbers))

    def test_several_make_one_log(self) -> None:
        def make(_: int) -> str:
            return self.call(log.open_log, log.Description("new", "New"), NOON).feed_id

        with ThreadPoolExecutor(4) as threads:
            self.assertEqual(len(set(threads.map(make, range(8)))), 1)

    def test_rows_have_several_entries(self) -> None:
        self.append(*some(2 * log.PER_ROW + 5))
        with self.engine.begin() as conn:
            log.open_log(conn, log.Description("long", "Long", per_document=1000), NOON)
            log.append(conn, "long", some(2 * log.PER_ROW + 5))
            log.append(conn, "long", some(3, 2 * log.PER_ROW + 6))
            rows = [tuple(row) for row in conn.execute(_ROWS, {"name": "long"})]
            page = log.entries_after(conn, "long", log.PER_ROW - 2, 4) or []
            short = conn.execute(_ROWS, {"name": "events"}).all()
        self.assertEqual(rows, [(1, 100), (101, 200), (201, 205), (206, 208)])
        self.assertEqual(page[0][0], 99)
        self.assertEqual([each.title for _, each in page], ["99", "100", "101", "102"])
        # Each document has rows of its own.
        self.assertEqual(len(short), (2 * log.PER_ROW + 5 + 2) // 3)

    def test_how_far_the_source_was_read(self) -> None:
        with self.engine.begin() as conn:
            found = log.lock(conn, "events")
            assert found is not None
            self.assertEqual(found.source, 0)
            log.append(conn, "events", some(2), source=7)
        self.append(*some(1, 3))
        self.assertEqual(self.document().log.source, 7)
        self.call(log.append, "events", [], source=9)
        self.assertEqual((self.document().log.source, self.document().log.count), (9, 3))
        self.assertIsNone(self.call(log.lock, "others"))

    def test_logs_of_a_prefix(self) -> None:
        with self.engine.begin() as conn:
            for name, at in (("of_%a", 30.0), ("of_%b", 10.0), ("of_%c", 20.0), ("ofxxd", 5.0)):
                log.open_log(conn, log.Description(name, "T"), NOON + at)
            self.assertEqual(log.count_logs(conn, "of_%"), 3)
            stalest = [each.name for each in log.stalest_logs(conn, "of_%", 2)]
            self.assertEqual(stalest, ["of_%b", "of_%c"])
            self.assertEqual(log.stalest_logs(conn, "none", 1), [])
            self.assertEqual(log.known_logs(conn, ["of_%a", "of_%z"]), {"of_%a"})
            self.assertEqual(log.known_logs(conn, []), set())

    def test_many_entries_are_pruned_in_portions(self) -> None:
        """They are in rows of three, and of one."""
        self.patch(pruning, "AT_ONCE", 2)
        self.append(*some(6))
        for number in range(7, 11):
            self.append(*some(1, number))
        found: list[pruning.Pruned] = []
        with self.engine.begin() as conn:
            while not found or found[-1].more:
                found.append(pruning.prune(conn, "events", 3))
                self.assertIsNone(log.entries_after(conn, "events", 0, 9))
                of_first = log.read_document(conn, "events", 3)
                assert of_first is not None
                self.assertEqual((of_first.gone, of_first.entries), (True, []))
        self.assertEqual([each.entries for each in found], [6, 2, 1])
        self.assertEqual(self.titles(), ["10"])

    def test_documents_up_to_a_number(self) -> None:
        with self.engine.begin() as conn:
            self.assertEqual(log.oldest_number(conn, "events"), 0)
            log.append(conn, "events", some(8))
            found = [pruning.archived_through(conn, "events", each) for each in (2, 3, 5, 6, 99)]
            self.assertEqual(found, [0, 1, 1, 2, 2])
            pruning.prune(conn, "events", 1)
            self.assertEqual(log.oldest_number(conn, "events"), 4)


ALL = [table.name for table in (schema.log, schema.entries, schema.document)]


class PostgreSQLLogTests(LogTests):
    """A log on PostgreSQL."""

    def new_engine(self) -> AbstractContextManager[Engine]:
        return on_postgresql()

    def test_log_that_another_transaction_has_locked(self) -> None:
        with self.engine.begin() as first, self.engine.connect() as second:
            self.assertIsNotNone(log.lock(first, "events"))
            with second.begin():
                self.assertIsNone(log.lock(second, "events"))

    def test_who_commits_late_is_not_missed(self) -> None:
        """A reader never sees an entry and later one with a smaller number."""
        appended, seen = Event(), Event()

        def slow() -> list[int]:
            with self.engine.begin() as conn:
                numbers = log.append(conn, "events", some(1))
                appended.set()
                self.assertTrue(seen.wait(TIMEOUT))
                return numbers

        with ThreadPoolExecutor(2) as threads:
            first = threads.submit(slow)
            self.assertTrue(appended.wait(TIMEOUT))
            second = threads.submit(self.append, *some(1, 2))
            with self.engine.begin() as conn:
                blocked = text(
                    "SELECT 1 FROM pg_locks WHERE pg_backend_pid() != pid AND NOT granted"
                )
                while not conn.execute(blocked).first():
                    self.assertFalse(second.done())
                self.assertEqual(log.entries_after(conn, "events", 0, 9), [])
            seen.set()
            self.assertEqual((first.result(TIMEOUT), second.result(TIMEOUT)), ([1], [2]))
