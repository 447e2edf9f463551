"""The threads of the store that read.

Batched operations of one kind run one batch after another: operations that arrive while a batch
runs are gathered, and run together afterwards.  If few arrive, none waits.  If one caller asks
for a thousand at once, they make a few batches, and the next caller waits for these.

If an operation raises, its whole batch fails.  Then each operation runs by itself, so that only
the faulty one fails.  If the database cannot be used, all fail at once.

If the database does not answer, operations queue up meanwhile.  Those that were asked for before
the broker gave up on it fail at once then, so that none waits for many others to fail.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from sqlalchemy import Connection, Engine
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

from rsscloud_broker.counters import Counters
from rsscloud_broker.database.engine import database_errors
from rsscloud_broker.database.methods import (
    HANGS_AFTER,
    Batched,
    Operation,
    Outcome,
    QueuedOperation,
    failed,
    fire,
)
from rsscloud_broker.errors import StoreUnavailable, Unavailable
from rsscloud_broker.util.threads import Daemons, count_threads

T = TypeVar("T")

_Function: TypeAlias = Callable[[Connection, Sequence[Any]], Sequence[Any]]

#: The most operations in one batch, so that the first does not wait long.
BATCH_LIMIT = 100


class Readers:
    """Runs operations that only read, in a pool of threads.

    :param counters: count the threads at work, and what waits for them.
    """

    def __init__(
        self, reactor: IReactorFromThreads, engine: Engine, counters: Counters | None = None
    ) -> None:
        self._reactor = reactor
        self._engine = engine
        # How many operations read at the same time; each has a connection.
        self._pool = Daemons(0, 4, name="store readers")
        count_threads(self._pool, counters)
        self._is_ended = False
        # When an operation last failed after it had hung, by the monotonic clock.
        self._hung_until = float("-inf")
        #: The jobs that wait for the running batch of the same function.
        self._waiting: dict[_Function, list[QueuedOperation]] = {}

    def start(self) -> None:
        """Start the threads."""
        self._pool.start()

    def read(self, operation: Operation[T]) -> Deferred[T]:
        """Run an operation.

        The Deferred fails with ``StoreUnavailable`` if the database cannot be used.
        """
        if not isinstance(operation, Batched):
            return self._in_thread(self._read_unless_hung, time.monotonic(), operation)
        done: Deferred[T] = Deferred()
        job = QueuedOperation(operation, done)
        waiting = self._waiting.get(operation.function)
        if waiting is None:
            waiting = self._waiting[operation.function] = [job]
            Deferred.fromCoroutine(self._run_batches(operation.function, waiting))
        else:
            waiting.append(job)
        return done

    def end(self) -> None:
        """Start no further batch."""
        self._is_ended = True

    def stop(self) -> None:
        """Wait for the threads to end."""
        self._pool.stop()

    async def _run_batches(self, function: _Function, waiting: list[QueuedOperation]) -> None:
        """Run the waiting operations of a function, batch by batch, until none waits."""
        while waiting and not self._is_ended:
            batch = waiting[:BATCH_LIMIT]
            del waiting[:BATCH_LIMIT]
            try:
                outcomes = await self._in_thread(self._run_batch, time.monotonic(), function, batch)
            except Exception as error:  # such as no thread, which the next batch may get
                outcomes = failed(batch, error)
            fire(outcomes)
        del self._waiting[function]
        fire(failed(waiting, StoreUnavailable("the store is being shut down")))

    def _in_thread(self, function: Callable[..., T], *args: Any) -> Deferred[T]:
        """Call a function in a thread of the pool."""
        return deferToThreadPool(self._reactor, self._pool, function, *args)

    # --- in a thread

    def _read_unless_hung(self, asked_at: float, operation: Operation[T]) -> T:
        """Run an operation, unless the database was given up on since it was asked for.

        :param asked_at: a time of the monotonic clock.
        """
        if asked_at < self._hung_until:
            raise StoreUnavailable("the database has not answered for some seconds")
        began_at = time.monotonic()
        try:
            with database_errors(), self._engine.begin() as connection:
                return operation(connection)
        except Unavailable:
            now = time.monotonic()
            if now - began_at > HANGS_AFTER:
                self._hung_until = now
            raise

    def _run_batch(
        self, asked_at: float, function: _Function, jobs: Sequence[QueuedOperation]
    ) -> list[Outcome]:
        """Run a batch, or each of its operations by itself if the batch raises."""
        arguments = [cast(Batched[Any, Any], job.operation).argument for job in jobs]
        try:
            results = self._read_unless_hung(asked_at, lambda conn: function(conn, arguments))
        except Exception as error:
            if len(jobs) == 1 or isinstance(error, Unavailable):
                return failed(jobs, error)
            return self._one_by_one(asked_at, function, jobs)
        return list(zip((job.done for job in jobs), results, strict=True))

    def _one_by_one(
        self, asked_at: float, function: _Function, jobs: Sequence[QueuedOperation]
    ) -> list[Outcome]:
        """Run each operation by itself; if the database cannot be used, the rest fails at once."""
        outcomes: list[Outcome] = []
        for index, job in enumerate(jobs):
            outcomes += self._run_batch(asked_at, function, [job])
            _, result = outcomes[-1]
            if isinstance(result, Failure) and isinstance(result.value, Unavailable):
                return outcomes + failed(jobs[index + 1 :], result.value)
        return outcomes
