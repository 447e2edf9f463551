"""Has one node at a time do a job for all nodes, and stores the files for crawlers that it makes.

A job is a row with a name, the time at which it is due, and the node that has claimed it.  When the
job is done, the node sets the time at which it is due next.  If the node dies before, the job is
still due and its claim is free, so another node does it.  Nothing that a job is to do is skipped:
the time in the row says since when it has not been done.

A job that never ends, such as to pass pings on to a server, is claimed and never done.

A document is stored in parts, each in a transaction of its own, so that no other write waits long
for a large one.  Nobody sees it before its last transaction, which also removes the version before.
Its bytes are kept gzipped, as crawlers get them; each node unpacks them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    delete,
    false,
    func,
    select,
    true,
    update,
)

from rsscloud_broker.database import sqlite
from rsscloud_broker.database.columns import (
    insert_into,
    insert_row,
    record_of,
    to_micros,
    to_seconds,
)
from rsscloud_broker.model.shared import JobTurn, SharedDocument
from rsscloud_broker.storage.hints import DOCUMENT, FREED, hint
from rsscloud_broker.storage.nodes import database_clock
from rsscloud_broker.storage.operating_schema import document, document_part, job


def claim_job(conn: Connection, name: str, now: float, period: float, node: int) -> JobTurn:
    """Claim a job, if it is due and no other node has claimed it: see ``IJobs.claim_job``.

    :param node: the node id of this process.
    :returns: since when the job is due or when it will be, and whether this process has the claim.
    """
    row = _find_job(conn, name)
    if row is None:
        _insert_job(conn, name)
        row = _find_job(conn, name)
        assert row is not None  # it is there now
    due_at = to_seconds(row.due_at)
    # A time that is too far away was set by a clock that was wrong.
    is_due = due_at <= now or due_at > now + period
    claimed = is_due and (row.node_id == node or (row.node_id is None and _claim(conn, row, node)))
    return JobTurn(due_at, claimed, is_others=is_due and not claimed)


def _find_job(conn: Connection, name: str) -> Row[Any] | None:
    return conn.execute(select(job).where(job.c.name == name)).first()


def _insert_job(conn: Connection, name: str) -> None:
    """Add a job that is due.  Nodes that start together wait for each other."""
    if not sqlite.serves(conn):
        # The advisory lock of PostgreSQL that a transaction takes to add jobs.
        conn.execute(select(func.pg_advisory_xact_lock(0x72737363_6A6F6273)))
    conn.execute(insert_into(conn, job).values(name=name, due_at=0).on_conflict_do_nothing())


def _claim(conn: Connection, row: Row[Any], here: int) -> bool:
    """Claim a job, unless it has changed, or another transaction is just claiming it.

    Nobody waits for that, as one transaction may claim several jobs: two might wait for each other.
    """
    same = and_(job.c.name == row.name, job.c.due_at == row.due_at, job.c.node_id.is_(None))
    locked = select(job.c.name).where(same).with_for_update(skip_locked=True)
    if conn.execute(locked).first() is None:
        return False
    conn.execute(update(job).where(same).values(node_id=here))
    return True


def late_jobs(conn: Connection) -> dict[str, float]:
    """Since when the jobs are due that were done before, by their names."""
    rows = conn.execute(select(job.c.name, job.c.due_at).where(job.c.due_at > 0))
    return {row.name: to_seconds(row.due_at) for row in rows}


def finish_job(conn: Connection, here: int | None, name: str, due_at: float) -> bool:
    """Store when a job is due next, and end this process's claim; without a claim return False."""
    done = update(job).where(_claimed_by(name, here)).values(due_at=to_micros(due_at), node_id=None)
    return conn.execute(done).rowcount > 0


def release_job(conn: Connection, here: int | None, name: str) -> None:
    """End the claim of this process on a job, which stays due, so that another node does it."""
    if conn.execute(update(job).where(_claimed_by(name, here)).values(node_id=None)).rowcount:
        hint(conn, FREED)


def request_job(conn: Connection, name: str, since: float) -> None:
    """Make a job due since an earlier time, and free it: see ``IJobs.request_job``."""
    row = conn.execute(select(job.c.due_at).where(job.c.name == name).with_for_update()).first()
    if row is not None:
        due_at = min(row.due_at, to_micros(since))
        conn.execute(update(job).where(job.c.name == name).values(due_at=due_at, node_id=None))


def lock_claim(conn: Connection, name: str, here: int | None) -> bool:
    """Whether a node has the claim of a job, which nobody can take from it in this transaction."""
    held = select(job.c.name).where(_claimed_by(name, here)).with_for_update()
    return conn.execute(held).first() is not None


def _claimed_by(name: str, here: int | None) -> ColumnElement[bool]:
    """The condition that a process has claimed a job; false if the process has no id (None)."""
    return and_(job.c.name == name, job.c.node_id == here) if here else false()


# --- documents, of which all nodes serve the same bytes

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
