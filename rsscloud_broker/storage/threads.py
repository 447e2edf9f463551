"""Where the store's operations run.

``StoreThreads`` is the real thing: one thread that writes and a few that read,
none of them the reactor's own.  Tests run operations in the calling thread
instead (``rsscloud_broker.testing.memory_store``), behind the same few methods.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from sqlalchemy import Engine
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.threads import deferToThreadPool

from rsscloud_broker.model import Unavailable
from rsscloud_broker.storage.engine import database_errors
from rsscloud_broker.storage.writer import Operation, Writer
from rsscloud_broker.workers import Daemons

T = TypeVar("T")

#: Reads at the same time; each has a connection.
READERS = 4


class Threads(Protocol):
    """Runs operations on an engine, each in a transaction."""

    def start(self, engine: Engine) -> None:
        """Get ready to run operations."""

    def read(self, operation: Operation[T]) -> Deferred[T]:
        """Run an operation that only reads."""

    def write(self, operation: Operation[T]) -> Deferred[T]:
        """Run an operation that writes.  Fires once it is on disk."""

    def writes_waiting(self) -> int:
        """How many operations wait to be written."""

    def stop(self) -> Deferred[None]:
        """Take no more.  Fires when all is done, and the engine is closed."""


def read_once(engine: Engine, operation: Operation[T]) -> T:
    """Run an operation in a reader's transaction.

    :raises Unavailable: the database cannot be used.
    """
    with database_errors(), engine.begin() as connection:
        return operation(connection)


class StoreThreads:
    """A writer's thread and a pool for reading.

    None of them keeps the process alive, however long the database hangs.
    """

    def __init__(self, reactor: IReactorFromThreads) -> None:
        self._reactor = reactor
        self._running = False

    def start(self, engine: Engine) -> None:
        self._engine = engine
        self._readers = Daemons(0, READERS, name="store readers")
        self._writer = Writer(self._reactor, engine, at_end=self._close)
        self._readers.start()
        self._writer.start()
        self._running = True

    def read(self, operation: Operation[T]) -> Deferred[T]:
        if not self._running:
            return fail(Unavailable("the store is not running"))
        return deferToThreadPool(self._reactor, self._readers, read_once, self._engine, operation)

    def write(self, operation: Operation[T]) -> Deferred[T]:
        if not self._running:
            return fail(Unavailable("the store is not running"))
        return self._writer.write(operation)

    def writes_waiting(self) -> int:
        return self._writer.waiting if self._running else 0

    def stop(self) -> Deferred[None]:
        self._running = False
        return self._writer.stop()

    def _close(self) -> None:
        """In the writer's thread, which may wait for the readers."""
        self._readers.stop()
        self._engine.dispose()
