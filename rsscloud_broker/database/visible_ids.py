"""Finds out which rows are visible to all: no row with a smaller id can appear any more.

Readers that remember by an id how far they have read miss a row that appears behind them.  On
SQLite one transaction writes at a time, so every row is visible.  PostgreSQL gives out ids before
the commit, and its transactions do not end in the order of their ids, nor in that of their numbers:
one that inserts many rows draws ids before and after those of another one.

So a transaction that inserts rows first announces, by a shared advisory lock until the end of the
transaction, the last id that was given out until then.  All ids that it draws are greater.  A
reader finds the locks of those who are still at it in ``pg_locks``; rows up to the smallest
announced id are visible.  Nobody waits for such a lock.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, Connection, TextClause, text, true

from rsscloud_broker.database import postgresql

#: The tables that are read in this way, with the first number of their advisory locks.  Nothing
#: else in the database may use these with a second number.
_CLASSES: Final = {
    "ping": 1_886_219_879,
    "log_entry": 1_886_219_880,
    "kept_change": 1_886_219_881,
    "river_item": 1_886_219_882,
}

#: Advisory locks have numbers of 32 bits, so ids are announced modulo this.
_MODULUS: Final = 2**31

_LAST: Final = "CASE WHEN is_called THEN last_value ELSE 0 END"


def _announcing(table: str) -> TextClause:
    """The statement that takes the lock of a table whose number is the last id given out."""
    low = f"(({_LAST}) % {_MODULUS})::integer"
    lock = f"pg_advisory_xact_lock_shared({_CLASSES[table]}, {low})"
    return text(f"SELECT {lock} FROM {table}_id_seq")  # noqa: S608 # our own table


def _last_id(table: str) -> TextClause:
    """The statement for the last id that was given out for a table."""
    return text(f"SELECT {_LAST} FROM {table}_id_seq")  # noqa: S608 # our own table


_ANNOUNCE: Final = {table: _announcing(table) for table in _CLASSES}
_LAST_ID: Final = {table: _last_id(table) for table in _CLASSES}
_ANNOUNCED: Final = text(
    "SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND classid = :class "
    "AND objsubid = 2 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def announce(conn: Connection, table: str) -> None:
    """Announce that this transaction is going to insert rows.

    :param table: the name of one of the tables that are read by their ids.
    """
    if conn.dialect.name == postgresql.DIALECT:
        conn.execute(_ANNOUNCE[table])


def is_visible(conn: Connection, key: ColumnElement[int], table: str) -> ColumnElement[bool]:
    """The condition for the rows of a table that are visible to all: see ``visible_ids``.

    :param key: the column with the ids.
    """
    until = visible_ids(conn, table)
    return true() if until is None else key <= until


def visible_ids(conn: Connection, table: str) -> int | None:
    """The id up to which the rows of a table are visible to all; None if all are.

    Read the rows after this, in a later statement of a transaction that sees what is committed
    (READ COMMITTED).
    """
    if conn.dialect.name != postgresql.DIALECT:
        return None
    # In this order: a transaction that has drawn an id up to ``last`` then has its lock, or ended.
    last = int(conn.execute(_LAST_ID[table]).scalar_one())
    announced = conn.execute(_ANNOUNCED, {"class": _CLASSES[table]}).scalars()
    # A lock has only the low bits of an id: the id is the last one up to ``last`` with these bits.
    return min([last, *(last - (last - int(low)) % _MODULUS for low in announced)])
