"""Stores fan-outs with their cursors and slices, and the states of hosts that do not answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    true,
    update,
)

from rsscloud_broker.database.columns import columns_of, insert_row, lock_rows, put_rows, record_of
from rsscloud_broker.model.work import Bounds, Delivery, Fanout, HostState, Recorded
from rsscloud_broker.storage.checks import DEFAULT_BOUNDS
from rsscloud_broker.storage.contents import remove_unneeded
from rsscloud_broker.storage.deliveries import record_deliveries
from rsscloud_broker.storage.hints import FANOUT, HOST, hint
from rsscloud_broker.storage.schema import fanout, host_state, slice_, subscription, topic
from rsscloud_broker.storage.topic_urls import HAS_PUBLIC

_COLUMNS = (
    fanout.c.id,
    fanout.c.topic_id,
    topic.c.url,
    fanout.c.cursor,
    fanout.c.begun_at,
    fanout.c.content_id,
    fanout.c.pushed,
    fanout.c.later,
    fanout.c.content_size,
    fanout.c.last_id,
    fanout.c.part_of,
    fanout.c.node_id,
    HAS_PUBLIC.label("is_public"),
)

#: How many subscriptions of a fan-out a node claims at a time, if there are other nodes.
PART = 1000


def _whole_id(rows: Any) -> ColumnElement[int]:
    """The id of the fan-out that a part belongs to.

    :param rows: the table, or an alias of it.
    """
    return func.coalesce(rows.c.part_of, rows.c.id)


_WHOLE_ID = _whole_id(fanout)

# A walk saves its progress for every hundred notifications: these statements are made once.

_LOCK_CLAIMED = (
    select(fanout.c.id)
    .where(fanout.c.id == bindparam("key"), fanout.c.node_id == bindparam("node"))
    .with_for_update(key_share=True)
)

_MOVE = update(fanout).where(fanout.c.id == bindparam("key")).values(cursor=bindparam("reached"))

_REMOVE_SLICE = delete(slice_).where(
    slice_.c.fanout_id == bindparam("key"),
    or_(slice_.c.node_id == bindparam("node"), slice_.c.node_id.is_(None)),
)

_ADD_SLICE = insert(slice_)


def fanouts(conn: Connection, limit: int, node: int | None = None) -> list[Fanout]:
    """Unfinished fan-outs, oldest first, at most one per topic.

    A newer fan-out of a topic supersedes the older ones, except fan-outs of pushed content:
    those supersede none, and none supersedes them.  A fan-out that some node has begun goes on
    all the same.  Those that other nodes have claimed are left out.

    :param node: the node id of this process; None if it is the only one, so that nobody else can
        have claimed anything.
    """
    if node is None:
        return _read_fanouts(conn, _FIRST, {"most": limit})
    return _read_fanouts(conn, _FIRST_FREE, {"most": limit, "node": node})


def _is_to_be_walked(rows: Any) -> ColumnElement[bool]:
    """The condition that a fan-out is not superseded, or that a node has begun it.

    One that was begun goes on to its end, also if it was superseded since.

    :param rows: the table, or an alias of it.
    """
    newer = fanout.alias(f"newer_than_{rows.name}")
    supersedes = select(newer.c.id).where(
        newer.c.topic_id == rows.c.topic_id, ~newer.c.pushed, _whole_id(newer) > _whole_id(rows)
    )
    return or_(rows.c.pushed, rows.c.begun, ~supersedes.exists())


def _next_of_each_topic() -> Select[Any]:
    """Selects the parts of the next fan-out of each topic.

    It compares each row with those of its topic alone.  So who wants the first ones by id need
    not wait for the others, which may be hundreds of thousands after an outage.
    """
    earlier = fanout.alias("earlier")
    before = select(earlier.c.id).where(
        earlier.c.topic_id == fanout.c.topic_id,
        _whole_id(earlier) < _WHOLE_ID,
        _is_to_be_walked(earlier),
    )
    of_topics = select(*_COLUMNS).join(topic, topic.c.id == fanout.c.topic_id)
    return of_topics.where(_is_to_be_walked(fanout), ~before.exists())


# They are built once, since to build them takes longer than to execute them.
_IS_FREE = or_(fanout.c.node_id.is_(None), fanout.c.node_id == bindparam("node", type_=BigInteger))
_NEXT = _next_of_each_topic()
_FIRST = _NEXT.order_by(fanout.c.id).limit(bindparam("most", type_=Integer))
_FIRST_FREE = _FIRST.where(_IS_FREE)
_FREE_AMONG = _NEXT.where(fanout.c.id.in_(bindparam("keys", expanding=True)), _IS_FREE)


def _read_fanouts(
    conn: Connection, query: Select[Any], given: Mapping[str, object] = MappingProxyType({})
) -> list[Fanout]:
    """The fan-outs that a query selects, each with the ids in its slices."""
    rows = conn.execute(query, given).all()
    outstanding = read_slices(conn, [row.id for row in rows])
    return [
        record_of(
            Fanout,
            row,
            topic=row.url,
            lacks_content=row.later,
            # The content may be removed.
            content_size=0 if row.content_id is None else row.content_size,
            outstanding=tuple(sorted(outstanding.get(row.id, ()))),
            node=row.node_id,
            is_public=bool(row.is_public),
        )
        for row in rows
    ]


def claim_fanouts(
    conn: Connection, keys: Sequence[int], node: int, part: int | None = None
) -> list[Fanout]:
    """Claim fan-outs, so that this process alone works on them.

    If other nodes live, this process claims a part of each: the next subscriptions up to
    ``Fanout.last_id``.  The rest is free for others.  It holds a claim until it ends, or until
    the fan-out is done.

    :param part: how many subscriptions of a fan-out a node claims at a time; None for all.
    :returns: those that are still there and no other node has claimed, as they are now.
    """
    wanted = fanout.c.id.in_(keys)
    # Claims of one topic wait for each other: of two fan-outs only the next is begun.
    topics = conn.execute(select(fanout.c.topic_id).where(wanted).distinct()).scalars()
    lock_rows(conn, topic.c.id, list(topics))
    found = conn.execute(_FREE_AMONG, {"keys": list(keys), "node": node}).all()
    claimed = [row.id for row in found]
    conn.execute(update(fanout).where(fanout.c.id.in_(claimed)).values(node_id=node, begun=true()))
    if part is not None:
        for row in found:
            if row.last_id is None:
                _split_off_rest(conn, row, part)
    query = select(*_COLUMNS).join(topic, topic.c.id == fanout.c.topic_id)
    return _read_fanouts(conn, query.where(fanout.c.id.in_(claimed)).order_by(fanout.c.id))


def _split_off_rest(conn: Connection, row: Row[Any], part: int) -> None:
    """Leave all subscriptions of a fan-out but the next ones to a part that is free."""
    following = (
        select(subscription.c.id)
        .where(subscription.c.topic_id == row.topic_id, subscription.c.id > row.cursor)
        .order_by(subscription.c.id)
        .offset(part - 1)
        .limit(2)
    )
    last_and_next = list(conn.execute(following).scalars())
    if len(last_and_next) < 2:
        return
    last = last_and_next[0]
    conn.execute(update(fanout).where(fanout.c.id == row.id).values(last_id=last))
    made = insert_row(
        conn,
        fanout,
        topic_id=row.topic_id,
        cursor=last,
        begun_at=row.begun_at,
        content_id=row.content_id,
        content_size=row.content_size,
        pushed=row.pushed,
        later=row.later,
        begun=True,
        part_of=row.part_of or row.id,
    )
    hint(conn, FANOUT, made)


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
    """Store the new cursor of a fan-out together with the outcomes of deliveries.

    :param done: whether the fan-out is finished.  Then the store removes it, the fan-outs
        that it superseded, and the contents that nothing needs any more.
    :param outstanding: the ids of the subscriptions up to the cursor that have no outcome yet.
        This process has claimed them until it ends.
    :returns: with ``lost`` if the claim of the fan-out was lost; then nothing was recorded.
    """
    if walk.node is not None:
        node = walk.node
        if conn.execute(_LOCK_CLAIMED, {"key": walk.id, "node": node}).first() is None:
            return Recorded(lost=True)
    recorded = record_deliveries(conn, deliveries, node, bounds)
    if done:
        _remove_finished(conn, walk)
        remove_unneeded(conn, [walk.topic])
        return recorded
    moved = conn.execute(_MOVE, {"key": walk.id, "reached": cursor})
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
    conn.execute(_REMOVE_SLICE, {"key": walk_key, "node": node})
    if outstanding:
        ids = json.dumps(list(outstanding), separators=(",", ":"))
        values = {"fanout_id": walk_key, "node_id": node, "subscription_ids": ids}
        conn.execute(_ADD_SLICE, values)


def read_slices(conn: Connection, walk_keys: Sequence[int]) -> dict[int, set[int]]:
    """The ids of the subscriptions in the slices of fan-outs, by fan-out."""
    found: dict[int, set[int]] = {}
    kept = select(slice_.c.fanout_id, slice_.c.subscription_ids)
    for key, ids in conn.execute(kept.where(slice_.c.fanout_id.in_(walk_keys))):
        found.setdefault(key, set()).update(json.loads(ids))
    return found


def _remove_finished(conn: Connection, walk: Fanout) -> None:
    """Remove a fan-out, or a part of one, and those that it superseded."""
    row = conn.execute(
        select(fanout.c.topic_id, fanout.c.pushed, _WHOLE_ID.label("whole")).where(
            fanout.c.id == walk.id
        )
    ).first()
    if row is None:
        return
    finished = fanout.c.id == walk.id
    if not row.pushed:
        older = and_(fanout.c.topic_id == row.topic_id, row.whole > _WHOLE_ID, ~fanout.c.pushed)
        finished = or_(finished, older)
    conn.execute(delete(fanout).where(finished))


def hosts(conn: Connection) -> list[HostState]:
    """The states of the hosts that do not answer."""
    return host_states_in(conn, select(host_state).order_by(host_state.c.name))


def host_states_in(conn: Connection, query: Select[Any]) -> list[HostState]:
    """The states of the hosts whose rows a query selects."""
    return [record_of(HostState, row, host=row.name) for row in conn.execute(query)]


def record_hosts(conn: Connection, states: Sequence[HostState]) -> None:
    """Store the states of hosts.  A host without failures is forgotten."""
    latest = {state.host: state for state in states}
    answering = [state.host for state in states if not latest[state.host].failures]
    lock_rows(conn, host_state.c.name, answering)
    closed = conn.execute(delete(host_state).where(host_state.c.name.in_(answering))).rowcount
    failing = [
        columns_of(state, host_state, name=name)
        for name, state in sorted(latest.items())
        if state.failures
    ]
    if failing:
        put_rows(conn, host_state, failing)
    if failing or closed:
        hint(conn, HOST)
