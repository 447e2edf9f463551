"""Deletes the entries of archived documents, and finds out of which.

There may be millions.  So ``prune`` deletes a portion, and is called again for the next one.

Each function runs as one step of a transaction that the caller began.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import frozen
from sqlalchemy import ColumnElement, Connection, Select, delete, func, select, update

from rsscloud_broker.database.columns import to_micros
from rsscloud_broker.simplefeed import schema
from rsscloud_broker.simplefeed.log import lock_row

#: How many rows with entries one transaction deletes at most.
AT_ONCE: Final = 1000


@frozen
class Pruned:
    """What was deleted.

    :ivar entries: how many entries.
    :ivar more: whether there are more to delete.
    """

    entries: int
    more: bool


def prune(conn: Connection, name: str, through: int) -> Pruned:
    """Delete entries of archived documents from the database, the oldest first.

    From the first call on, none of the documents is read from the database any more.

    :param through: the number of the last document to prune.
    :raises UnknownLog: there is no such log.
    """
    row = lock_row(conn, name)
    table = schema.document
    chosen = (table.c.log_id == row.id, table.c.number <= through)
    newest = select(table.c.last).where(*chosen).order_by(table.c.number.desc()).limit(1)
    last = conn.execute(newest).scalar()  # the number of the last entry to delete
    if last is None:
        return Pruned(0, more=False)
    conn.execute(update(table).where(*chosen).values(gone=True))
    rows = schema.entries
    of_log = rows.c.log_id == row.id
    until = rows.c.last <= last
    behind = select(rows.c.last).where(of_log, until).order_by(rows.c.last).offset(AT_ONCE)
    following = conn.execute(behind.limit(1)).scalar()
    if following is not None:
        until = rows.c.last < following
    of_these = (of_log, until)
    count = select(func.coalesce(func.sum(rows.c.last - rows.c.first + 1), 0)).where(*of_these)
    deleted = int(conn.execute(count).scalar_one())
    conn.execute(delete(rows).where(*of_these))
    return Pruned(deleted, more=following is not None)


def archived_before(conn: Connection, name: str, at: float) -> int:
    """The number of the last archived document whose entries are all older than a time.

    :param at: seconds since the epoch.
    :returns: 0 if there is none.
    """
    return _last_document(conn, name, schema.document.c.updated_at < to_micros(at))


def archived_through(conn: Connection, name: str, number: int) -> int:
    """The number of the last archived document whose entries all have numbers up to a number.

    :returns: 0 if there is none.
    """
    return _last_document(conn, name, schema.document.c.last <= number)


def _last_document(conn: Connection, name: str, condition: ColumnElement[bool]) -> int:
    """The number of the last archived document of a log with a condition; 0 if there is none."""
    table = schema.document
    found: Select[Any] = (
        select(table.c.number)
        .join(schema.log, schema.log.c.id == table.c.log_id)
        .where(schema.log.c.name == name, condition)
        .order_by(table.c.number.desc())
        .limit(1)
    )
    return conn.execute(found).scalar() or 0
