"""Logs do the same as a simple model in any order of calls and crashes, on both databases."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import Engine
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.simplefeed import log, pruning
from rsscloud_broker.simplefeed.documents import parse
from rsscloud_broker.simplefeed.entries import Entry
from rsscloud_broker.simplefeed.feeds import Archive, ArchivedFile, DocumentGone, Feeds
from rsscloud_broker.testing import Clock
from tests import examples
from tests.machines import run_machine
from tests.postgresql import borrowed_database
from tests.simplefeed.logs import NOON, URLS, in_memory, on_postgresql
from tests.simplefeed.test_feeds import Database


class Crash(Exception):
    """The process ends at this moment."""


def result(coroutine: Any) -> Any:
    """The result of a coroutine that waits for nothing."""
    found: list[Any] = []
    Deferred.fromCoroutine(coroutine).addBoth(found.append)
    if isinstance(found[0], Failure):
        found[0].raiseException()
    return found[0]


class LogMachine(RuleBasedStateMachine):
    """The model: documents as lists of titles, which are archived when the next begins."""

    def new_engine(self) -> AbstractContextManager[Engine]:
        """An engine for a new database with the tables of logs."""
        return in_memory()

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.engine = self.stack.enter_context(self.new_engine())
        directory = self.stack.enter_context(TemporaryDirectory())
        self.archive = Archive(FilePath(directory))
        self.crash_in: int | None = None
        self.size = 2
        self.documents: list[list[str]] = [[]]
        self.bodies: dict[int, bytes] = {}
        self.gone = 0
        self.count = 0
        self.latest = NOON
        self.describe()
        self.restart()

    def teardown(self) -> None:
        self.stack.close()

    def describe(self) -> None:
        with self.engine.begin() as conn:
            described = log.Description("log", "Log", per_document=self.size)
            log.open_log(conn, described, NOON)

    def restart(self) -> None:
        database: Any = Database(self.engine)
        self.feeds = Feeds(database, self.archive, self.in_thread, Clock(), lambda name: URLS)
        self.crash_in = None

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                raise Crash
        return function(*arguments)

    @rule(size=st.integers(1, 4))
    def change_size(self, size: int) -> None:
        self.size = size
        self.describe()

    @rule(times=st.lists(st.integers(-5, 5), max_size=6), commits=st.booleans())
    def append(self, times: list[int], commits: bool) -> None:
        numbers = range(self.count + 1, self.count + 1 + len(times))
        entries = [
            Entry(str(number), self.latest + by) for number, by in zip(numbers, times, strict=True)
        ]
        try:
            with self.engine.begin() as conn:
                assert log.append(conn, "log", entries) == list(numbers)
                if not commits:
                    raise Crash
        except Crash:
            return
        self.feeds.changed("log")
        if entries:  # the first ones may be older than the log
            before = [self.latest] if self.count else []
            self.latest = max([*before, *(each.updated for each in entries)])
        self.count += len(times)
        for number in numbers:
            if len(self.documents[-1]) >= self.size:
                self.documents.append([])
            self.documents[-1].append(str(number))

    @precondition(lambda self: len(self.documents) > 3)
    @rule(steps=st.none() | st.integers(0, 1))
    def remove_oldest(self, steps: int | None) -> None:
        self.gone = max(self.gone, 1)
        with self.engine.begin() as conn:
            pruning.prune(conn, "log", 1)
        self.crash_in = steps
        try:
            result(self.in_thread(self.archive.remove, self.feed_id(), 1))
        except Crash:
            self.restart()
        self.crash_in = None

    def feed_id(self) -> str:
        with self.engine.begin() as conn:
            feed = log.find_log(conn, "log")
        assert feed is not None
        return feed.feed_id

    @rule(data=st.data())
    def lose_a_file(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, len(self.documents)))
        file = self.archive.file(self.feed_id(), number)
        if file.exists():
            file.remove()

    @invariant()
    def recent_document_is_the_last(self) -> None:
        recent = result(self.feeds.recent("log"))
        assert titles(recent.body) == self.documents[-1]
        assert recent.newest == self.count
        assert recent.updated == self.latest

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, len(self.documents) + 1))
        try:
            found = result(self.feeds.document("log", number))
        except DocumentGone:
            assert number <= self.gone
            return
        if number > len(self.documents):
            assert found is None
            return
        is_archived = number < len(self.documents)
        assert isinstance(found, ArchivedFile) == is_archived
        body = found.file.getContent() if isinstance(found, ArchivedFile) else found.body
        assert titles(body) == self.documents[number - 1]
        assert (b"next-archive" in body) == is_archived
        assert (b"prev-archive" in body) == (number > 1)
        if is_archived:
            assert self.bodies.setdefault(number, body) == body, "an archived one changed"

    @rule(after=st.integers(0, 40), limit=st.integers(1, 5))
    def read_by_cursor(self, after: int, limit: int) -> None:
        with self.engine.begin() as conn:
            found = log.entries_after(conn, "log", after, limit)
        expected = list(range(after + 1, min(self.count, after + limit) + 1))
        if found is None:
            assert self.gone or expected
        else:
            assert [number for number, _ in found] == expected
            assert [entry.title for _, entry in found] == [str(n) for n in expected]


class OnPostgreSQL(LogMachine):
    """The same on PostgreSQL."""

    def new_engine(self) -> AbstractContextManager[Engine]:
        return on_postgresql()


def titles(body: bytes) -> list[str]:
    """The titles of the entries of a document, oldest first; their times never go back."""
    entries, order = parse(body, "http://a.example/", {}).entries(True)
    assert not order.mixed and order.newest_first
    assert not order.repeated
    return [each.title for each in entries]


class LogMachineTests(SynchronousTestCase):
    def test_on_sqlite(self) -> None:
        some = settings(max_examples=examples(25), stateful_step_count=30, deadline=None)
        run_machine(LogMachine, some)

    def test_on_postgresql(self) -> None:
        slow = [HealthCheck.too_slow]
        few = settings(max_examples=examples(4), deadline=None, suppress_health_check=slow)
        with borrowed_database():  # skips this test if there is no PostgreSQL
            run_machine(OnPostgreSQL, settings(few, stateful_step_count=30))
