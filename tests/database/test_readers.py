"""The threads that read run batched operations together."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError
from twisted.internet import reactor
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from rsscloud_broker.database import readers as module
from rsscloud_broker.database.engine import open_engine
from rsscloud_broker.database.methods import Batched
from rsscloud_broker.database.readers import BATCH_LIMIT, Readers
from rsscloud_broker.errors import StoreUnavailable
from tests.storage.databases import file_database


class ReadersTests(TestCase):
    def setUp(self) -> None:
        self.engine = open_engine(file_database(self) + "?timeout=0.05")
        self.readers = Readers(IReactorFromThreads(reactor), self.engine)
        self.readers.start()
        self.addCleanup(self.engine.dispose)
        self.addCleanup(deferToThread, self.readers.stop)
        self.batches: list[int] = []
        self.gate = Event()
        self.gate.set()

    def doubled(self, conn: Connection, numbers: Sequence[Any]) -> list[int]:
        """Wait until the gate is open, and double numbers in the database."""
        self.gate.wait(30)
        self.batches.append(len(numbers))
        return [conn.execute(text("SELECT 2 * :n"), {"n": n}).scalar_one() for n in numbers]

    def read(self, number: Any) -> Deferred[int]:
        return self.readers.read(Batched(self.doubled, number))

    async def all_of(self, *asked: Deferred[Any]) -> list[Any]:
        """The results of Deferreds; the class of the error for those that failed."""
        results = await DeferredList(asked, consumeErrors=True)
        return [value if success else type(value.value) for success, value in results]

    async def test_one_does_not_wait_for_others(self) -> None:
        self.assertEqual(await self.read(1), 2)
        self.assertEqual(await self.readers.read(lambda conn: self.doubled(conn, [2])), [4])
        self.assertEqual(self.batches, [1, 1])

    async def test_operations_that_arrive_during_a_batch_run_together(self) -> None:
        self.gate.clear()
        asked = [self.read(number) for number in range(BATCH_LIMIT + 10)]
        self.gate.set()
        self.assertEqual(await self.all_of(*asked), [2 * n for n in range(BATCH_LIMIT + 10)])
        self.assertEqual(self.batches, [1, BATCH_LIMIT, 9])
        self.assertEqual(await self.read(1), 2)

    async def test_other_reads_do_not_wait_for_a_batch(self) -> None:
        self.gate.clear()
        asked = [self.read(number) for number in range(2)]
        self.assertEqual(await self.readers.read(lambda conn: 7), 7)
        self.assertEqual(await self.readers.read(Batched(lambda conn, numbers: [8], 1)), 8)
        self.gate.set()
        await self.all_of(*asked)

    async def test_only_the_culprit_fails(self) -> None:
        self.gate.clear()
        asked = [self.read(number) for number in (1, 2, "\ud800", 3)]
        self.gate.set()
        self.assertEqual(await self.all_of(*asked), [2, 4, UnicodeEncodeError, 6])

    async def test_all_fail_together_if_the_database_does(self) -> None:
        attempts = []

        def broken(conn: Connection, numbers: Sequence[int]) -> list[int]:
            self.gate.wait(30)
            attempts.append(len(numbers))
            raise OperationalError("SELECT", None, OSError("no disk"))

        self.gate.clear()
        asked = [self.readers.read(Batched(broken, number)) for number in range(4)]
        self.gate.set()
        self.assertEqual(await self.all_of(*asked), [StoreUnavailable] * 4)
        self.assertEqual(attempts, [1, 3])

    async def test_reads_that_wait_for_a_database_that_hangs_fail_with_it(self) -> None:
        """Otherwise each would wait as long as the first ones."""
        self.patch(module, "HANGS_AFTER", 0.0)
        attempts = []

        def hangs(conn: Connection) -> None:
            attempts.append(1)
            self.gate.wait(30)
            raise OperationalError("SELECT", None, OSError("no answer"))

        self.gate.clear()
        asked: list[Deferred[Any]] = [self.readers.read(hangs) for _ in range(3 * 4)]
        asked.append(self.read(1))
        self.gate.set()
        self.assertEqual(await self.all_of(*asked), [StoreUnavailable] * len(asked))
        self.assertLessEqual(len(attempts), 4)
        self.assertEqual(self.batches, [])
        self.assertEqual(await self.read(4), 8)

    async def test_without_threads(self) -> None:
        """Later operations run again."""
        pool, self.readers._pool = self.readers._pool, None  # type: ignore[assignment] # it fails
        asked = [self.read(1), self.read(2)]
        for one in asked:
            await self.assertFailure(one, AttributeError)
        self.readers._pool = pool
        self.assertEqual(await self.read(3), 6)

    async def test_nothing_begins_after_the_end(self) -> None:
        self.gate.clear()
        asked = [self.read(number) for number in range(3)]
        self.readers.end()
        self.gate.set()
        self.assertEqual(await self.all_of(*asked), [0, StoreUnavailable, StoreUnavailable])
