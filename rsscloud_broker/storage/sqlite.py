"""Everything that only SQLite understands.

SQLite is told to let readers work beside the one writer (WAL), to have each
commit on the disk before it returns (``synchronous=FULL``) and to hold foreign
keys.  Python's driver is kept from opening transactions by itself: readers say
``BEGIN``, and writers ``BEGIN IMMEDIATE``, so that one that must wait for
another process waits at the start, where nothing has to be undone.

It waits for half a minute, or for as long as the URL says:
``sqlite:////var/lib/broker.db?timeout=5``.

No connection makes the file: ``make_parent_directory`` does, and one that is removed
or replaced later is noticed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import finalize

from sqlalchemy import URL, Connection, Engine, Select, StaticPool, Table, event, func, select
from sqlalchemy.exc import DisconnectionError, OperationalError

DIALECT = "sqlite"

_IDENTITY = "rsscloud_broker_file"
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
    file = _path(url)
    if file is not None:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).touch(mode=0o600)


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
    path = _path(engine.url)
    if path is not None:
        file = _File(path)
        event.listen(engine, "do_connect", file.open)
        event.listen(engine, "checkout", file.check)


class _File:
    """The file of a database, which may be removed or replaced while it is open.

    SQLite would go on with what it has open: what is written there, and thanked for,
    would be gone with the process.  So connections are only used while it is the same
    file.  Another one is never taken up: what is under way belongs to the one before,
    whose log may still be there, and SQLite would write that into the other.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._address = f"{Path(path).absolute().as_uri()}?mode=rw"  # makes no empty file
        self._taken_up: tuple[int, int] | None = None

    def open(self, dialect: Any, record: Any, arguments: Any, options: dict[str, Any]) -> Any:
        """Make a connection."""
        identity = _identity(self._path)  # before it is opened: ``check`` sees what comes after
        if identity is not None and self._taken_up is None:
            identity = self._taken_up = self._hold()
        if identity not in {None, self._taken_up}:
            log = f"{os.path.realpath(self._path)}-wal"
            raise OperationalError(
                "open",
                None,
                OSError(
                    f"{self._path} was replaced: put the file before back; or stop the broker, "
                    f"remove {log} and the file beside it that ends in -shm, and start it"
                ),
            )
        record.info[_IDENTITY] = identity
        return dialect.connect(self._address, **options | {"uri": True})

    def _hold(self) -> tuple[int, int]:
        """Keep what tells the file from another from being given to another."""
        # By its path only: to close what is open for reading would release SQLite's locks.
        held = os.open(self._path, os.O_PATH | os.O_CLOEXEC)
        finalize(self, os.close, held)
        return _identity_of(os.fstat(held))

    def check(self, connection: Any, record: Any, proxy: Any) -> None:
        """See to it that a connection is one to the file that is there now."""
        if record.info[_IDENTITY] != _identity(self._path):
            raise DisconnectionError(f"{self._path} was removed or replaced")


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


def _path(url: URL) -> str | None:
    """The path of a database, if it has one."""
    if in_memory(url) or url.database is None or url.database.startswith("file:"):
        return None
    return url.database


def _identity(path: str) -> tuple[int, int] | None:
    """What tells a file from another at the same path; None if it cannot be seen."""
    try:
        return _identity_of(os.stat(path))
    except OSError:  # it is not there, or its directory is not, or the disk does not answer
        return None


def _identity_of(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
