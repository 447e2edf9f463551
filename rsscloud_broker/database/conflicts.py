"""Inserts and locks that keep several nodes on one PostgreSQL out of each other's way.

On SQLite one transaction writes at a time, so nothing here has to wait there.

Each function runs in a transaction that the caller has begun, and may run again after a rollback.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, insert, select
from sqlalchemy.dialects import postgresql, sqlite


def insert_into(conn: Connection, table: Table) -> Any:
    """The INSERT of the database in use, which can say what happens if the row is there already."""
    dialect: Any = {"postgresql": postgresql, "sqlite": sqlite}[conn.dialect.name]
    return dialect.insert(table)


def insert_row(conn: Connection, table: Table, **values: Any) -> int:
    """Insert a row, and return its id."""
    made = conn.execute(insert(table).values(values)).inserted_primary_key
    assert made is not None  # a single insert always has one
    return int(made[0])


def insert_missing(
    conn: Connection, table: Table, rows: Sequence[Mapping[str, Any]], key: ColumnElement[Any]
) -> set[Any]:
    """Insert those rows that no other transaction has inserted.

    If another transaction is just inserting the same row, this waits for its end.

    :param rows: in the order in which all transactions insert them, so that none waits in a circle.
    :param key: a column.
    :returns: the values of the column in the inserted rows.
    """
    missing = insert_into(conn, table).on_conflict_do_nothing().returning(key)
    return set(conn.scalars(missing, list(rows)))


def lock_rows(conn: Connection, column: ColumnElement[Any], keys: Collection[Any]) -> None:
    """Lock the rows with these keys until the transaction ends, in the order of the keys.

    All who lock several rows of one table lock them in this order, so that no two transactions
    wait for each other.  Rows may still refer to the locked ones.
    """
    if conn.dialect.name == sqlite.dialect.name or not keys:
        return
    rows = select(column).where(column.in_(keys)).order_by(column)
    conn.execute(rows.with_for_update(key_share=True)).all()
