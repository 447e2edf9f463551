"""The one thread that writes.

Making data safe on a disk takes milliseconds, however little of it there is.
So the writer takes every operation that has queued up, runs them in one
transaction, commits, and only then lets their Deferreds fire: all of them in
one turn of the reactor.  The busier the broker, the larger the groups.  Operations of one kind
that stand next to each other in a group are run together, where that is cheaper.

Operations are gathered in the reactor's thread and handed over together, at the end of a
turn of the reactor that has brought no more of them, or a few turns later.  So the thread
does not begin while the reactor still brings more: then the two would take the
interpreter's lock from each other at every call of the system, and both would wait more
than work; and the groups would remain small, for those who have been answered ask again
one after the other.  Where nothing else is going on, such a turn takes no time.

An operation that raises undoes its whole group.  Each is then run again in a
transaction of its own, so that only the culprit fails; operations must
therefore be fit to run twice.  So they can also be run again if the database has lost them:
see ``files``.  A database that cannot be used ails them all,
and they fail together, without each one waiting for the same lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Engine
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.storage.engine import as_unavailable, for_writing
from rsscloud_broker.storage.operations import Batched, Heavy, Job, Operation, Outcome, failed, fire
from rsscloud_broker.storage.sqlite import files_of

T = TypeVar("T")

#: The most operations in one transaction, so that the first need not wait long.
GROUP_LIMIT = 500


#: The most operations that are kept to be written again; the oldest are the least needed.
UNKEPT = 20_000

#: For how many more turns of the reactor operations are gathered, at the most.
TURNS = 3


class Writer:
    """Runs operations in a thread of its own, in the order they came.

    :param reactor: where Deferreds fire.
    :param engine: the database.
    :param at_end: called in the thread when the last operation is done.
    """

    log = Logger()

    def __init__(
        self, reactor: IReactorFromThreads, engine: Engine, at_end: Callable[[], None]
    ) -> None:
        self._reactor = reactor
        self._engine = for_writing(engine)
        self._files = files_of(engine)
        # What was committed and may be in the log of the database alone.
        self._unkept: deque[Operation[Any]] = deque(maxlen=UNKEPT)
        self._losses = 0
        self._at_end = at_end
        self._gathered: list[Job] = []
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._stopped: Deferred[None] | None = None

    def start(self) -> None:
        """Start the thread."""
        # A daemon: what was acknowledged is on disk, so nothing is lost if the
        # process ends without stopping it.
        Thread(target=self._run, name="store writer", daemon=True).start()

    def write(self, operation: Operation[T]) -> Deferred[T]:
        """Queue an operation.  The Deferred fires once it is on disk.

        It fails with ``Unavailable`` if the database does, or with what the
        operation raised; nothing of it is stored then.
        """
        if self._stopped is not None:
            return fail(Unavailable("the store is being shut down"))
        done: Deferred[T] = Deferred()
        if not self._gathered:
            self._reactor.callFromThread(self._gather_on, 0, TURNS)
        self._gathered.append(Job(operation, done))
        if len(self._gathered) == GROUP_LIMIT:
            self._hand_over()  # a whole group need not wait for a turn that takes long
        return done

    @property
    def waiting(self) -> int:
        """How many operations the thread has not taken yet."""
        return len(self._gathered) + self._jobs.qsize()

    def stop(self) -> Deferred[None]:
        """Take no more.  Fires when everything queued is on disk."""
        if self._stopped is None:
            self._stopped = Deferred()
            self._hand_over()
            self._jobs.put(None)
        return self._stopped

    def _gather_on(self, before: int, turns: int) -> None:
        """Hand over what was gathered, unless the turn that ends has brought more of it."""
        if len(self._gathered) > before and turns:
            self._reactor.callFromThread(self._gather_on, len(self._gathered), turns - 1)
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        gathered, self._gathered = self._gathered, []
        for job in gathered:
            self._jobs.put(job)

    # --- in the thread

    def _run(self) -> None:
        while self._run_group():
            pass
        self._at_end()
        assert self._stopped is not None  # the end is only queued by stop
        self._reactor.callFromThread(self._stopped.callback, None)

    def _run_group(self) -> bool:
        """Run what waits, or what comes next; False at the end.

        When this returns nothing holds the operations any more, which may have contents.
        """
        first = self._next()
        if first is None:
            return False
        group = [first, *islice(self._waiting(), GROUP_LIMIT - 1)]
        self._reactor.callFromThread(fire, self._outcomes(group))
        return True

    def _next(self) -> Job | None:
        """Wait for an operation, or for the end; meanwhile, keep what was written."""
        while True:
            due = None if self._files is None else self._files.keep_in
            if due == 0:
                self._keep()
                continue
            try:
                return self._jobs.get(timeout=due)
            except Empty:
                continue

    def _keep(self) -> None:
        """Have what was committed put where it cannot be lost with the log."""
        assert self._files is not None  # there is something to keep
        kept = self._files.keep()
        if self._files.losses != self._losses:
            self._outcomes([])  # which writes again what was lost
        elif kept:
            self._unkept.clear()

    def _waiting(self) -> Iterator[Job]:
        """The operations that are queued now, up to the end if that is queued."""
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return
            if job is None:
                self._jobs.put(None)  # nothing comes after it
                return
            yield job

    def _outcomes(self, group: Sequence[Job]) -> list[Outcome]:
        try:
            return self._commit(group)
        except Exception as error:
            if len(group) == 1 or as_unavailable(error) is not None:
                return failed(group, error)
        return self._one_by_one(group)

    def _one_by_one(self, group: Sequence[Job]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for index, job in enumerate(group):
            try:
                outcomes += self._commit([job])
            except Exception as error:
                if as_unavailable(error) is not None:
                    return outcomes + failed(group[index:], error)
                outcomes += failed([job], error)
        return outcomes

    def _commit(self, group: Sequence[Job]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        with self._engine.begin() as connection:
            losses = self._files.losses if self._files is not None else 0
            if losses != self._losses:
                self._write_again(connection)
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
        if self._files is not None:
            self._files.confirm()
            for job, (_, result) in zip(group, outcomes, strict=True):
                operation = job.operation
                again = operation.again(result) if isinstance(operation, Heavy) else operation
                self._unkept.append(again)
            self._losses = losses
        return outcomes

    def _write_again(self, connection: Connection) -> None:
        """Write once more what was thanked for, and is lost with the log."""
        for operation in self._unkept:
            try:
                with connection.begin_nested():
                    operation(connection)
            except Exception as error:
                if as_unavailable(error) is not None:
                    raise
                self.log.failure("What was written could not be written again.")


def _batch_function(job: Job) -> Callable[[Connection, Sequence[Any]], Sequence[Any]] | None:
    return job.operation.function if isinstance(job.operation, Batched) else None
