"""Statements for many rows at once, for operations that run all the time.

PostgreSQL parses and plans a statement anew whenever its text changes, which costs more than to run
it.  So there the values of all rows go into arrays, and the text is the same however many they are:
psycopg has the server prepare it.  SQLite has no arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Generic, TypeAlias, TypeVar, cast

import msgspec
from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Connection,
    Executable,
    Select,
    Table,
    TextClause,
    any_,
    bindparam,
    text,
)
from sqlalchemy.dialects import postgresql

from rsscloud_broker.database import sqlite

E = TypeVar("E", bound=Executable)

#: The condition that a column has one of the values of a parameter.
Among: TypeAlias = Callable[[ColumnElement[Any], str], ColumnElement[bool]]


class OfMany(Generic[E]):
    """A statement for many values, such as those of a column that is searched for.

    :param make: makes the statement with the condition that it is given.
    """

    def __init__(self, make: Callable[[Among], E]) -> None:
        self._on_sqlite = make(lambda column, name: column.in_(bindparam(name, expanding=True)))
        self._on_postgresql = make(
            lambda column, name: column == any_(bindparam(name, type_=ARRAY(column.type)))
        )

    def on(self, conn: Connection) -> E:
        """The statement for a database; each parameter is a list."""
        return self._on_sqlite if sqlite.serves(conn) else self._on_postgresql


def insert_at_once(conn: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Insert rows, and return their ids in the same order, which ascend.

    :param table: numbers its rows itself, and on SQLite with AUTOINCREMENT.
    :param rows: one or more rows, all with the same columns in the same order.
    """
    if sqlite.serves(conn):
        return sqlite.insert_at_once(conn, table, rows)
    arrays = {name: [row[name] for row in rows] for name in rows[0]}
    return sorted(conn.scalars(_insert(table, tuple(arrays)), arrays))


@cache
def _insert(table: Table, names: tuple[str, ...]) -> TextClause:
    """An INSERT of rows that come as an array for each column.

    The server gives out ids in the order of the rows.
    """
    dialect = cast(Any, postgresql).dialect()
    columns = ", ".join(names)
    arrays = ", ".join(
        f"CAST(:{name} AS {table.c[name].type.compile(dialect=dialect)}[])" for name in names
    )
    return text(
        f"INSERT INTO {table.name} ({columns}) "  # noqa: S608 # our own table
        f"SELECT {columns} FROM unnest({arrays}) WITH ORDINALITY AS given({columns}, place) "
        "ORDER BY place RETURNING id"
    )


class RowBatch:
    """A query whose rows are read together; they must fit into memory.

    SQLite returns them as one text of JSON, which takes less time than a row at a time.

    :param query: selects columns with numbers and texts.  Truth values may come as 1 or 0.
    """

    def __init__(self, query: Select[Any]) -> None:
        self._query = query
        self._at_once = sqlite.at_once(query)

    def read(self, conn: Connection, parameters: Mapping[str, object]) -> list[Sequence[Any]]:
        """Run the query, and return the rows in any order."""
        if not sqlite.serves(conn):
            return list(conn.execute(self._query, parameters))
        rows: list[Sequence[Any]] = msgspec.json.decode(
            conn.execute(self._at_once, parameters).scalar_one()
        )
        return rows
