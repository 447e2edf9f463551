"""The one thread of the store that writes.

A commit takes milliseconds, however little it writes.  So the writer takes all operations that
have queued up, runs them in one transaction, commits, and then fires their Deferreds in one turn
of the reactor.  The busier the broker, the larger these groups.  Batched operations of one kind
that stand next to each other in a group run together.

The reactor's thread gathers operations and hands them over together, at the end of a turn of the
reactor that added none, or after a few turns.  So the writer's thread starts only when the
reactor has stopped adding operations.  Otherwise the two threads would fight for the
interpreter's lock at every system call, and the groups would stay small, since callers that have
their answers come back one after the other.  In an idle reactor such a turn takes no time.

If an operation raises, its whole group is rolled back.  Then each operation runs again in a
transaction of its own, so that only the faulty one fails.  Operations must therefore be fit to run
twice.  If the database cannot be used, the whole group fails at once, so that not each operation
waits for the same lock; and with it all operations that have queued up, if the database has not
answered for some seconds.

Several nodes may write to one PostgreSQL.  If two of them wait for each other, or insert the same
row, or one removes what the other refers to, the server ends the transaction of one, which the
writer then runs again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from threading import Event, Thread
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger

from rsscloud_broker.counters import Counters
from rsscloud_broker.database import postgresql, sqlite
from rsscloud_broker.database.engine import as_unavailable, for_writing
from rsscloud_broker.database.methods import (
    HANGS_AFTER,
    Batched,
    Operation,
    Outcome,
    QueuedOperation,
    failed,
    fire,
)
from rsscloud_broker.errors import StoreUnavailable

T = TypeVar("T")

#: The most operations in one transaction, so that the first does not wait long.  PostgreSQL has a
#: limit of its own.
GROUP_LIMIT = 500

#: How often a transaction is run at most that others get in the way of.
TRIES = 3


class Writer:
    """Runs operations that write, in a thread of its own, in the order in which they came.

    :param reactor: the reactor in whose thread Deferreds fire.
    :param at_end: a function that the thread calls after the last operation.
    :param counters: measure the transactions.
    :ivar in_doubt: how many commits of a PostgreSQL were not answered, so that nobody knows whether
        what they wrote is stored.
    """

    log = Logger()

    def __init__(
        self,
        reactor: IReactorFromThreads,
        engine: Engine,
        at_end: Callable[[], None],
        counters: Counters | None = None,
    ) -> None:
        self._reactor = reactor
        self._engine = for_writing(engine)
        is_sqlite = engine.dialect.name == sqlite.DIALECT
        self._limit = GROUP_LIMIT if is_sqlite else postgresql.GROUP_LIMIT
        self._files = sqlite.files_of(engine)
        self._at_end = at_end
        counters = counters or Counters()
        self._group_sizes, self._durations = counters.group_sizes, counters.transactions
        self.in_doubt = 0
        # When the thread began its present work; what the reactor gathers; what waits for the
        # thread; and what wakes the thread.
        self._began_at: float | None = None
        self._gathered: list[QueuedOperation] = []
        self._queued: deque[QueuedOperation] = deque()
        self._has_work = Event()
        self._stopped: Deferred[None] | None = None

    def start(self) -> None:
        """Start the thread."""
        # A daemon: acknowledged operations are on disk, so nothing is lost if the process ends
        # without stopping the thread.
        Thread(target=self._run, name="store writer", daemon=True).start()

    def write(self, operation: Operation[T]) -> Deferred[T]:
        """Queue an operation.  The Deferred fires when its changes are on disk.

        The Deferred fails with ``StoreUnavailable`` if the database cannot be used, or with the
        exception that the operation raised.  Then nothing of the operation is stored.
        """
        if self._stopped is not None:
            return fail(StoreUnavailable("the store is being shut down"))
        done: Deferred[T] = Deferred()
        if not self._gathered:
            # Operations are gathered for three more turns of the reactor, at most.
            self._reactor.callFromThread(self._gather_on, 0, 3)
        self._gathered.append(QueuedOperation(operation, done))
        if len(self._gathered) == GROUP_LIMIT:
            self._hand_over()  # a full group does not wait for the end of a long turn
        return done

    @property
    def waiting(self) -> int:
        """How many operations the thread has not started yet."""
        return len(self._gathered) + len(self._queued)

    @property
    def busy_for(self) -> float:
        """Seconds since the thread began its present work on the database; 0 if it has none."""
        began_at = self._began_at
        return 0.0 if began_at is None else time.monotonic() - began_at

    def stop(self) -> Deferred[None]:
        """Accept no more operations.  Fires when all queued operations are on disk."""
        if self._stopped is None:
            self._hand_over()
            self._stopped = Deferred()  # from now on the thread ends when nothing is queued
            self._has_work.set()
        return self._stopped

    def _gather_on(self, before: int, turns: int) -> None:
        """Hand over the gathered operations, unless the turn that ends now has added some."""
        if len(self._gathered) > before and turns:
            self._reactor.callFromThread(self._gather_on, len(self._gathered), turns - 1)
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        """Queue the gathered operations for the thread, all at once."""
        gathered, self._gathered = self._gathered, []
        self._queued.extend(gathered)
        self._has_work.set()

    # --- in the thread

    def _run(self) -> None:
        """Run groups until the writer stops; this is what the thread does."""
        is_running = True
        while is_running:
            try:
                is_running = self._run_group()
            except Exception:  # log a bug; without this thread nothing is stored any more
                self.log.failure(
                    "The writer of the store failed; it goes on with the next operations."
                )
                self._began_at = None
        self._at_end()
        assert self._stopped is not None  # the end only comes after stop
        self._reactor.callFromThread(self._stopped.callback, None)

    def _run_group(self) -> bool:
        """Wait for an operation, and run it with all others that are queued by then.

        When this returns, no variable refers to the operations, which may hold large contents.

        :returns: False when the writer stops.
        """
        if not self._wait_for_operations():
            return False
        group = self._take_queued(self._limit)
        self._began_at = time.monotonic()
        outcomes = self._run_all(group)
        self._began_at = None
        self._reactor.callFromThread(fire, outcomes)
        return True

    def _wait_for_operations(self) -> bool:
        """Wait until some are queued, and look after the files of the database meanwhile.

        :returns: False when the writer stops.
        """
        while True:
            is_stopping = self._stopped is not None  # then nothing more is queued
            due = None
            if self._files is not None and (due := self._files.due_in) == 0:
                self._began_at = time.monotonic()  # it is work that ``busy_for`` measures
                self._files.look_after()
                self._began_at = None
            elif self._queued:
                return True
            elif is_stopping:
                return False
            else:
                self._has_work.wait(due)
                self._has_work.clear()

    def _take_queued(self, most: int) -> list[QueuedOperation]:
        """Take the operations that are queued now, this many at most."""
        return [self._queued.popleft() for _ in range(min(most, len(self._queued)))]

    def _run_all(self, group: list[QueuedOperation]) -> list[Outcome]:
        """Run a group, or each operation by itself if the group fails with one of them."""
        began_at = time.monotonic()
        try:
            return self._timed_commit(group)
        except Exception as error:
            if _is_unavailable(error):
                hangs = time.monotonic() - began_at > HANGS_AFTER
                queued = self._take_queued(len(self._queued)) if hangs else []
                return failed(group + queued, error)
            if len(group) == 1:
                return failed(group, error)
        return self._one_by_one(group)

    def _one_by_one(self, group: Sequence[QueuedOperation]) -> list[Outcome]:
        """Run each operation in a transaction of its own, as long as the database can be used."""
        outcomes: list[Outcome] = []
        for index, job in enumerate(group):
            try:
                outcomes += self._timed_commit([job])
            except Exception as error:
                if _is_unavailable(error):
                    return outcomes + failed(group[index:], error)
                outcomes += failed([job], error)
        return outcomes

    def _timed_commit(self, group: Sequence[QueuedOperation]) -> list[Outcome]:
        """Commit a group, again if it gave way to others, and measure how long that takes."""
        began_at = time.monotonic()
        for tries_left in range(TRIES - 1, -1, -1):
            try:
                outcomes = self._commit(group)
                break
            except DBAPIError as error:
                if not (tries_left and postgresql.gave_way(error)):
                    raise
        self._durations.observe(time.monotonic() - began_at)
        self._group_sizes.observe(len(group))
        return outcomes

    def _commit(self, group: Sequence[QueuedOperation]) -> list[Outcome]:
        """Run a group in one transaction; the outcomes are to be fired when it is committed."""
        outcomes: list[Outcome] = []
        is_done = False
        try:
            with self._engine.begin() as connection:
                for function, jobs in groupby(group, _batch_function):
                    if function is None:
                        outcomes += [(job.done, job.operation(connection)) for job in jobs]
                        continue
                    together = list(jobs)
                    results = function(
                        connection,
                        [cast(Batched[Any, Any], job.operation).argument for job in together],
                    )
                    outcomes += zip((job.done for job in together), results, strict=True)
                is_done = True
        except DBAPIError as error:
            # On SQLite a commit that fails is none.
            if is_done and error.connection_invalidated and self._files is None:
                self.in_doubt += 1
            raise
        if self._files is not None:
            self._files.is_changed = True
        return outcomes


def _is_unavailable(error: Exception) -> bool:
    """Whether the next operation would fail as well, because the database cannot be used."""
    in_the_way = isinstance(error, DBAPIError) and postgresql.gave_way(error)
    return not in_the_way and as_unavailable(error) is not None


def _batch_function(
    job: QueuedOperation,
) -> Callable[[Connection, Sequence[Any]], Sequence[Any]] | None:
    """The function of a batched operation, by which several run together; None for others."""
    return job.operation.function if isinstance(job.operation, Batched) else None
