"""Stores, reads and prunes the entries of the event log.

The table gets more rows than any other, and readers search it by topic and host.  A URL may be too
long for an index, and long texts make indexes large.  So each row has hashes of its topic and its
host, of eight bytes, and the indexes are over those.

Each function runs in a transaction that the caller has begun, and may run again after a
rollback.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Select,
    delete,
    func,
    insert,
    literal_column,
    select,
    true,
    union_all,
)

from rsscloud_broker.log_entries import KINDS, LogEntry, LogFilter
from rsscloud_broker.storage import postgresql, sqlite
from rsscloud_broker.storage.row_batch import RowBatch
from rsscloud_broker.storage.schema import log_entry, to_micros, to_seconds

#: How many entries of a topic or a host are searched for those of a kind.  A search through all of
#: them could take seconds.
SEARCHED = 20_000

_ROW = log_entry.c
_COLUMNS = (
    _ROW.id,
    _ROW.kind,
    _ROW.outcome,
    _ROW.at,
    _ROW.topic,
    _ROW.host,
    _ROW.protocol,
    _ROW.callback,
    _ROW.source,
    _ROW.account,
    _ROW.reason,
    _ROW.numbers,
)


def add_log_entries(conn: Connection, entries: Sequence[LogEntry]) -> None:
    """See ``IStore.add_log_entries``."""
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
            "topic_key": _key(entry.topic),
            "host_key": _key(entry.host),
        }
        for entry in entries
    ]
    if sqlite.serves(conn):
        sqlite.insert_at_once(conn, log_entry, rows)
    else:
        conn.execute(insert(log_entry), rows)


def _key(text: str) -> int | None:
    """A hash of a text that fits into a BIGINT; None for an empty text."""
    if not text:
        return None
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def log_entries(
    conn: Connection, wanted: LogFilter, before: int | None, limit: int
) -> list[LogEntry]:
    """See ``IStore.log_entries``."""
    bound = _settled(conn) if before is None else _ROW.id < before
    found = _entries(conn, wanted, bound, _ROW.id.desc(), limit)
    return sorted(found, key=lambda entry: -entry.id)


def log_entries_after(
    conn: Connection, wanted: LogFilter, after: int, limit: int
) -> list[LogEntry]:
    """See ``IStore.log_entries_after``."""
    bound = _settled(conn) & (_ROW.id > after)
    found = _entries(conn, wanted, bound, _ROW.id.asc(), limit)
    return sorted(found, key=lambda entry: entry.id)


def _settled(conn: Connection) -> ColumnElement[bool]:
    """Whether no row with a smaller id can appear any more.

    PostgreSQL gives out ids before the commit, so a row may appear after one with a greater id.
    A row is settled when all transactions that still run began after the one that wrote it; or
    after two minutes, since no transaction of a broker takes so long, while one of another
    program on the same server may take hours.

    On SQLite every row is settled, since only one transaction writes at a time.
    """
    if conn.dialect.name != postgresql.DIALECT:
        return true()
    return literal_column(
        "(age(log_entry.xmin) > age(pg_snapshot_xmin(pg_current_snapshot())::xid) "
        "OR log_entry.at < extract(epoch FROM clock_timestamp() - interval '2 minutes') * 1000000)",
        Boolean,
    )


def _entries(
    conn: Connection,
    wanted: LogFilter,
    bound: ColumnElement[bool],
    order: ColumnElement[Any],
    limit: int,
) -> list[LogEntry]:
    """The first entries in an order that pass a filter and a bound, in any order."""
    conditions = _conditions(wanted)
    if wanted.topic or wanted.host:
        first, rest = conditions[:2], conditions[2:]
        query = select(*_COLUMNS).where(*first, bound).order_by(order)
        if rest:
            some = select(_ROW.id).where(*first, bound).order_by(order).limit(SEARCHED).subquery()
            query = select(*_COLUMNS).join(some, some.c.id == _ROW.id).where(*rest).order_by(order)
    elif wanted.kind or wanted.outcome:
        found = _of_kinds(wanted, bound, order, limit)
        if found is None:
            return []
        query = select(*_COLUMNS).where(_ROW.id.in_(found)).order_by(order)
    else:
        query = select(*_COLUMNS).where(bound).order_by(order)
    return [_entry(row) for row in RowBatch(query.limit(limit)).read(conn, {})]


def _conditions(wanted: LogFilter) -> list[ColumnElement[bool]]:
    """The conditions of a filter; the first two are those that an index serves."""
    conditions: list[ColumnElement[bool]] = []
    hashed = ((wanted.topic, _ROW.topic, _ROW.topic_key), (wanted.host, _ROW.host, _ROW.host_key))
    for text, column, key in hashed:
        if text:
            conditions += [key == _key(text), column == text]
    plain: tuple[tuple[str, Column[Any]], ...]
    plain = ((wanted.kind, _ROW.kind), (wanted.outcome, _ROW.outcome))
    conditions += [column == text for text, column in plain if text]
    return conditions


def _of_kinds(
    wanted: LogFilter, bound: ColumnElement[bool], order: ColumnElement[Any], limit: int
) -> Select[Any] | None:
    """The ids of the first entries of each kind and outcome that pass a filter.

    The index has them in order of their ids for one kind and outcome, and not for several.
    None if there are no such kinds.
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
    return select(union_all(*parts).subquery().c.id) if parts else None


def _entry(row: Sequence[Any]) -> LogEntry:
    (
        key, kind, outcome, at, topic, host, protocol, callback, source, account, reason, numbers,
    ) = row  # fmt: skip
    return LogEntry(
        kind,
        outcome,
        to_seconds(at),
        key,
        topic,
        host,
        protocol,
        callback,
        source,
        account,
        reason,
        json.loads(numbers) if numbers else {},
    )


def prune_log(conn: Connection, before: float, keep: int, limit: int) -> int:
    """See ``IStore.prune_log``."""
    newest = conn.execute(select(func.max(_ROW.id))).scalar()
    if newest is None:
        return 0
    oldest = select(_ROW.id).order_by(_ROW.id).limit(limit)
    removable = (_ROW.at < to_micros(before)) | (_ROW.id <= newest - keep)
    return conn.execute(delete(log_entry).where(_ROW.id.in_(oldest), removable)).rowcount
