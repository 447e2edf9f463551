"""Stores, reads and prunes the entries of the event log.

The table gets more rows than any other, and readers search it by topic and host.  A URL may be too
long for an index, and long texts make indexes large.  So each row has hashes of its topic and its
host, and the indexes are over those.

Hashes come in no order, and an index of a million of them has thousands of pages: five hundred new
rows would change nearly as many pages, and the database would write all of them.  So the indexes
begin with the number of a block of ids: new rows change only the pages of the newest block, some
dozens.  A reader looks into one block after the other; a million rows have 62.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from zlib import crc32

from attrs import fields_dict
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Index,
    Select,
    Table,
    Text,
    delete,
    false,
    func,
    literal_column,
    select,
    text,
    union_all,
)

from rsscloud_broker.database.columns import Key, required, to_micros, to_seconds
from rsscloud_broker.database.many_values import RowBatch, insert_at_once
from rsscloud_broker.database.visible_ids import announce, is_visible
from rsscloud_broker.model.log_entry import KINDS, LogEntry, LogFilter
from rsscloud_broker.storage.schema import metadata

#: The event log.
log_entry = Table(
    "log_entry",
    metadata,
    Column("id", Key, primary_key=True),
    Column("at", BigInteger, nullable=False),
    *required(Text, "kind", "outcome", "topic", "host", "protocol", "callback"),
    *required(Text, "source", "account", "reason"),
    # A JSON object, or empty if there are none.
    Column("numbers", Text, nullable=False),
    # Hashes of the topic and the host, which make small indexes; null if there is none.
    Column("topic_key", BigInteger),
    Column("host_key", BigInteger),
    Index("ix_log_entry_kind", "kind", "outcome", "id"),
    sqlite_autoincrement=True,
)

#: How many ids a block has, and the number of the block that an entry is in.
_BLOCK = 16_384
_BLOCK_NUMBER = f"id / {_BLOCK}"

for _hash in (log_entry.c.topic_key, log_entry.c.host_key):
    Index(
        f"ix_log_entry_{_hash.name}",
        text(f"({_BLOCK_NUMBER})"),
        _hash,
        log_entry.c.id,
        sqlite_where=_hash.is_not(None),
        postgresql_where=_hash.is_not(None),
        _table=log_entry,
    )

_BLOCK_OF = literal_column(f"log_entry.{_BLOCK_NUMBER}", BigInteger)

_ROW = log_entry.c
# In the order of the attributes of ``LogEntry``.
_COLUMNS = tuple(_ROW[name] for name in fields_dict(LogEntry))


def add_log_entries(conn: Connection, entries: Sequence[LogEntry]) -> None:
    """Add entries to the event log.  Their ids ascend in this order."""
    if not entries:
        return
    rows: list[dict[str, Any]] = [
        {
            "at": to_micros(entry.at),
            "kind": entry.kind,
            "outcome": entry.outcome,
            "topic": entry.topic,
            "host": entry.host,
            "protocol": entry.protocol,
            "callback": entry.callback,
            "source": entry.source,
            "account": entry.account,
            "reason": entry.reason,
            "numbers": json.dumps(dict(entry.numbers)) if entry.numbers else "",
            "topic_key": _hash_of(entry.topic),
            "host_key": _hash_of(entry.host),
        }
        for entry in entries
    ]
    announce(conn, "log_entry")
    insert_at_once(conn, log_entry, rows)


def _hash_of(url_or_host: str) -> int | None:
    """The hash of the URL of a topic, or of a host; None for an empty text."""
    if not url_or_host:
        return None
    return crc32(url_or_host.encode("utf-8", "surrogatepass"))


def log_entries(
    conn: Connection, wanted: LogFilter, before: int | None, limit: int
) -> list[LogEntry]:
    """The newest entries of the event log that pass a filter: see ``IEventLog.entries``."""
    bound = is_visible(conn, _ROW.id, "log_entry") if before is None else _ROW.id < before
    if wanted.topic or wanted.host:
        last = _last_block(conn)
        if before is not None:  # it may be far beyond the newest entry, as strangers name it
            last = min(last, (before - 1) // _BLOCK)
        return _entries_about(conn, wanted, bound, range(last, _first_block(conn) - 1, -1), limit)
    found = _entries(conn, _select_by_kind(wanted, bound, _ROW.id.desc(), limit))
    return sorted(found, key=lambda entry: -entry.id)


def log_entries_after(
    conn: Connection, wanted: LogFilter, after: int, limit: int
) -> list[LogEntry]:
    """The oldest entries with a greater id: see ``IEventLog.entries_after``."""
    bound = is_visible(conn, _ROW.id, "log_entry") & (_ROW.id > after)
    if wanted.topic or wanted.host:
        first = max((after + 1) // _BLOCK, _first_block(conn))
        return _entries_about(conn, wanted, bound, range(first, _last_block(conn) + 1), limit)
    found = _entries(conn, _select_by_kind(wanted, bound, _ROW.id.asc(), limit))
    return sorted(found, key=lambda entry: entry.id)


def _first_block(conn: Connection) -> int:
    """The number of the block with the oldest entry."""
    return (conn.execute(select(func.min(_ROW.id))).scalar() or 0) // _BLOCK


def _last_block(conn: Connection) -> int:
    """The number of the block with the newest entry."""
    return (conn.execute(select(func.max(_ROW.id))).scalar() or 0) // _BLOCK


def _entries_about(
    conn: Connection, wanted: LogFilter, bound: ColumnElement[bool], blocks: range, limit: int
) -> list[LogEntry]:
    """The first entries of a topic or a host.

    :param blocks: the blocks to look into, in the order of the entries.
    """
    step = blocks.step
    order = (_ROW.id + 0).asc() if step > 0 else (_ROW.id + 0).desc()
    text, key = (wanted.topic, _ROW.topic_key) if wanted.topic else (wanted.host, _ROW.host_key)
    conditions = _conditions(wanted)
    found: list[LogEntry] = []
    # How many entries of a topic or a host are searched for those of a kind.  A search through all
    # of them could take seconds.
    looked_into, number, to_search = 0, 1, 10_000
    while len(found) < limit and looked_into < len(blocks) and to_search > 0:
        # The more blocks had too little, the more are looked into at once.
        some = blocks[looked_into : looked_into + number]
        looked_into, number = looked_into + number, number * 2
        missing = limit - len(found)
        ids = (
            select(_ROW.id).where(_BLOCK_OF.in_(some), key == _hash_of(text), bound).order_by(order)
        )
        # With one condition, that of the topic or the host, each entry is one that is wanted.
        searched = ids.limit(missing if len(conditions) == 1 else to_search).subquery()
        query = (
            select(*_COLUMNS)
            .join(searched, searched.c.id == _ROW.id)
            .where(*conditions)
            .order_by(order)
            .limit(missing)
        )
        found += sorted(_entries(conn, query), key=lambda entry: entry.id * step)
        to_search -= conn.execute(select(func.count()).select_from(searched)).scalar_one()
    return found


def _select_by_kind(
    wanted: LogFilter, bound: ColumnElement[bool], order: ColumnElement[Any], limit: int
) -> Select[Any]:
    """Select the first entries in an order that pass a bound and a filter of kinds."""
    query = select(*_COLUMNS).order_by(order).limit(limit)
    if wanted.kind or wanted.outcome:
        return query.where(_ROW.id.in_(_ids_of_kinds(wanted, bound, order, limit)))
    return query.where(bound)


def _entries(conn: Connection, query: Select[Any]) -> list[LogEntry]:
    """The entries that a query selects, in any order."""
    return [_entry(row) for row in RowBatch(query).read(conn, {})]


def _conditions(wanted: LogFilter) -> list[ColumnElement[bool]]:
    """The conditions of a filter."""
    pairs: tuple[tuple[str, Column[Any]], ...] = (
        (wanted.topic, _ROW.topic),
        (wanted.host, _ROW.host),
        (wanted.kind, _ROW.kind),
        (wanted.outcome, _ROW.outcome),
    )
    found: list[ColumnElement[bool]] = [column == text for text, column in pairs if text]
    if wanted.host and wanted.host_of_topic:
        found += [_ROW.callback == "", _ROW.kind != "host"]  # as LogEntry.is_about_a_subscriber
    return found


def _ids_of_kinds(
    wanted: LogFilter, bound: ColumnElement[bool], order: ColumnElement[Any], limit: int
) -> Select[Any]:
    """Select the ids of the first entries of each kind and outcome that pass a filter.

    The index has them in order of their ids for one kind and outcome, and not for several.
    """
    pairs = [
        (kind, outcome)
        for kind, outcomes in KINDS.items()
        for outcome in outcomes
        if wanted.kind in ("", kind) and wanted.outcome in ("", outcome)
    ]
    parts = []
    for kind, outcome in pairs:
        of_pair = select(_ROW.id).where(_ROW.kind == kind, _ROW.outcome == outcome, bound)
        part = of_pair.order_by(order).limit(limit).subquery()
        parts.append(select(part.c.id))
    if not parts:
        return select(_ROW.id).where(false())
    return select(union_all(*parts).subquery().c.id)


def _entry(row: Sequence[Any]) -> LogEntry:
    kind, outcome, at, *others, numbers = row
    numbers = json.loads(numbers) if numbers else {}
    return LogEntry(*(kind, outcome, to_seconds(at), *others, numbers))


def prune_log(conn: Connection, before: float, keep: int, limit: int, now: float) -> int:
    """Remove the oldest entries that are from before a time, or beyond the newest ``keep``.

    :param limit: how many rows are looked at, so that nothing else waits long.
    :param now: the present time.  Entries that a clock wrote which was ahead keep no later ones.
    :returns: how many were removed; if that is ``limit``, call again.
    """
    newest = conn.execute(select(func.max(_ROW.id))).scalar()
    if newest is None:
        return 0
    is_beyond = _ROW.id <= newest - keep
    is_past = _ROW.at < to_micros(now)
    oldest = select(_ROW.id).where(is_past | is_beyond).order_by(_ROW.id).limit(limit)
    removable = (_ROW.at < to_micros(before)) | is_beyond
    return conn.execute(delete(log_entry).where(_ROW.id.in_(oldest), removable)).rowcount
