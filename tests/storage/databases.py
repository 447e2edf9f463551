"""Makes databases and stores for tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Engine
from twisted.internet import reactor
from twisted.internet.interfaces import IReactorFromThreads, IReactorTime
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase, TestCase

from rsscloud_broker.database.engine import for_writing, open_engine
from rsscloud_broker.database.methods import Operation
from rsscloud_broker.database.portions import Run
from rsscloud_broker.database.threads import StoreThreads
from rsscloud_broker.model.work import Bounds
from rsscloud_broker.storage import AccountStore, Store, migrate
from rsscloud_broker.storage.checks import DEFAULT_BOUNDS
from rsscloud_broker.storage.schema import metadata
from rsscloud_broker.testing import memory_store
from rsscloud_broker.testing.memory import share_statements
from tests.postgresql import borrowed_database, server_url

T = TypeVar("T")


@cache
def _migrated_file() -> Path:
    """The file of an empty database, made once, which the tests copy."""
    path = Path(mkdtemp(dir=Path.cwd())) / "template.db"  # trial's own directory
    migrate(f"sqlite:///{path}")
    return path


def file_database(case: SynchronousTestCase) -> str:
    """Make a migrated database in a new file, and return its URL."""
    path = Path(case.mktemp()).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(_migrated_file(), path)
    return f"sqlite:///{path}"


def engine_for(case: SynchronousTestCase, url: str, **options: Any) -> Engine:
    """Make an engine, which is disposed of when the test ends."""
    engine = open_engine(url, **options)
    case.addCleanup(engine.dispose)
    return engine


class _TestThreads(StoreThreads):
    """Threads of a store, which take statements for PostgreSQL that an earlier test wrote."""

    def start(self, engine: Engine) -> None:
        if engine.dialect.name == "postgresql":
            engine = share_statements(engine, server_url())
        super().start(engine)


def threaded_store(
    case: TestCase,
    url: str | None = None,
    bounds: Bounds = DEFAULT_BOUNDS,
    threads: StoreThreads | None = None,
) -> Store:
    """Start a store with threads on a database in a file.  It stops when the test ends."""
    threads = threads or _TestThreads(IReactorFromThreads(reactor))
    store = Store(IReactorFromThreads(reactor), url or file_database(case), threads, bounds=bounds)
    store.startService()
    case.addCleanup(store.stopService)
    return store


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition that other threads or nodes bring about."""
    while not condition():
        await deferLater(IReactorTime(reactor), 0.01)


class InMemory(TestCase):
    """Has the tests of a contract use stores in memory, without threads."""

    def make_store(self, bounds: Bounds = DEFAULT_BOUNDS) -> Store:
        return memory_store(bounds)


class Threaded(TestCase):
    """Has the tests of a contract use stores on files, with threads."""

    def make_store(self, bounds: Bounds = DEFAULT_BOUNDS) -> Store:
        return threaded_store(self, bounds=bounds)


def threaded_account_store(case: TestCase, url: str | None = None) -> AccountStore:
    """Start a store as `threaded_store` does, and return the store of accounts beside it."""
    threads = _TestThreads(IReactorFromThreads(reactor))
    threaded_store(case, url, threads=threads)
    return AccountStore(threads)


def run_on(conn: Connection) -> Run:
    """Runs operations in the transaction of a connection, at once."""

    async def run(operation: Operation[T], /) -> T:
        return operation(conn)

    return run


def result_of(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing, such as one that uses `run_on`."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    raise AssertionError("it waits")


@contextmanager
def memory_database() -> Iterator[Connection]:
    """Begin a transaction on a new database in memory."""
    engine = open_engine("sqlite://")
    metadata.create_all(engine)
    with for_writing(engine).begin() as conn:
        yield conn
    engine.dispose()


@contextmanager
def postgresql_database() -> Iterator[Connection]:
    """Begin a transaction on an empty database of a PostgreSQL."""
    with borrowed_database() as url:
        engine = open_engine(url)
        try:
            with for_writing(engine).begin() as conn:
                yield conn
        finally:
            engine.dispose()
