"""Settings and statements that are for SQLite alone.

Each connection turns on the write-ahead log (WAL), so that readers work beside the one writer;
``synchronous=FULL``, so that a commit is on the disk before it returns; and foreign keys.
Python's driver must not begin transactions by itself: readers begin them with ``BEGIN``, and
writers with ``BEGIN IMMEDIATE``.  So a writer that must wait for another process waits at the
start of its transaction, when it has nothing to undo.

It waits for half a minute, or for as long as the URL says:
``sqlite:////var/lib/broker.db?timeout=5``.

``make_database_file`` makes the file of the database; connecting never does.  ``files`` looks
after the file then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import (
    URL,
    Connection,
    Dialect,
    Engine,
    Select,
    StaticPool,
    Table,
    event,
    func,
    select,
)

from rsscloud_broker.database.columns import insert_on_sqlite
from rsscloud_broker.database.files import Files

DIALECT = "sqlite"


def in_memory(url: URL) -> bool:
    """Whether a database is in memory, so that it ends with its connection."""
    return url.database in {None, "", ":memory:"} or url.query.get("mode") == "memory"


def engine_options(url: URL) -> dict[str, Any]:
    """The keyword arguments of ``create_engine`` for an SQLite database.

    A database in memory has one connection, which all threads share.
    """
    if in_memory(url):
        return {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
    # Seconds to wait for another process that writes.
    return {} if "timeout" in url.query else {"connect_args": {"timeout": 30.0}}


def make_database_file(url: URL) -> None:
    """Make the file of the database, unless it is there, and its directory.

    Only its owner may read the file, since it holds the secrets of subscribers.  SQLite gives
    the same permissions to the files that it makes beside it.

    :raises OSError: the directory or the file cannot be made.
    """
    file = path_of(url)
    if file is not None:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).touch(mode=0o600)


#: The files of engines, by dialect: an engine and its ``for_writing`` share one dialect.
_files: WeakKeyDictionary[Dialect, Files] = WeakKeyDictionary()


def files_of(engine: Engine) -> Files | None:
    """The files of an engine's database; None if the database has no file."""
    return _files.get(engine.dialect)


def configure(engine: Engine, writes: str) -> None:
    """Set up each connection of an engine.

    :param writes: the name of the execution option that is true for connections that write.
    """

    def connect(connection: Any, record: Any) -> None:
        """Set up a connection that was just made."""
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    path = path_of(engine.url)
    files = None if path is None else Files(engine, path)
    if files is not None:
        _files[engine.dialect] = files

    def begin(connection: Connection) -> None:
        """Begin a transaction, unless the files of the database are gone."""
        if files is not None:
            files.check()
        writer = connection.get_execution_options().get(writes, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writer else "BEGIN")

    event.listen(engine, "connect", connect)
    event.listen(engine, "begin", begin)


def serves(conn: Connection) -> bool:
    """Whether a connection is to an SQLite database."""
    return conn.dialect.name == DIALECT


# Python's driver releases the interpreter's lock before each row that it reads or writes, and
# takes it again after.  Beside a busy reactor both threads then wait for the lock so often that
# this costs more than the work itself.  So many rows are read or written in one step.


def at_once(query: Select[Any]) -> Select[str]:
    """A query that returns the rows of another query as one value, a JSON array of arrays."""
    rows = query.subquery()
    return select(func.json_group_array(func.json_array(*rows.c)))


def insert_at_once(conn: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Insert rows into a table with AUTOINCREMENT, and return their ids in the same order.

    :param rows: one or more rows, all with the same columns in the same order.
    """
    last = conn.exec_driver_sql(_last_id(table.name), (table.name,)).scalar_one()
    insert_on_sqlite(conn, table, [{"id": key, **row} for key, row in enumerate(rows, last + 1)])
    return list(range(last + 1, last + 1 + len(rows)))


def _last_id(table: str) -> str:
    """A statement for the largest id that any row of a table has had."""
    ever = "SELECT seq FROM sqlite_sequence WHERE name = ?"
    now = f"SELECT max(id) FROM {table}"  # noqa: S608 # our own table
    return f"SELECT max(coalesce(({ever}), 0), coalesce(({now}), 0))"


def last_id(conn: Connection, table: Table) -> int:
    """The largest id that SQLite ever gave to a row of a table with AUTOINCREMENT; else 0."""
    found = conn.exec_driver_sql("SELECT seq FROM sqlite_sequence WHERE name = ?", (table.name,))
    return int(found.scalar() or 0)


def set_last_id(conn: Connection, table: Table, last: int) -> None:
    """Have a table with AUTOINCREMENT give new rows ids behind ``last``.

    Other tables go on behind their largest id by themselves.
    """
    if table.dialect_options[DIALECT]["autoincrement"]:
        conn.exec_driver_sql("DELETE FROM sqlite_sequence WHERE name = ?", (table.name,))
        conn.exec_driver_sql("INSERT INTO sqlite_sequence VALUES (?, ?)", (table.name, last))


def in_use(file: Path) -> bool:
    """Whether another connection to a database is open, in this process or another one."""
    place = f"{file.absolute().as_uri()}?mode=rw"
    with closing(sqlite3.connect(place, uri=True, timeout=0, isolation_level=None)) as alone:
        try:
            alone.execute("PRAGMA locking_mode=EXCLUSIVE")
            alone.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            return error.sqlite_errorcode == sqlite3.SQLITE_BUSY
        except sqlite3.DatabaseError:  # who reads it will say what is wrong with it
            return False
    return False


def path_of(url: URL) -> str | None:
    """The path of the file of a database; None if the database is in memory or a URI."""
    if in_memory(url) or url.database is None or url.database.startswith("file:"):
        return None
    return url.database
