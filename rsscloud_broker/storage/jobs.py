"""Has one node at a time do a job for all nodes.

A job is a row with a name, the time at which it is due, and the node that has claimed it.  When the
job is done, the node sets the time at which it is due next.  If the node dies before, the job is
still due and its claim is free, so another node does it.  Nothing that a job is to do is skipped:
the time in the row says since when it has not been done.

A job that never ends, such as to pass pings on to a server, is claimed and never done.

Each function runs in a transaction that the caller has begun, and may run again after a rollback.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, false, func, select, update

from rsscloud_broker.database import sqlite
from rsscloud_broker.database.columns import insert_into, to_micros, to_seconds
from rsscloud_broker.model.shared import JobTurn
from rsscloud_broker.storage.hints import FREED, hint
from rsscloud_broker.storage.shared_schema import job


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


def finish_job(conn: Connection, name: str, due_at: float, here: int | None) -> bool:
    """Store when a job is due next, and end this process's claim; without a claim return False."""
    done = update(job).where(_claimed_by(name, here)).values(due_at=to_micros(due_at), node_id=None)
    return conn.execute(done).rowcount > 0


def release_job(conn: Connection, name: str, here: int | None) -> None:
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
