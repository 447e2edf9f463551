"""Reads for administrators and metrics which processes work on the database and what each has
claimed, how much space the database takes on the disk, and what waits in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, func, select

from rsscloud_broker.database import sqlite
from rsscloud_broker.database.columns import record_of, to_seconds
from rsscloud_broker.model.administration import NodeState
from rsscloud_broker.storage.nodes import present_time
from rsscloud_broker.storage.schema import CHECK_WAITS, fanout, intent, node, pending, slice_, topic
from rsscloud_broker.storage.shared_schema import job

#: The kinds of work that ``NodeState.claims`` counts.
_COUNTED_CLAIMS = {
    "fan-outs": fanout.c.node_id,
    "checks": topic.c.check_node_id,
    "polls": topic.c.poll_node_id,
    "intents": intent.c.node_id,
}


def node_states(conn: Connection, here: int | None = None) -> list[NodeState]:
    """The processes that work on the database, in the order in which they started.

    :param here: the id of this process; None if it is none of them.
    """
    now = present_time(conn)
    notifications = _count_claims(conn, pending.c.node_id)
    slices = _count_claims(conn, slice_.c.node_id)
    claims = {kind: _count_claims(conn, claim) for kind, claim in _COUNTED_CLAIMS.items()}
    jobs = conn.execute(select(job).where(job.c.node_id.is_not(None)).order_by(job.c.name)).all()
    # On SQLite nobody writes heartbeats.  That of a node that is just removed has a minus.
    beats = not sqlite.serves(conn)
    return [
        record_of(
            NodeState,
            row,
            here=row.id == here,
            notifications=notifications.get(row.id, 0),
            slices=slices.get(row.id, 0),
            silent_for=max(0.0, now - to_seconds(abs(row.beat_at))) if beats else None,
            claims={kind: counts.get(row.id, 0) for kind, counts in claims.items()},
            jobs=tuple(one.name for one in jobs if one.node_id == row.id),
            notified=row.notifications,
            ping_rate=row.ping_rate if beats else None,
            notification_rate=row.notification_rate if beats else None,
        )
        for row in conn.execute(select(node).order_by(node.c.id))
    ]


def _count_claims(conn: Connection, claim: ColumnElement[int | None]) -> dict[int, int]:
    """How many rows each node has claimed."""
    query = select(claim, func.count()).where(claim.is_not(None)).group_by(claim)
    return dict(conn.execute(query).tuples().all())  # type: ignore[arg-type] # none is null


def measure_sizes(conn: Connection) -> Mapping[str, int]:
    """The bytes of each part of the database.

    :returns: ``main``, the database; and for an SQLite file ``wal``, its write-ahead log.
    """
    if not sqlite.serves(conn):
        size = func.pg_database_size(func.current_database())
        return {"main": conn.execute(select(size)).scalar_one()}
    pages = conn.exec_driver_sql("PRAGMA page_count").scalar_one()
    found = {"main": pages * conn.exec_driver_sql("PRAGMA page_size").scalar_one()}
    path = sqlite.path_of(conn.engine.url)
    if path is not None:
        found["wal"] = 0
        with suppress(FileNotFoundError):  # SQLite removes the log when the broker stops
            found["wal"] = Path(f"{path}-wal").stat().st_size
    return found


def count_waiting_checks(conn: Connection) -> Mapping[str, int]:
    """How many topics wait in the database to be fetched, and no process has them in memory.

    Counted to ten thousand each.

    An index has only the rows that are counted, and PostgreSQL reads an index alone, as nothing
    uses the ids.

    :returns: ``ready``, which any process may claim; and ``put_off``, which are fetched again
        later, as a fetch has failed.
    """
    states = {"ready": CHECK_WAITS, "put_off": topic.c.check_due_at.is_not(None)}
    found = {}
    for state, is_in_it in states.items():
        # Up to how many topics that wait are counted, so that this takes some milliseconds at most.
        some = select(topic.c.id).where(is_in_it).limit(10_000).subquery()
        found[state] = conn.execute(select(func.count()).select_from(some)).scalar_one()
    return found
