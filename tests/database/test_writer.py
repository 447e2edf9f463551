"""The writer runs queued operations in groups, and only faulty operations fail."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

from sqlalchemy import Connection, Engine, event, func, insert, select
from sqlalchemy.exc import IntegrityError, OperationalError
from twisted.internet import reactor
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorFromThreads, IReactorTime
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from rsscloud_broker.counters import Counters
from rsscloud_broker.database import writer as module
from rsscloud_broker.database.methods import Operation
from rsscloud_broker.database.writer import GROUP_LIMIT, Writer
from rsscloud_broker.errors import DiskFull, Unavailable
from rsscloud_broker.storage.schema import topic
from tests.storage.databases import engine_for, file_database, until

#: Seconds until a thread gives up waiting for the test, which then fails.
TIMEOUT = 60


def add_topic(url: str) -> Operation[str]:
    def operation(conn: Connection) -> str:
        conn.execute(insert(topic).values(url=url))
        return url

    return operation


def count_topics(engine: Engine) -> int:
    with engine.begin() as conn:
        return conn.execute(select(func.count()).select_from(topic)).scalar_one()


class WriterTests(TestCase):
    def setUp(self) -> None:
        self.engine = engine_for(self, file_database(self) + "?timeout=0.05")
        self.commits = 0
        self.turns = 0
        event.listen(self.engine, "commit", self.count_commit)
        self.reactor = IReactorFromThreads(reactor)
        self.clock = IReactorTime(reactor)
        self.ended: list[bool] = []
        self.writer = Writer(self, self.engine, lambda: self.ended.append(True))  # type: ignore[arg-type] # quacks

    def count_commit(self, _conn: Connection) -> None:
        self.commits += 1

    def callFromThread(self, function: Callable[..., Any], *args: Any) -> None:
        """Replaces the method of the reactor, to count its turns."""
        self.turns += 1
        self.reactor.callFromThread(function, *args)

    async def run_all(self, *operations: Operation[Any]) -> list[Any]:
        """Queue operations before the writer starts; their results or exceptions."""
        queued: list[Deferred[Any]] = [self.writer.write(one) for one in operations]
        self.writer.start()
        results = await DeferredList(queued, consumeErrors=True)
        return [value if success else value.value for success, value in results]

    async def test_what_waits_is_counted(self) -> None:
        half = GROUP_LIMIT // 2
        for count in (half, GROUP_LIMIT, GROUP_LIMIT + half):  # a full group is handed over
            for _ in range(half):
                self.writer.write(lambda _conn: None)
            self.assertEqual(self.writer.waiting, count)
        self.writer.start()
        await self.writer.stop()
        self.assertEqual(self.writer.waiting, 0)

    async def test_what_is_queued_is_one_transaction_and_one_turn(self) -> None:
        urls = [f"http://feeds.example/{number}" for number in range(20)]
        self.assertEqual(await self.run_all(*map(add_topic, urls)), urls)
        # The turn that added them, one that adds none, one that fires their Deferreds.
        self.assertEqual((self.commits, self.turns), (1, 3))
        await self.writer.stop()

    async def test_what_comes_in_turns_in_a_row_is_one_transaction(self) -> None:
        self.writer.start()
        written = []
        for number in range(1 + 3):
            written.append(self.writer.write(add_topic(f"http://feeds.example/{number}")))
            turn: Deferred[None] = Deferred()
            self.reactor.callFromThread(turn.callback, None)
            await turn
        await DeferredList(written)
        self.assertEqual(self.commits, 1)
        await self.writer.stop()

    async def test_nothing_waits_while_every_turn_brings_more(self) -> None:
        written: list[Deferred[None]] = []
        while not self.writer._queued:  # the thread that takes them has not started
            written.append(self.writer.write(lambda _conn: None))
            self.assertLess(len(written), 3 + 3)
            await deferLater(self.clock, 0)
        self.writer.start()
        await self.writer.stop()
        self.assertTrue(all(one.called for one in written))

    async def test_groups_have_a_limit(self) -> None:
        await self.run_all(*[lambda _conn: None] * (GROUP_LIMIT + 1))
        self.assertEqual(self.commits, 2)
        await self.writer.stop()

    async def test_only_the_culprit_fails(self) -> None:
        def fault(conn: Connection) -> None:
            add_topic("http://feeds.example/half")(conn)
            raise ZeroDivisionError

        a, b, twice = map(
            add_topic, ("http://a.example/", "http://b.example/", "http://a.example/")
        )
        results = await self.run_all(a, fault, twice, b)
        self.assertEqual([results[0], results[3]], ["http://a.example/", "http://b.example/"])
        self.assertIsInstance(results[1], ZeroDivisionError)
        self.assertIsInstance(results[2], IntegrityError)
        self.assertEqual(count_topics(self.engine), 2)
        await self.writer.stop()

    async def test_all_fail_together_if_the_database_does(self) -> None:
        attempts = []

        def fill(conn: Connection) -> None:
            attempts.append(True)
            conn.exec_driver_sql("PRAGMA max_page_count=1")  # the database cannot grow any more
            for number in range(1000):
                add_topic(f"http://feeds.example/{number}/" + "x" * 1000)(conn)

        results = await self.run_all(add_topic("http://a.example/"), fill, fill)
        self.assertEqual([type(one) for one in results], [DiskFull] * 3)
        self.assertIn("database or disk is full", str(results[0]))
        self.assertEqual((attempts, count_topics(self.engine)), ([True], 0))
        await self.writer.stop()

    async def test_bug_of_the_thread_is_not_the_end(self) -> None:
        with mock.patch.object(
            self.writer, "_wait_for_operations", side_effect=ZeroDivisionError
        ) as failing:
            self.writer.start()
            await until(lambda: failing.called)
        self.assertEqual(await self.writer.write(add_topic("a")), "a")
        await self.writer.stop()
        self.assertTrue(self.flushLoggedErrors(ZeroDivisionError))

    async def test_a_thread_that_waits_is_woken(self) -> None:
        """By operations, and by the stop; without files of a database nothing else wakes it."""
        self.writer._files = None
        waits: list[float | None] = []
        wait = self.writer._has_work.wait

        def noted(due: float | None) -> bool:
            waits.append(due)
            return wait(due)

        self.patch(self.writer._has_work, "wait", noted)
        self.writer.start()
        for name in "abc":
            await until(lambda: waits)
            waits.clear()
            await self.writer.write(add_topic(f"http://{name}.example/"))
        await until(lambda: waits)
        await self.writer.stop()

    test_a_thread_that_waits_is_woken.timeout = 20  # type: ignore[attr-defined] # of trial

    async def test_stop_stores_what_is_queued_and_takes_no_more(self) -> None:
        queued = [self.writer.write(add_topic(f"http://{n}.example/")) for n in range(3)]
        stopped = self.writer.stop()
        late = self.writer.write(add_topic("http://late.example/"))
        self.writer.start()
        await stopped
        self.assertIs(self.writer.stop(), stopped)
        self.assertEqual(self.ended, [True])
        self.assertEqual([one.result for one in queued], [f"http://{n}.example/" for n in range(3)])
        await self.assertFailure(late, Unavailable)
        self.assertEqual(count_topics(self.engine), 3)

    async def test_groups_and_their_time_are_measured(self) -> None:
        counters = Counters()
        self.writer = Writer(self, self.engine, lambda: None, counters)  # type: ignore[arg-type] # quacks
        await self.run_all(*map(add_topic, ("http://a.example/", "http://b.example/")))

        def fault(_conn: Connection) -> None:
            raise ZeroDivisionError

        await self.assertFailure(self.writer.write(fault), ZeroDivisionError)
        await self.writer.stop()
        value = counters.registry.get_sample_value
        name = "rsscloud_store_transaction_operations"
        self.assertEqual([value(f"{name}_{which}") for which in ("count", "sum")], [1, 2])
        self.assertEqual(value("rsscloud_store_transaction_duration_seconds_count"), 1)

    async def test_a_transaction_under_way_has_an_age(self) -> None:
        begun, released = threading.Event(), threading.Event()
        self.addCleanup(released.set)

        def hang(_conn: Connection) -> None:
            begun.set()
            released.wait(TIMEOUT)

        self.assertEqual(self.writer.busy_for, 0.0)
        hanging = self.writer.write(hang)
        self.writer.start()
        await until(begun.is_set)
        first = self.writer.busy_for
        self.assertGreater(first, 0.0)
        self.assertGreater(self.writer.busy_for, first)
        released.set()
        await hanging
        await self.writer.stop()
        self.assertEqual(self.writer.busy_for, 0.0)

    async def test_a_look_at_the_files_has_an_age(self) -> None:
        """Until it ends, also by a bug."""
        looking, released = threading.Event(), threading.Event()
        self.addCleanup(released.set)
        files = self.writer._files
        assert files is not None
        look_after = files.look_after

        def hang() -> None:
            look_after()
            looking.set()
            released.wait(TIMEOUT)
            raise ZeroDivisionError

        self.patch(files, "look_after", hang)
        self.writer.start()
        while not looking.is_set():
            await deferLater(self.clock, 0)
        self.assertGreater(self.writer.busy_for, 0.0)
        released.set()
        while self.writer.busy_for > 0.0:
            await deferLater(self.clock, 0)
        await self.writer.stop()
        self.assertTrue(self.flushLoggedErrors(ZeroDivisionError))

    async def test_all_that_wait_fail_with_a_database_that_hangs(self) -> None:
        self.patch(module, "HANGS_AFTER", 0.0)
        tried = []

        def hangs(conn: Connection) -> None:
            tried.append(1)
            raise OperationalError("INSERT", None, OSError("no answer"))

        asked: list[Deferred[None]] = [self.writer.write(hangs) for _ in range(3 * GROUP_LIMIT)]
        self.writer.start()
        for one in asked:
            await self.assertFailure(one, Unavailable)
        self.assertEqual(tried, [1])
        self.assertEqual(
            await self.writer.write(add_topic("http://a.example/")), "http://a.example/"
        )
        await self.writer.stop()
