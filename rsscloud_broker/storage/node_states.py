"""Reads which processes work on the database, and what each has claimed, for administrators."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, func, select

from rsscloud_broker.database import sqlite
from rsscloud_broker.database.columns import to_seconds
from rsscloud_broker.model.administration import NodeState
from rsscloud_broker.storage.nodes import database_clock
from rsscloud_broker.storage.schema import fanout, intent, node, pending, slice_, topic
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
    now = to_seconds(conn.execute(select(database_clock(conn))).scalar_one())
    notifications, slices = (
        _count_claims(conn, pending.c.node_id),
        _count_claims(conn, slice_.c.node_id),
    )
    claims = {kind: _count_claims(conn, claim) for kind, claim in _COUNTED_CLAIMS.items()}
    jobs = conn.execute(select(job).where(job.c.node_id.is_not(None)).order_by(job.c.name)).all()
    # On SQLite nobody writes heartbeats.  That of a node that is just removed has a minus.
    beats = not sqlite.serves(conn)
    return [
        NodeState(
            name=row.name,
            here=row.id == here,
            notifications=notifications.get(row.id, 0),
            slices=slices.get(row.id, 0),
            version=row.version,
            started_at=to_seconds(row.started_at),
            silent_for=max(0.0, now - to_seconds(abs(row.beat_at))) if beats else None,
            claims={kind: counts.get(row.id, 0) for kind, counts in claims.items()},
            jobs=tuple(one.name for one in jobs if one.node_id == row.id),
            pings=row.pings,
            notified=row.notifications,
            ping_rate=row.ping_rate if beats else None,
            notification_rate=row.notification_rate if beats else None,
            clock_ahead=row.clock_ahead,
        )
        for row in conn.execute(select(node).order_by(node.c.id))
    ]


def _count_claims(conn: Connection, claim: ColumnElement[int | None]) -> dict[int, int]:
    """How many rows each node has claimed."""
    query = select(claim, func.count()).where(claim.is_not(None)).group_by(claim)
    return dict(conn.execute(query).tuples().all())  # type: ignore[arg-type] # none is null
