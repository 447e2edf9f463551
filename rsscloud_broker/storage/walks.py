"""Stores fan-outs with their cursors and slices, and the states of hosts that do not answer.

Each function runs in a transaction that the caller has begun, and may run again after a
rollback.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import Connection, and_, delete, func, insert, or_, select, update

from rsscloud_broker.records import Bounds, Delivery, Fanout, HostState, Recorded
from rsscloud_broker.storage.conflicts import insert_into, lock_rows
from rsscloud_broker.storage.contents import remove_unneeded
from rsscloud_broker.storage.deliveries import record_deliveries
from rsscloud_broker.storage.schema import (
    fanout,
    host_state,
    slice_,
    topic,
)
from rsscloud_broker.storage.topics import DEFAULT_BOUNDS
from rsscloud_broker.tables import (
    to_micros,
    to_seconds,
)


def fanouts(conn: Connection, limit: int) -> list[Fanout]:
    """See ``IStore.fanouts``."""
    newest = select(func.max(fanout.c.id)).where(~fanout.c.pushed).group_by(fanout.c.topic_id)
    next_ids = (
        select(func.min(fanout.c.id))
        .where(or_(fanout.c.pushed, fanout.c.id.in_(newest)))
        .group_by(fanout.c.topic_id)
    )
    query = (
        select(
            fanout.c.id,
            topic.c.url,
            fanout.c.cursor,
            fanout.c.begun_at,
            fanout.c.content_id,
            fanout.c.pushed,
            fanout.c.later,
            fanout.c.content_size,
        )
        .join(topic, topic.c.id == fanout.c.topic_id)
        .where(fanout.c.id.in_(next_ids))
        .order_by(fanout.c.id)
        .limit(limit)
    )
    rows = conn.execute(query).all()
    outstanding = read_slices(conn, [row.id for row in rows])
    return [
        Fanout(
            row.id,
            row.url,
            row.cursor,
            to_seconds(row.begun_at),
            row.content_id,
            row.pushed,
            row.later,
            0 if row.content_id is None else row.content_size,  # the content may be removed
            tuple(sorted(outstanding.get(row.id, ()))),
        )
        for row in rows
    ]


def record_slice(
    conn: Connection,
    walk: Fanout,
    cursor: int,
    deliveries: Sequence[Delivery],
    done: bool,
    outstanding: Sequence[int] = (),
    node: int | None = None,
    bounds: Bounds = DEFAULT_BOUNDS,
) -> Recorded:
    """See ``IStore.record_slice``.

    :param node: the node id of this process.
    """
    recorded = record_deliveries(conn, deliveries, node, bounds)
    if done:
        _end(conn, walk)
        remove_unneeded(conn, [walk.topic])
        return recorded
    moved = conn.execute(update(fanout).where(fanout.c.id == walk.id).values(cursor=cursor))
    if moved.rowcount:  # else a move of the topic has replaced it by another fan-out
        store_slice(conn, walk.id, outstanding, node)
    return recorded


def store_slice(
    conn: Connection, walk_key: int, outstanding: Sequence[int], node: int | None
) -> None:
    """Store the slice of a fan-out that a node works on, in place of its earlier slice and of
    free ones.

    :param outstanding: the ids of the subscriptions without an outcome.
    :param node: the node that claims the slice; None to leave it free.
    """
    ours = or_(slice_.c.node_id == node, slice_.c.node_id.is_(None))
    conn.execute(delete(slice_).where(slice_.c.fanout_id == walk_key, ours))
    if outstanding:
        ids = json.dumps(list(outstanding), separators=(",", ":"))
        conn.execute(insert(slice_).values(fanout_id=walk_key, node_id=node, subscription_ids=ids))


def read_slices(conn: Connection, walk_keys: Sequence[int]) -> dict[int, set[int]]:
    """The ids of the subscriptions in the slices of fan-outs, by fan-out."""
    found: dict[int, set[int]] = {}
    kept = select(slice_.c.fanout_id, slice_.c.subscription_ids)
    for key, ids in conn.execute(kept.where(slice_.c.fanout_id.in_(walk_keys))):
        found.setdefault(key, set()).update(json.loads(ids))
    return found


def _end(conn: Connection, walk: Fanout) -> None:
    """Remove a fan-out, and those that it superseded."""
    row = conn.execute(
        select(fanout.c.topic_id, fanout.c.pushed).where(fanout.c.id == walk.id)
    ).first()
    if row is None:
        return
    finished = fanout.c.id == walk.id
    if not row.pushed:
        older = and_(fanout.c.topic_id == row.topic_id, fanout.c.id < walk.id, ~fanout.c.pushed)
        finished = or_(finished, older)
    conn.execute(delete(fanout).where(finished))


def hosts(conn: Connection) -> list[HostState]:
    """See ``IStore.hosts``."""
    return [
        HostState(host=row.name, failures=row.failures, retry_at=to_seconds(row.retry_at))
        for row in conn.execute(select(host_state).order_by(host_state.c.name))
    ]


def record_hosts(conn: Connection, states: Sequence[HostState]) -> None:
    """See ``IStore.record_hosts``."""
    latest = {state.host: state for state in states}
    answering = [state.host for state in states if not latest[state.host].failures]
    lock_rows(conn, host_state.c.name, answering)
    conn.execute(delete(host_state).where(host_state.c.name.in_(answering)))
    failing = [
        {"name": name, "failures": state.failures, "retry_at": to_micros(state.retry_at)}
        for name, state in sorted(latest.items())
        if state.failures
    ]
    if failing:
        new = insert_into(conn, host_state)
        values = {"failures": new.excluded.failures, "retry_at": new.excluded.retry_at}
        conn.execute(new.on_conflict_do_update(index_elements=["name"], set_=values), failing)
