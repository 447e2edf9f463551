"""A store in memory for tests, whose operations run in the calling thread."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Dialect, Engine, MetaData, StaticPool, create_engine
from twisted.internet.defer import Deferred, execute, succeed
from twisted.internet.interfaces import IReactorFromThreads, IReactorTime

from rsscloud_broker.database.engine import database_errors, for_writing
from rsscloud_broker.database.methods import Operation
from rsscloud_broker.database.threads import StoreThreads
from rsscloud_broker.errors import StoreUnavailable
from rsscloud_broker.interfaces import AppTables
from rsscloud_broker.model.work import Bounds
from rsscloud_broker.storage import AccountStore, Store
from rsscloud_broker.storage.checks import DEFAULT_BOUNDS
from rsscloud_broker.storage.schema import metadata
from rsscloud_broker.testing.clock import Clock

T = TypeVar("T")


@cache
def _file_with(*tables: MetaData) -> bytes:
    """The bytes of an SQLite file with these tables, which are empty.

    To read it takes a tenth of the time in which SQLite makes the tables.
    """
    engine = create_engine("sqlite://", poolclass=StaticPool)
    for some in tables:
        some.create_all(engine)
    with engine.connect() as connection:
        driver: Any = connection.connection.dbapi_connection
        file: bytes = driver.serialize()
    engine.dispose()
    return file


#: The SQL that SQLAlchemy has compiled, by the key of its statement.
_compiled: dict[Any, Any] = {}


@cache
def _shared_dialect(url: str) -> Dialect:
    """The dialect that engines share, as the keys of compiled statements contain it."""
    engine = create_engine(url)
    engine.connect().close()  # which tells the dialect what the database can do
    engine.dispose()
    return engine.dialect


def share_statements(engine: Engine, url: str) -> Engine:
    """Make an engine use the SQL that others have compiled, and return it.

    Tests make thousands of databases, and it takes SQLAlchemy longer to compile their statements
    than it takes a database to run them.

    :param url: of any database of the same kind, for the dialect that the engines share.
    """
    engine.dialect = _shared_dialect(url)
    return engine.execution_options(compiled_cache=_compiled)


class CallersThread(StoreThreads):
    """Runs the operations of a store at once, in the thread that calls the store.

    :param tables: the tables of applications, which it makes beside those of the broker.
    """

    def __init__(self, tables: Sequence[AppTables] = ()) -> None:
        self._tables = tables

    def start(self, engine: Engine) -> None:
        """Make the tables in the database of an engine, and run all operations on it."""
        tables = (metadata, *(each.metadata for each in self._tables))
        with engine.connect() as connection:
            driver: Any = connection.connection.dbapi_connection
            driver.deserialize(_file_with(*tables))
        self._use(share_statements(engine, "sqlite://"))

    def _use(self, engine: Engine) -> None:
        """Run all operations on a database that has its tables."""
        self._engine = engine
        # To take a connection from its pool takes longer than most operations.
        self._reads, self._writes = engine.connect(), for_writing(engine).connect()

    def read(self, operation: Operation[T]) -> Deferred[T]:
        return execute(self._run, self._reads, operation)

    def write(self, operation: Operation[T]) -> Deferred[T]:
        return execute(self._run, self._writes, operation)

    def _run(self, connection: Connection, operation: Operation[T]) -> T:
        if connection.closed:
            raise StoreUnavailable("the store is being shut down")
        with database_errors(), connection.begin():
            return operation(connection)

    def writes_waiting(self) -> int:
        """How many operations wait to be written."""
        return 0

    def busy_for(self) -> float:
        """No operation is ever under way when somebody asks, as each runs at once."""
        return 0.0

    def give_up(self, why: str) -> None:
        raise NotImplementedError  # a database in memory always answers

    def is_given_up(self) -> bool:
        """Whether operations fail at once.  Any thread may ask."""
        return False

    def in_doubt(self) -> int:
        return 0

    def stop(self) -> Deferred[None]:
        self._reads.close()
        self._writes.close()
        self._engine.dispose()
        return succeed(None)


def memory_store(
    bounds: Bounds = DEFAULT_BOUNDS,
    database: CallersThread | None = None,
    clock: IReactorTime | None = None,
) -> Store:
    """Make a started store in memory, whose methods return Deferreds that have fired.

    It is the real store on SQLite, without threads, so a test can say
    ``self.successResultOf(store.count_pings())``.

    :param bounds: limits on what the store keeps.
    :param database: runs its operations, if the test needs it for others too.
    :param clock: has its timers.
    """
    reactor = cast(IReactorFromThreads, clock or Clock())
    store = Store(reactor, "sqlite://", threads=database or CallersThread(), bounds=bounds)
    store.startService()
    return store


def memory_database(*tables: AppTables) -> CallersThread:
    """Make a database in memory, whose methods return Deferreds that have fired.

    It has the tables of the broker.

    :param tables: the tables of applications, which it has too.
    """
    database = CallersThread(tables)
    memory_store(database=database)
    return database


def memory_accounts() -> AccountStore:
    """Make a store of accounts in memory, whose methods return Deferreds that have fired."""
    return AccountStore(memory_database())
