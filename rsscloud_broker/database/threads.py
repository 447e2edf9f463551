"""The threads in which the store runs its operations.

``StoreThreads`` has one thread that writes and a few that read, none of them the reactor's
own.  Tests run operations in the calling thread instead: see ``rsscloud_broker.testing.memory``.
"""

from __future__ import annotations

from typing import TypeVar

from sqlalchemy import Engine
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorFromThreads
from zope.interface import implementer

from rsscloud_broker.counters import Counters
from rsscloud_broker.database.methods import Operation
from rsscloud_broker.database.readers import Readers
from rsscloud_broker.database.writer import Writer
from rsscloud_broker.errors import StoreStopped, StoreUnavailable
from rsscloud_broker.interfaces import IDatabase

T = TypeVar("T")


@implementer(IDatabase)
class StoreThreads:
    """One thread that writes, and a pool of threads that read.

    Its methods are those of ``Threads``.  None of these threads keeps the process alive, even if
    the database hangs.

    :param counters: measure the work of the threads.
    """

    def __init__(self, reactor: IReactorFromThreads, counters: Counters | None = None) -> None:
        self._reactor = reactor
        self._counters = counters or Counters()
        self._running = False
        self._given_up = ""  # why all operations fail now; empty if they do not

    def start(self, engine: Engine) -> None:
        self._engine = engine
        self._readers = Readers(self._reactor, engine, self._counters)
        self._writer = Writer(self._reactor, engine, self._close, self._counters)
        self._readers.start()
        self._writer.start()
        self._running = True

    def read(self, operation: Operation[T]) -> Deferred[T]:
        if not self._running:
            return fail(StoreStopped("the store is not running"))
        if self._given_up:
            return fail(StoreUnavailable(self._given_up))
        return self._readers.read(operation)

    def write(self, operation: Operation[T]) -> Deferred[T]:
        """Run an operation that writes.  The Deferred fires when the change is on disk."""
        if not self._running:
            return fail(StoreStopped("the store is not running"))
        if self._given_up:
            return fail(StoreUnavailable(self._given_up))
        return self._writer.write(operation)

    def writes_waiting(self) -> int:
        """How many operations wait to be written."""
        return self._writer.waiting if self._running else 0

    def busy_for(self) -> float:
        """Seconds since the writer began its present work; 0 if it has none."""
        return self._writer.busy_for if self._running else 0.0

    def give_up(self, why: str) -> None:
        """Fail all operations at once, those under way too, since the server does not answer.

        :param why: the text of their ``StoreUnavailable``; empty if the server answers again.
        """
        self._given_up = why

    def is_given_up(self) -> bool:
        """Whether operations fail at once.  Any thread may ask."""
        return bool(self._given_up)

    def in_doubt(self) -> int:
        """How many commits may be stored or not, as nobody knows: see ``Writer``."""
        return self._writer.in_doubt

    def stop(self) -> Deferred[None]:
        """Accept no more operations.  Fires when all are done and the engine is closed."""
        self._running = False
        self._readers.end()
        return self._writer.stop()

    def _close(self) -> None:
        """Close the engine.  Runs in the writer's thread, which may block until the readers end."""
        self._readers.stop()
        self._engine.dispose()
