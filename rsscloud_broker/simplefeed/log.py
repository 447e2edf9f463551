"""Appends entries to logs, and reads logs.

Each function runs as one step of a transaction that the caller began.  So an entry can be stored
in the transaction of the fact that it tells: it is in the log if and only if the fact is stored.

The numbers of a log's entries are 1, 2, 3 and so on, without gaps and in the order of the commits,
even if several processes append.  For this, ``append`` locks the log until the transaction ends.
A transaction that appends to several logs must do so in one order, or two transactions wait for
each other, and the database ends one: first to the log that most transactions append to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from attrs import asdict, evolve, field, frozen
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from rsscloud_broker.database.columns import (
    insert_missing,
    insert_on_sqlite,
    record_of,
    to_micros,
    to_seconds,
)
from rsscloud_broker.simplefeed import schema
from rsscloud_broker.simplefeed.entries import Entry, new_id

#: How many entries a document has, unless the log says otherwise.
PER_DOCUMENT: Final = 100

#: The most bytes of entries in a document, however few they are, since followers do not fetch
#: documents of any size.
MAX_DOCUMENT_BYTES: Final = 2 * 1024 * 1024

#: How many entries a row has at most.  A row has entries of one document that were appended
#: together; that takes a third of the time of a row for each.
PER_ROW: Final = 100

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[Entry]).decode


class UnknownLog(LookupError):
    """There is no log with this name.  ``open_log`` makes one."""


@frozen
class Description:
    """What callers choose of a log, when they open it.

    :ivar name: the name of the log in the database.
    :ivar title, author: those of the feed that publishes the log.
    :ivar per_document: how many entries a document has.
    """

    name: str
    title: str
    author: str = "rsscloud-broker"
    per_document: int = PER_DOCUMENT


@frozen
class LogState:
    """The state of a log.

    :ivar feed_id: the id of its feed, which never changes.
    :ivar count: how many entries it has ever had.
    :ivar document: the number of its current document, whose first entry is number ``first``.
        Those before it are archived.
    :ivar updated: the time of its newest entry, or when it was made; in seconds since the epoch.
    :ivar source: how far the rows were read that its entries are made of; 0 if it has no source.
    """

    id: int
    name: str
    feed_id: str
    title: str
    author: str
    per_document: int
    count: int
    document: int
    first: int
    updated: float
    source: int = 0


@frozen
class LogDocument:
    """A document of a log.

    :ivar number: its number; the first is 1.
    :ivar entries: its entries, newest first; empty if they are not in the database.
    :ivar archived: whether it is archived, so that it never changes.
    :ivar gone: whether its entries were removed, as they were too old.
    :ivar updated: the time of its newest entry, in seconds since the epoch.
    """

    log: LogState
    number: int
    entries: Sequence[Entry] = field(repr=False)
    archived: bool
    gone: bool
    updated: float


# The statements are made once, as making one takes as long as running it.

_BY_NAME: Final = select(schema.log).where(schema.log.c.name == bindparam("of"))
_LOCKED: Final = _BY_NAME.with_for_update()
_LOCKED_NOW: Final = _BY_NAME.with_for_update(skip_locked=True)
_APPENDED: Final = update(schema.log).where(schema.log.c.id == bindparam("of"))
_IN_RANGE: Final = (
    select(schema.entries.c.first, schema.entries.c.data)
    .where(
        schema.entries.c.log_id == bindparam("of"),
        schema.entries.c.last.between(bindparam("first"), bindparam("last") + (PER_ROW - 1)),
        schema.entries.c.first <= bindparam("last"),
    )
    .order_by(schema.entries.c.last)
)
_ARCHIVED: Final = select(schema.document).where(
    schema.document.c.log_id == bindparam("of"), schema.document.c.number == bindparam("number")
)


def open_log(conn: Connection, described: Description, at: float) -> LogState:
    """Return a log, which is made if there is none with this name.

    If the description has changed, the log takes over the title, the author and the number of
    entries of a document.  Documents that are archived do not change.

    :param at: the time, in seconds since the epoch.
    """
    row = conn.execute(_BY_NAME, {"of": described.name}).first()
    if row is None:
        return _make_log(conn, described, at)
    given = asdict(described)
    if any(getattr(row, name) != value for name, value in given.items()):
        conn.execute(_APPENDED.values(given), {"of": row.id})
        return evolve(_state_of(row), **given)
    return _state_of(row)


def _make_log(conn: Connection, described: Description, at: float) -> LogState:
    """Make a log without entries, unless another transaction makes it at this moment."""
    now = to_micros(at)
    first = {"newest": 0, "document": 1, "first": 1, "size": 0}
    values = {"feed_id": new_id(), "created_at": now, "updated_at": now, **first}
    # Another transaction may make the same log at this moment.  PostgreSQL waits for it here.
    insert_missing(conn, schema.log, [asdict(described) | values], schema.log.c.id)
    return _state_of(conn.execute(_BY_NAME, {"of": described.name}).one())


def find_log(conn: Connection, name: str) -> LogState | None:
    """The log with a name; None if there is none."""
    row = conn.execute(_BY_NAME, {"of": name}).first()
    return None if row is None else _state_of(row)


def feed_ids(conn: Connection) -> set[str]:
    """The ids of the feeds of all logs."""
    return set(conn.execute(select(schema.log.c.feed_id)).scalars())


def count_logs(conn: Connection, prefix: str) -> int:
    """How many logs have names that begin with a prefix."""
    return conn.execute(select(func.count()).where(_name_begins(prefix))).scalar_one()


def stalest_logs(conn: Connection, prefix: str, limit: int) -> list[LogState]:
    """Of the logs whose names begin with a prefix, those whose newest entries are oldest."""
    of_prefix = select(schema.log).where(_name_begins(prefix))
    oldest = of_prefix.order_by(schema.log.c.updated_at, schema.log.c.id).limit(limit)
    return [_state_of(row) for row in conn.execute(oldest)]


def known_logs(conn: Connection, names: Sequence[str]) -> set[str]:
    """Those of some names that logs have."""
    column = schema.log.c.name
    return set(conn.execute(select(column).where(column.in_(names))).scalars())


def _name_begins(prefix: str) -> ColumnElement[bool]:
    return schema.log.c.name.startswith(prefix, autoescape=True)


def logs(conn: Connection, after: str = "", limit: int = 1000) -> list[LogState]:
    """Logs in the order of their names.

    :param after: the name of the last log of the page before.
    """
    by_name = select(schema.log).where(schema.log.c.name > after).order_by(schema.log.c.name)
    return [_state_of(row) for row in conn.execute(by_name.limit(limit))]


def remove_log(conn: Connection, name: str) -> bool:
    """Remove a log with all its entries.  Its archived files stay.

    If it has very many entries, prune it first: this runs one statement.

    :returns: whether there was such a log.
    """
    return conn.execute(delete(schema.log).where(schema.log.c.name == name)).rowcount > 0


def lock(conn: Connection, name: str) -> LogState | None:
    """Lock a log until the transaction ends, without waiting.

    This is for a log whose entries are made of the rows of another table, by one process or
    several.  In one transaction the caller locks the log, looks whether the rows until
    ``LogState.source`` are those that were read, appends, and sets the source (``append``).  So
    each row becomes an entry once.

    :returns: None if another transaction has locked it, or if there is no such log.
    """
    row = conn.execute(_LOCKED_NOW, {"of": name}).first()
    return None if row is None else _state_of(row)


def append(
    conn: Connection, name: str, entries: Sequence[Entry], source: int | None = None
) -> list[int]:
    """Append entries to a log, the oldest first, in the transaction of the caller.

    An entry that is older than the one before it gets the time of that one, so that times never go
    back even if somebody sets the clock.  The log is locked until the transaction ends.

    :param source: how far the rows were read that the entries are made of; None to leave it.
    :returns: the numbers of the entries.
    :raises UnknownLog: there is no such log.
    """
    row = lock_row(conn, name)
    if not entries:
        if source is not None:
            conn.execute(_APPENDED.values(source=source), {"of": row.id})
        return []
    number, first, size = row.newest, row.first, row.size
    last = row.updated_at if number else 0  # a log without entries has the time when it was made
    rows: list[dict[str, Any]] = []  # the entries
    full: list[dict[str, Any]] = []  # the documents that are archived now
    together: list[msgspec.Raw] = []  # the entries of the next row
    for entry in entries:
        if number >= first + row.per_document - 1 or size > MAX_DOCUMENT_BYTES:
            full.append(
                {
                    "log_id": row.id,
                    "number": row.document + len(full),
                    "first": first,
                    "last": number,
                    "updated_at": last,
                    "gone": False,
                }
            )
            first, size = number + 1, 0
        if together and (number < first or len(together) == PER_ROW):
            rows.append(_make_row(row.id, number, together))
            together = []
        number += 1
        at = to_micros(entry.updated)
        last = max(at, last)
        data = _encode(entry if at == last else evolve(entry, updated=to_seconds(last)))
        size += len(data)
        together.append(msgspec.Raw(data))
    rows.append(_make_row(row.id, number, together))
    if conn.dialect.name == "sqlite":
        insert_on_sqlite(conn, schema.entries, rows)
    else:
        conn.execute(insert(schema.entries), rows)
    if full:
        conn.execute(insert(schema.document), full)
    changed = {
        "newest": number,
        "document": row.document + len(full),
        "first": first,
        "size": size,
        "updated_at": last,
        "source": row.source if source is None else source,
    }
    conn.execute(_APPENDED, {"of": row.id} | changed)
    return list(range(row.newest + 1, number + 1))


def lock_row(conn: Connection, name: str) -> Row[Any]:
    """The row of a log, which is locked until the transaction ends.

    :raises UnknownLog: there is no such log.
    """
    row = conn.execute(_LOCKED, {"of": name}).first()
    if row is None:
        raise UnknownLog(f"there is no log {name!r}")
    return row


def _make_row(log_id: int, last: int, together: Sequence[msgspec.Raw]) -> dict[str, Any]:
    """A row with some entries, of which the last has the number ``last``."""
    first = last - len(together) + 1
    return {"log_id": log_id, "last": last, "first": first, "data": _encode(together)}


def read_document(conn: Connection, name: str, number: int | None = None) -> LogDocument | None:
    """A document of a log.

    :param number: None for the current document.
    :returns: None if there is no such log or document.
    """
    row = conn.execute(_BY_NAME, {"of": name}).first()
    if row is None:
        return None
    log = _state_of(row)
    if number is None or number == log.document:
        entries = _read_newest_first(conn, log.id, log.first, log.count)
        return LogDocument(
            log, log.document, entries, archived=False, gone=False, updated=log.updated
        )
    found = conn.execute(_ARCHIVED, {"of": log.id, "number": number}).first()
    if found is None:
        return None
    entries = [] if found.gone else _read_newest_first(conn, log.id, found.first, found.last)
    updated = to_seconds(found.updated_at)
    return LogDocument(log, number, entries, archived=True, gone=found.gone, updated=updated)


def entries_after(
    conn: Connection, name: str, number: int, limit: int
) -> list[tuple[int, Entry]] | None:
    """Entries of a log with their numbers, oldest first: for those who keep a cursor.

    :param number: the number of the last entry of the page before; 0 for the first page.
    :returns: at most ``limit`` entries; None if some of them are not in the database any more.
    :raises UnknownLog: there is no such log.
    """
    log = find_log(conn, name)
    if log is None:
        raise UnknownLog(f"there is no log {name!r}")
    last = min(log.count, number + limit)
    found = _read_range(conn, log.id, number + 1, last)
    return found if len(found) == max(0, last - number) else None


def oldest_number(conn: Connection, name: str) -> int:
    """The number of the oldest entry of a log that is in the database; 0 if there is none."""
    oldest = (
        select(schema.entries.c.first)
        .join(schema.log, schema.log.c.id == schema.entries.c.log_id)
        .where(schema.log.c.name == name)
        .order_by(schema.entries.c.last)
        .limit(1)
    )
    return conn.execute(oldest).scalar() or 0


def _read_newest_first(conn: Connection, log_id: int, first: int, last: int) -> list[Entry]:
    """The entries with numbers from ``first`` to ``last``, the newest first."""
    return [entry for _, entry in _read_range(conn, log_id, first, last)][::-1]


def _read_range(conn: Connection, log_id: int, first: int, last: int) -> list[tuple[int, Entry]]:
    """The entries with numbers from ``first`` to ``last``, with these."""
    rows = conn.execute(_IN_RANGE, {"of": log_id, "first": first, "last": last})
    return [
        (number, entry)
        for row in rows
        for number, entry in enumerate(_decode(row.data), row.first)
        if first <= number <= last
    ]


def _state_of(row: Row[Any]) -> LogState:
    return record_of(LogState, row, count=row.newest, updated=to_seconds(row.updated_at))
