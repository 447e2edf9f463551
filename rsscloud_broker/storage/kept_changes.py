"""Keeps changes of topics until they are in the feeds of the broker.

Each change is a row, written in the transaction that records the change.  The maker of the feeds
reads the rows in the order of their ids, and then has them removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    LargeBinary,
    Table,
    Text,
    delete,
    insert,
    select,
)

from rsscloud_broker.database.columns import Key, required, to_micros, to_seconds
from rsscloud_broker.database.visible_ids import announce, is_visible
from rsscloud_broker.model import Content
from rsscloud_broker.model.ways import Way
from rsscloud_broker.model.work import History, KeptChange
from rsscloud_broker.storage.schema import metadata

#: Changes of topics that are not in the feeds yet.
kept_change = Table(
    "kept_change",
    metadata,
    Column("id", Key, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("url", Text, nullable=False),
    # How the broker learned of the change: one of ``model.ways.Way``.
    *required(Text, "way", "origin", "content_type"),
    # The bytes of the content.  They are last, since SQLite reads through them to what is behind.
    Column("size", BigInteger, nullable=False),
    Column("body", LargeBinary),
    sqlite_autoincrement=True,
)

#: How many bytes of contents are read at a time; or a single larger one.
READ_BYTES: Final = 8 * 1024 * 1024

_ROW: Final = kept_change.c


def keep_changes(conn: Connection, history: History | None, changes: Sequence[KeptChange]) -> None:
    """Keep those changes of topics that are to be kept.

    :param changes: without ids; each with the new content, if that is known.
    """
    rows = [_row_values(history, one) for one in changes if history and history.has(one.url)]
    if rows:
        announce(conn, "kept_change")
        conn.execute(insert(kept_change), rows)


def _row_values(history: History, change: KeptChange) -> dict[str, Any]:
    """The values of the row of a change."""
    kept = change.content if history.has_content(change.url) else None
    return {
        "at": to_micros(change.at),
        "url": change.url,
        "way": change.way,
        "origin": change.origin,
        "content_type": "" if kept is None else kept.content_type,
        "size": 0 if kept is None else len(kept.body),
        "body": None if kept is None else kept.body,
    }


def kept_changes(conn: Connection, after: int, limit: int) -> list[KeptChange]:
    """The next kept changes behind an id, in the order of their ids: at most ``limit``, and fewer
    if their contents are large.  None is returned before one with a smaller id can still appear.
    """
    query = select(_ROW.id, _ROW.size).where(_ROW.id > after).order_by(_ROW.id).limit(limit)
    query = query.where(is_visible(conn, _ROW.id, "kept_change"))
    chosen: list[int] = []
    size = 0
    for key, length in conn.execute(query):
        size += length
        if chosen and size > READ_BYTES:
            break
        chosen.append(key)
    rows = select(kept_change).where(_ROW.id.in_(chosen)).order_by(_ROW.id)
    return [_change(row) for row in conn.execute(rows)] if chosen else []


def remove_kept_changes(conn: Connection, through: int) -> int:
    """Remove the kept changes up to an id, since they are in the feeds by now; return how many."""
    return conn.execute(delete(kept_change).where(_ROW.id <= through)).rowcount


def _change(row: Any) -> KeptChange:
    """The change in a row."""
    content = None if row.body is None else Content(row.body, row.content_type)
    return KeptChange(row.id, row.url, to_seconds(row.at), Way(row.way), row.origin, content)
