"""Opens a database, and turns its failures into ``StoreUnavailable``.

An engine is for reading as it is made; ``for_writing(engine)`` is for writing.  Both share
their connections.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, create_engine, exc, make_url

from rsscloud_broker.database import postgresql, sqlite
from rsscloud_broker.errors import DiskFull, StoreUnavailable

_WRITES = "rsscloud_broker_writes"

#: The SQLSTATE with which PostgreSQL says that its disk is full.
_DISK_FULL = "53100"

#: The one with which it says that the role lacks a right (insufficient_privilege).
_MAY_NOT = "42501"


def open_engine(
    url: str,
    *,
    of_broker: bool = False,
    silence: float = postgresql.TIMEOUT,
    is_given_up: Callable[[], bool] = lambda: False,
) -> Engine:
    """Make an engine for a database URL, without connecting.

    :param of_broker: True for the store of a running broker.  A PostgreSQL server then ends a
        transaction in which nothing happens for eight seconds, since it holds
        locks that others wait for.  The transaction of a command may be idle for as long as the
        reader of its output takes.
    :param silence: the broker gives up on a PostgreSQL server that does not answer for this many
        seconds; a little earlier the server ends a statement that takes too long.  A command waits
        as long as the server takes.
    :param is_given_up: whether a PostgreSQL server is known not to answer: see
        ``set_read_timeout``.
    :raises sqlalchemy.exc.ArgumentError: the URL is not a database URL.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == postgresql.DIALECT:
        engine = create_engine(parsed, **postgresql.engine_options(parsed, of_broker=of_broker))
        postgresql.set_limits(engine, silence=silence if of_broker else None)
        if of_broker:
            postgresql.set_read_timeout(engine, silence, is_given_up)
            postgresql.report_ended(engine)
        return engine
    if parsed.get_backend_name() != sqlite.DIALECT:
        return create_engine(parsed)
    engine = create_engine(parsed, **sqlite.engine_options(parsed))
    sqlite.configure(engine, _WRITES)
    return engine


def for_writing(engine: Engine) -> Engine:
    """The same engine, whose transactions write."""
    return engine.execution_options(**{_WRITES: True})


def wait_for_others(connection: Connection) -> None:
    """Wait until no other process migrates the database, and make others wait until the
    transaction of this connection ends.

    On SQLite every transaction that writes does so by itself.
    """
    if connection.dialect.name == postgresql.DIALECT:
        postgresql.lock(connection)


def as_unavailable(error: BaseException) -> StoreUnavailable | None:
    """The error to raise instead, if the database cannot be used.

    None if the error has another cause, such as a fault in a statement.
    """
    is_unusable = isinstance(
        error, exc.OperationalError | exc.InterfaceError | exc.InternalError | exc.TimeoutError
    )
    # For a damaged file the driver raises the base class itself.
    if not is_unusable and type(error) is not exc.DatabaseError:
        return None
    return _unavailable(error)


def _unavailable(error: BaseException) -> StoreUnavailable:
    """The error to raise instead of one of the database, with what to do about it."""
    reason = error.orig if isinstance(error, exc.DBAPIError) else error
    if isinstance(reason, sqlite3.Error):
        is_full = getattr(reason, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
        advice = "Look for a full disk, file permissions, or another process that holds a lock."
    else:
        is_full = getattr(reason, "sqlstate", "") == _DISK_FULL
        advice = postgresql.advice(str(reason))
    kind = DiskFull if is_full else StoreUnavailable
    unavailable = kind(
        f"the database cannot be used right now: {reason}. Nothing was changed. {advice}"
    )
    unavailable.__cause__ = error
    return unavailable


@contextmanager
def database_errors() -> Iterator[None]:
    """Turn failures of the database, and rights that are missing, into ``StoreUnavailable``."""
    try:
        yield
    except Exception as error:
        lacks_right = getattr(getattr(error, "orig", None), "sqlstate", "") == _MAY_NOT
        unavailable = _unavailable(error) if lacks_right else as_unavailable(error)
        if unavailable is None:
            raise
        raise unavailable from error


@contextmanager
def open_database(url: str, *, writes: bool = True) -> Iterator[Connection]:
    """Begin one transaction on a database, for commands that run beside a broker.

    :param url: the URL of a database for which ``migrate`` was called.
    :param writes: False to read only, which does not block the broker.
    :raises StoreUnavailable: the database cannot be used.
    """
    engine = open_engine(url)
    try:
        with (
            database_errors(),
            (for_writing(engine) if writes else engine).begin() as connection,
        ):
            yield connection
    finally:
        engine.dispose()
