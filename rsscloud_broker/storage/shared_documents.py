"""Stores the files for crawlers that one node makes, so that all nodes serve the same bytes.

A document is stored in parts, each in a transaction of its own, so that no other write waits long
for a large one.  Nobody sees it before its last transaction, which also removes the version before.
Its bytes are kept gzipped, as crawlers get them; each node unpacks them.

Each function runs in a transaction that the caller has begun, and may run again after a rollback.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from sqlalchemy import Connection, and_, delete, false, select, true, update

from rsscloud_broker.database.columns import insert_into, insert_row, record_of, to_micros
from rsscloud_broker.model.shared import SharedDocument
from rsscloud_broker.storage.hints import DOCUMENT, hint
from rsscloud_broker.storage.nodes import database_clock
from rsscloud_broker.storage.shared_schema import document, document_part

#: How many names one statement takes; PostgreSQL takes 65,535 parameters, and SQLite 32,766.
_AT_ONCE = 10_000

_IS_PRESENT = document.c.whole == true()


def begin_document(conn: Connection, name: str, made_at: float) -> int:
    """Begin to store a version of a document; an unfinished one of that name is dropped.

    :param name: the path at which it is served, such as ``/2026/09/29/12.xml``.
    :returns: the id of the version.
    """
    unfinished = and_(document.c.name == name, document.c.whole == false())
    conn.execute(delete(document).where(unfinished))
    return insert_row(conn, document, name=name, made_at=to_micros(made_at))


def put_document_part(conn: Connection, key: int, number: int, body: bytes) -> bool:
    """Store a part of an unfinished version.

    :param key: the id of the version.
    :param number: 0 for the first part.
    :param body: some of the bytes of the gzipped document.
    :returns: False if the version was dropped.
    """
    if not _is_unfinished(conn, key):
        return False
    values = {"document_id": key, "number": number, "body": body}
    conn.execute(insert_into(conn, document_part).values(values).on_conflict_do_nothing())
    return True


def finish_document(conn: Connection, key: int, size: int, records: int) -> bool:
    """Make an unfinished version the present one, in place of the one before.

    The caller has stored all its parts, and still has the claim of the job that makes it.

    :param size: the bytes of the document, not gzipped.
    :param records: how many pings are listed in it, which must be more than in the version before;
        0 if it is no list of pings.
    :returns: False if the version lists too few pings and is dropped, or was dropped before.
    """
    if not _is_unfinished(conn, key):
        return False
    name = select(document.c.name).where(document.c.id == key).scalar_subquery()
    earlier = and_(document.c.name == name, _IS_PRESENT)
    if records:
        listed = conn.execute(select(document.c.records).where(earlier).with_for_update()).scalar()
        if listed is not None and listed >= records:
            drop_document(conn, key)
            return False
    conn.execute(delete(document).where(earlier))
    values = {"size": size, "records": records, "stored_at": database_clock(conn), "whole": True}
    conn.execute(update(document).where(document.c.id == key).values(values))
    hint(conn, DOCUMENT, key)
    return True


def drop_document(conn: Connection, key: int) -> None:
    """Drop an unfinished version."""
    conn.execute(delete(document).where(document.c.id == key, document.c.whole == false()))


def _is_unfinished(conn: Connection, key: int) -> bool:
    """Whether a version is there and unfinished.  It stays so until this transaction ends."""
    row = select(document.c.id).where(document.c.id == key, document.c.whole == false())
    return conn.execute(row.with_for_update()).first() is not None


def shared_documents(conn: Connection, names: Collection[str]) -> list[SharedDocument]:
    """The present versions of some documents, in any order; none of one that is not stored."""
    wanted, found = list(names), []
    for begin in range(0, len(wanted), _AT_ONCE):
        among = document.c.name.in_(wanted[begin : begin + _AT_ONCE])
        rows = conn.execute(select(document).where(among, _IS_PRESENT))
        found += [record_of(SharedDocument, row) for row in rows]
    return found


def documents_since(
    conn: Connection, stored_at: float, after: str, limit: int
) -> list[SharedDocument]:
    """The present versions that were stored after a time, by name.

    A version may appear some seconds late, behind one that was stored after it.

    :param stored_at: by the clock of the database.
    :param after: the name of the last document of the page before; empty at first.
    """
    newer = and_(document.c.stored_at > to_micros(stored_at), document.c.name > after, _IS_PRESENT)
    query = select(document).where(newer).order_by(document.c.name)
    return [record_of(SharedDocument, row) for row in conn.execute(query.limit(limit))]


def document_part_body(conn: Connection, key: int, number: int) -> bytes | None:
    """A part of a version; None after its last part, or if there is a newer version."""
    part = and_(document_part.c.document_id == key, document_part.c.number == number)
    body = conn.execute(select(document_part.c.body).where(part)).scalar()
    return cast(bytes | None, body)
