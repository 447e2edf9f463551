"""Stores the outcomes of deliveries, and the notifications that wait.

At most one notification waits for each subscription, in a row of ``pending_notification``.
Pushed contents are different, since each of them is to be delivered: the oldest is in that row,
and the others are in ``queued``, in the order of their ids.

Each function is one step of a transaction that the caller has begun; run again
after a rollback, it does the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    bindparam,
    case,
    delete,
    false,
    func,
    insert,
    or_,
    select,
    true,
    update,
)

from rsscloud_broker.model import Callback, Outcome, Subscription
from rsscloud_broker.records import Delivery, Recorded
from rsscloud_broker.storage.contents import remove_unneeded
from rsscloud_broker.storage.schema import (
    content,
    pending,
    queued,
    subscription,
    to_micros,
    to_micros_or_none,
    to_seconds_or_none,
)
from rsscloud_broker.storage.subscriptions import CONTENT_TOPIC_ID, by_ids

#: Contents that were pushed and may wait for one subscription, beside the first.
MAX_QUEUED = 100

#: Notifications that one answer of a host can make due at once.
MAX_HASTENED = 10_000

# Deliveries come by the hundreds: each of these is made once, and run for many keys at a time.

_CLEAR_ERRORS = (
    update(subscription)
    .where(subscription.c.id == bindparam("key"), subscription.c.consecutive_errors > 0)
    .values(consecutive_errors=0, last_error="", last_error_at=None, dropping=false())
)

_COUNT_ERROR = (
    update(subscription)
    .where(subscription.c.id == bindparam("key"))
    .values(
        consecutive_errors=subscription.c.consecutive_errors + 1,
        last_error=bindparam("reason"),
        last_error_at=bindparam("at"),
        # A comparison with null, for protocols that never give up, is not true.
        dropping=case(
            (
                subscription.c.consecutive_errors + 1
                >= bindparam("most_failures", type_=BigInteger),
                true(),
            ),
            else_=subscription.c.dropping,
        ),
    )
)

# One that waits to carry something else that was pushed goes on waiting.
_FORGET = delete(pending).where(
    pending.c.subscription_id == bindparam("key"),
    or_(
        pending.c.content_id.is_(None),
        pending.c.content_id == bindparam("carried", type_=BigInteger),
    ),
)

# One that was renewed since is wanted again.
_REMOVE = delete(subscription).where(
    subscription.c.id == bindparam("key"), subscription.c.granted_at == bindparam("granted")
)

_OF_KEY = update(pending).where(pending.c.subscription_id == bindparam("key"))

_TRIED = _OF_KEY.values(
    attempts=bindparam("tries"),
    due_at=bindparam("due"),
    node_id=bindparam("node"),
    tried_at=bindparam("at"),
    failing_since=func.coalesce(pending.c.failing_since, bindparam("at", type_=BigInteger)),
    not_before=bindparam("asked"),
    content_id=bindparam("carried"),
)

_PUT_OFF = _OF_KEY.values(
    attempts=bindparam("tries"),
    due_at=bindparam("due"),
    node_id=bindparam("node"),
    content_id=bindparam("carried"),
)


def _later(one: Any, other: Any) -> Any:
    return case((one > other, one), else_=other)


_NOW = bindparam("due", type_=BigInteger)
_RESTED = func.coalesce(pending.c.tried_at, 0) + bindparam("pause", type_=BigInteger)
_EARLIEST = _later(func.coalesce(pending.c.not_before, 0), _later(_RESTED, _NOW))

_FRESH = _OF_KEY.values(
    attempts=0,
    due_at=case((pending.c.due_at < _EARLIEST, pending.c.due_at), else_=_EARLIEST),
)


def record_deliveries(
    conn: Connection, deliveries: Sequence[Delivery], node: int | None = None
) -> Recorded:
    """See ``IStore.record_deliveries``.

    Deliveries of subscriptions that were removed meanwhile find no row.

    :param node: the id of this process.
    """
    over = [
        (one, one.outcome)
        for one in deliveries
        if one.outcome and (one.retry_at is None or not one.attempts)
    ]
    if over:
        _record_outcomes(conn, over)
    wait = [one for one in deliveries if one.retry_at is not None]
    dropped = _wait(conn, wait, node) if wait else ()
    pushed = [one for one, _ in over if one.content_id is not None]
    due = _bring_next(conn, pushed) if pushed else False
    let_go = {
        delivery.subscription.topic
        for delivery, outcome in over
        if delivery.subscription.wants_content
        and (outcome.gone or delivery.subscription.attempts is not None)
    }
    if let_go:
        remove_unneeded(conn, let_go)
    return Recorded(due, dropped)


def _record_outcomes(conn: Connection, over: Sequence[tuple[Delivery, Outcome]]) -> None:
    """Take in what came of notifications that wait no more."""
    gone = [one.subscription for one, outcome in over if outcome.gone]
    succeeded = [one for one, outcome in over if outcome.success and not outcome.gone]
    failed = [
        {
            "key": one.subscription.id,
            "reason": outcome.reason,
            "at": to_micros(one.at),
            "most_failures": one.drop_after_failures,
        }
        for one, outcome in over
        if not outcome.success and not outcome.gone
    ]
    conn.execute(
        _FORGET, [{"key": one.subscription.id, "carried": one.content_id} for one, _ in over]
    )
    if gone:
        granted = [{"key": one.id, "granted": to_micros(one.lease.granted_at)} for one in gone]
        conn.execute(_REMOVE, granted)
    if succeeded:
        conn.execute(_CLEAR_ERRORS, [{"key": one.subscription.id} for one in succeeded])
    if failed:
        conn.execute(_COUNT_ERROR, failed)


def _wait(
    conn: Connection, deliveries: Sequence[Delivery], node: int | None
) -> tuple[Subscription, ...]:
    """Let notifications wait; where one waits already it is the same from now on.

    :returns: subscriptions whose queue is full.
    """
    wanted = {one.subscription.id: one for one in deliveries if one.content_id is None}
    alive = select(subscription.c.id, CONTENT_TOPIC_ID).where(subscription.c.id.in_(wanted))
    waits = select(pending.c.subscription_id).where(pending.c.subscription_id.in_(wanted))
    there = set(conn.execute(waits).scalars())
    inserts: list[dict[str, Any]] = []
    tried: list[dict[str, Any]] = []
    put_off: list[dict[str, Any]] = []
    fresh: list[dict[str, Any]] = []
    for key, content_topic in conn.execute(alive):
        one = wanted[key]
        if key not in there:
            inserts.append(_row(one, content_topic, node))
        elif one.pause is not None:
            fresh.append({"key": key, "due": _due(one), "pause": to_micros(one.pause)})
        else:
            (put_off if one.outcome is None else tried).append(_changes(one, node))
    for statement, values in ((_FRESH, fresh), (_PUT_OFF, put_off), (_TRIED, tried)):
        if values:
            conn.execute(statement, values)
    if inserts:
        conn.execute(insert(pending), inserts)
    pushed = [one for one in deliveries if one.content_id is not None]
    return tuple(one.subscription for one in pushed if not _wait_in_order(conn, one, node))


def _due(one: Delivery) -> int:
    assert one.retry_at is not None  # the caller looked
    return to_micros(one.retry_at)


def _row(one: Delivery, content_topic: int | None, node: int | None) -> dict[str, Any]:
    at = None if one.outcome is None else to_micros(one.at)
    failed = one.outcome is not None and not one.outcome.success
    return {
        "subscription_id": one.subscription.id,
        "attempts": one.attempts,
        "due_at": _due(one),
        "content_topic_id": content_topic,
        "node_id": node if one.claimed else None,
        "tried_at": at,
        "failing_since": at if failed else None,
        "not_before": to_micros_or_none(one.not_before),
        "content_id": one.content_id,
    }


def _changes(one: Delivery, node: int | None) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "key": one.subscription.id,
        "tries": one.attempts,
        "due": _due(one),
        "node": node if one.claimed else None,
        "carried": one.content_id,
    }
    if one.outcome is not None:
        changes |= {"at": to_micros(one.at), "asked": to_micros_or_none(one.not_before)}
    return changes


# --- what was pushed


def _wait_in_order(conn: Connection, one: Delivery, node: int | None) -> bool:
    """Let something that was pushed wait, behind what was pushed before it.

    :returns: False if the queue is full, so that it is left out.
    """
    key = one.subscription.id
    kept = select(content.c.id).where(content.c.id == one.content_id)
    alive = select(CONTENT_TOPIC_ID).where(subscription.c.id == key, kept.exists())
    found = conn.execute(alive).first()
    if found is None:
        return True  # nobody wants it any more, or it is not kept
    first = conn.execute(
        select(pending.c.content_id).where(pending.c.subscription_id == key)
    ).first()
    if first is None:
        conn.execute(insert(pending), [_row(one, found[0], node)])
        return True
    assert one.content_id is not None  # it was pushed
    if first.content_id is not None and first.content_id < one.content_id:
        return _enqueue(conn, key, one.content_id)
    fits = True
    if first.content_id is not None and first.content_id > one.content_id:
        fits = _enqueue(conn, key, first.content_id)
    conn.execute(_PUT_OFF if one.outcome is None else _TRIED, [_changes(one, node)])
    return fits


def _enqueue(conn: Connection, key: int, content_key: int) -> bool:
    waits = list(
        conn.execute(select(queued.c.content_id).where(queued.c.subscription_id == key)).scalars()
    )
    if content_key in waits:
        return True
    if len(waits) >= MAX_QUEUED:
        return False
    conn.execute(insert(queued).values(subscription_id=key, content_id=content_key))
    return True


def _bring_next(conn: Connection, over: Sequence[Delivery]) -> bool:
    """Let the next in the queue wait where what was before it is over; whether there is one."""
    at = {one.subscription.id: to_micros(one.at) for one in over}
    waits = select(pending.c.subscription_id).where(
        pending.c.subscription_id == queued.c.subscription_id
    )
    following = conn.execute(
        select(queued.c.subscription_id, func.min(queued.c.content_id))
        .where(queued.c.subscription_id.in_(at), ~waits.exists())
        .group_by(queued.c.subscription_id)
    ).all()
    for key, content_key in following:
        topic = select(CONTENT_TOPIC_ID).where(subscription.c.id == key).scalar_subquery()
        conn.execute(
            insert(pending).values(
                subscription_id=key,
                attempts=0,
                due_at=at[key],
                content_topic_id=topic,
                content_id=content_key,
            )
        )
        conn.execute(
            delete(queued).where(
                queued.c.subscription_id == key, queued.c.content_id == content_key
            )
        )
    return bool(following)


# --- what is due


def claim_due(
    conn: Connection, now: float, limit: int, busy: Collection[str], node: int
) -> list[Subscription]:
    """See ``IStore.claim_due``.  What is due is gone through in its order, by an index,
    until enough is found, past however many of busy hosts.
    """
    due = (
        select(pending.c.subscription_id)
        .where(
            pending.c.due_at <= to_micros(now),
            pending.c.node_id.is_(None),
        )
        .order_by(pending.c.due_at, pending.c.subscription_id)
    )
    if busy:
        due = due.join(subscription, subscription.c.id == pending.c.subscription_id).where(
            subscription.c.host.not_in(busy)
        )
    ids = list(conn.execute(due.limit(limit)).scalars())
    if not ids:
        return []
    claimed = update(pending).where(pending.c.subscription_id.in_(ids))
    conn.execute(claimed.values(node_id=node))
    return by_ids(conn, ids)


def next_due(conn: Connection) -> float | None:
    """See ``IStore.next_due``."""
    free = select(func.min(pending.c.due_at)).where(pending.c.node_id.is_(None))
    return to_seconds_or_none(conn.execute(free).scalar())


def hasten(conn: Connection, host: str, origin: str, now: float) -> bool:
    """See ``IStore.hasten``."""
    at = to_micros(now)
    found = conn.execute(
        select(
            pending.c.subscription_id,
            subscription.c.callback_url,
            subscription.c.protocol,
        )
        .join(subscription, subscription.c.id == pending.c.subscription_id)
        .where(
            subscription.c.host == host,
            pending.c.due_at > at,
            pending.c.node_id.is_(None),
        )
        .limit(MAX_HASTENED)
    )
    due = [
        {"key": key, "due": at}
        for key, url, protocol in found
        if not origin or Callback(url, protocol).origin == origin
    ]
    if due:
        asked = func.coalesce(pending.c.not_before, 0)
        conn.execute(_OF_KEY.values(due_at=_later(asked, _NOW)), due)
    return bool(due)
