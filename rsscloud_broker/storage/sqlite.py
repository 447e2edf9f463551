"""Everything that only SQLite understands.

SQLite is told to let readers work beside the one writer (WAL), to have each
commit on the disk before it returns (``synchronous=FULL``) and to hold foreign
keys.  Python's driver is kept from opening transactions by itself: readers say
``BEGIN``, and writers ``BEGIN IMMEDIATE``, so that one that must wait for
another process waits at the start, where nothing has to be undone.

It waits for half a minute, or for as long as the URL says:
``sqlite:////var/lib/broker.db?timeout=5``.

No connection makes the file: ``make_parent_directory`` does; ``files`` watches what becomes
of it later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
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

from rsscloud_broker.storage.files import Files

DIALECT = "sqlite"

#: Seconds to wait for another process that writes.
TIMEOUT = 30.0


def in_memory(url: URL) -> bool:
    """Whether the database lives and dies with its connection."""
    return url.database in {None, "", ":memory:"} or url.query.get("mode") == "memory"


def engine_options(url: URL) -> dict[str, Any]:
    """What ``create_engine`` needs to be told.

    A database in memory has one connection, which every thread shares.
    """
    if in_memory(url):
        return {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
    return {} if "timeout" in url.query else {"connect_args": {"timeout": TIMEOUT}}


def make_parent_directory(url: URL) -> None:
    """Make the directory in which the file of the database is to be, and the file.

    It is for its owner alone: it holds what subscribers have their notifications
    signed with.  The files that SQLite makes beside it are like it.

    :raises OSError: it cannot be made.
    """
    file = path_of(url)
    if file is not None:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).touch(mode=0o600)


#: The files of engines by their dialects, which those for writing share.
_files: WeakKeyDictionary[Dialect, Files] = WeakKeyDictionary()


def files_of(engine: Engine) -> Files | None:
    """The files of the database of an engine; None if it has none of its own."""
    return _files.get(engine.dialect)


def configure(engine: Engine, writes: str) -> None:
    """Set up each connection of an engine.

    :param writes: the name of the execution option that tells a writer's
        connection from a reader's.
    """

    def connect(connection: Any, record: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    def begin(connection: Connection) -> None:
        writer = connection.get_execution_options().get(writes, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writer else "BEGIN")

    event.listen(engine, "connect", connect)
    event.listen(engine, "begin", begin)
    path = path_of(engine.url)
    if path is not None:
        _files[engine.dialect] = Files(engine, path)


def serves(conn: Connection) -> bool:
    """Whether a connection is one to SQLite."""
    return conn.dialect.name == DIALECT


# Python's driver lets other threads run before and after each row that it reads or
# writes.  Beside a busy reactor a thread then waits for the interpreter's lock that
# often, and so does the reactor, which costs both more than what they do.  So where
# there are many rows, they are read or written in one step.


def at_once(query: Select[Any]) -> Select[str]:
    """A query for the same rows as one value, a JSON array of arrays."""
    rows = query.subquery()
    return select(func.json_group_array(func.json_array(*rows.c)))


def insert_at_once(conn: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Insert rows into a table with AUTOINCREMENT; their ids, in the same order.

    :param rows: one or more, all with the same columns, in the same order.
    """
    last = conn.exec_driver_sql(_last_id(table.name), (table.name,)).scalar_one()
    columns = ("id", *rows[0])
    values = [value for key, row in enumerate(rows, last + 1) for value in (key, *row.values())]
    done = 0
    while done < len(rows):
        # Powers of two: else there would be hundreds of statements, which the driver keeps.
        size = min(1 << (len(rows) - done).bit_length() - 1, _ROWS)
        some = values[done * len(columns) : (done + size) * len(columns)]
        conn.exec_driver_sql(_insertion(table.name, columns, size), tuple(some))
        done += size
    return list(range(last + 1, last + 1 + len(rows)))


#: Rows of one insertion: SQLite takes 32,766 values in a statement.
_ROWS = 256


def _last_id(table: str) -> str:
    """Asks for the largest id that any row of a table has had."""
    ever = "SELECT seq FROM sqlite_sequence WHERE name = ?"
    now = f"SELECT max(id) FROM {table}"  # noqa: S608 # it is ours
    return f"SELECT max(coalesce(({ever}), 0), coalesce(({now}), 0))"  # likewise


@lru_cache(maxsize=20)
def _insertion(table: str, columns: Sequence[str], rows: int) -> str:
    row = f"({', '.join('?' * len(columns))})"
    names = ", ".join(columns)
    return f"INSERT INTO {table} ({names}) VALUES {', '.join([row] * rows)}"  # noqa: S608 # ours


def path_of(url: URL) -> str | None:
    """The path of the file of a database, if it has one."""
    if in_memory(url) or url.database is None or url.database.startswith("file:"):
        return None
    return url.database
