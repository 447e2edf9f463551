"""Stores the outcomes of deliveries and pending notifications; ``due`` claims those that are due.

A subscription has at most one row in ``pending_notification``.  Of pushed contents each must be
delivered: the oldest is in that row, and the others are in ``queued``, in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve
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

from rsscloud_broker.database.columns import lock_rows, to_micros, to_micros_or_none
from rsscloud_broker.model import Outcome, Subscription
from rsscloud_broker.model.work import MAX_QUEUED, Bounds, Delivery, Recorded
from rsscloud_broker.storage.checks import DEFAULT_BOUNDS
from rsscloud_broker.storage.contents import remove_unneeded
from rsscloud_broker.storage.failed_attempts import add_failed_attempts
from rsscloud_broker.storage.schema import content, pending, queued, subscription
from rsscloud_broker.storage.subscriptions import CONTENT_TOPIC_ID, add_pending

# Deliveries come by the hundreds: each statement below is made once, and run for many keys at once.

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
        # For protocols that never drop a subscription this compares with null, which is not true.
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

# A pending notification of another pushed content stays.
_REMOVE_PENDING = delete(pending).where(
    pending.c.subscription_id == bindparam("key"),
    or_(
        pending.c.content_id.is_(None),
        pending.c.content_id == bindparam("carried", type_=BigInteger),
    ),
)

# A subscription that was renewed meanwhile stays.
_REMOVE_SUBSCRIPTION = delete(subscription).where(
    subscription.c.id == bindparam("key"), subscription.c.granted_at == bindparam("granted")
)

_UPDATE_PENDING = update(pending).where(pending.c.subscription_id == bindparam("key"))

_RECORD_ATTEMPT = _UPDATE_PENDING.values(
    attempts=bindparam("tries"),
    due_at=bindparam("due"),
    node_id=bindparam("node"),
    tried_at=bindparam("at"),
    failing_since=func.coalesce(pending.c.failing_since, bindparam("at", type_=BigInteger)),
    not_before=bindparam("asked"),
    content_id=bindparam("carried"),
)

_PUT_OFF = _UPDATE_PENDING.values(
    attempts=bindparam("tries"),
    due_at=bindparam("due"),
    node_id=bindparam("node"),
    content_id=bindparam("carried"),
)


def later(first: Any, second: Any) -> Any:
    """The later of two times, in SQL."""
    return case((first > second, first), else_=second)


_DUE, _PAUSE = bindparam("due", type_=BigInteger), bindparam("pause", type_=BigInteger)
_AFTER_PAUSE = func.coalesce(pending.c.tried_at, 0) + _PAUSE
_EARLIEST = later(func.coalesce(pending.c.not_before, 0), later(_AFTER_PAUSE, _DUE))

_RESTART = _UPDATE_PENDING.values(
    attempts=0, due_at=case((pending.c.due_at < _EARLIEST, pending.c.due_at), else_=_EARLIEST)
)

# Another node may be calling the subscriber just now, perhaps since before the change.  It loses
# its claim, so that what comes of that call does not count.
_FREE_FROM_OTHERS = _UPDATE_PENDING.where(
    pending.c.node_id != bindparam("node", type_=BigInteger)
).values(node_id=None, tried_at=_DUE, due_at=_DUE + _PAUSE)


def record_deliveries(
    conn: Connection,
    deliveries: Sequence[Delivery],
    node: int | None = None,
    bounds: Bounds = DEFAULT_BOUNDS,
) -> Recorded:
    """Store the outcomes of deliveries.

    Each subscription has at most one pending notification.  A delivered notification
    writes nothing, unless it clears earlier errors or a pending notification.  One that is
    given up counts as an error, and marks the subscription for dropping at
    ``drop_after_failures`` consecutive errors.  After either the subscription may get
    another pending notification.  A subscriber that is gone loses its subscription.
    If a subscription was renewed during an attempt that failed, the next one is due at once.
    Deliveries of removed subscriptions are ignored.  So are those of a subscription that
    ``claim_due`` returned, if this process has lost the claim since: as when another node has
    stored that the topic has changed again, so that the subscriber is called once more.
    """
    # In the order of subscriptions, so that no two nodes wait for each other's rows.
    deliveries = sorted(deliveries, key=lambda each: each.subscription.id or 0)
    _lock(conn, deliveries)
    deliveries = _without_lost_claims(conn, deliveries)
    add_failed_attempts(conn, deliveries, bounds.failed_attempts)
    deliveries = _put_off_renewed(conn, deliveries)
    # What needs no further attempt.  With 0 attempts, the retry is that of another notification.
    final = [
        (one, one.outcome)
        for one in deliveries
        if one.outcome and (one.retry_at is None or not one.attempts)
    ]
    if final:
        _record_outcomes(conn, final)
    to_add = [one for one in deliveries if one.retry_at is not None]
    dropped = _add_pending(conn, to_add, node) if to_add else ()
    pushed = [one for one, _ in final if one.content_id is not None]
    due = _take_from_queue(conn, pushed) if pushed else False
    # The topics whose contents these notifications no longer need.
    topics = {
        delivery.subscription.topic
        for delivery, outcome in final
        if delivery.subscription.wants_content
        and (outcome.gone or delivery.subscription.attempts is not None)
    }
    if topics:
        remove_unneeded(conn, topics)
    return Recorded(due, dropped)


def _lock(conn: Connection, deliveries: Sequence[Delivery]) -> None:
    """Lock what deliveries may change, in an order in which no two nodes wait for each other.

    Deliveries that succeed change nothing of most subscriptions.
    """
    lock_rows(conn, pending.c.subscription_id, [one.subscription.id for one in deliveries])
    changing = [
        one.subscription.id
        for one in deliveries
        if one.subscription.consecutive_errors or not (one.outcome and one.outcome.success)
    ]
    lock_rows(conn, subscription.c.id, changing)


def _without_lost_claims(conn: Connection, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Leave out deliveries of pending notifications whose claims this process has lost.

    A process loses a claim if it stood still for too long, or if another node has stored something
    newer.
    """
    claims = {
        one.subscription.id: one.subscription.claim
        for one in deliveries
        if one.subscription.claim is not None
    }
    if not claims:
        return list(deliveries)
    rows = select(pending.c.subscription_id, pending.c.node_id).where(
        pending.c.subscription_id.in_(claims)
    )
    held = {key for key, node in conn.execute(rows) if node == claims[key]}
    return [
        one for one in deliveries if one.subscription.claim is None or one.subscription.id in held
    ]


def _put_off_renewed(conn: Connection, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Put notifications off whose attempts failed while their subscribers renewed: until now, or
    until the time that a subscriber asked for.

    A subscriber that starts anew does so: the attempt failed because it was not there.  The log has
    the failure all the same.
    """
    granted = {
        one.subscription.id: to_micros(one.subscription.lease.granted_at)
        for one in deliveries
        if _has_failed(one)
    }
    if not granted:
        return list(deliveries)
    among = subscription.c.id.in_(granted)
    rows = conn.execute(select(subscription.c.id, subscription.c.granted_at).where(among))
    renewed = {key for key, at in rows if at != granted[key]}
    return [
        _begun_anew(one) if one.subscription.id in renewed and _has_failed(one) else one
        for one in deliveries
    ]


def _begun_anew(delivery: Delivery) -> Delivery:
    """What to store of an attempt that failed while its subscriber renewed."""
    if delivery.not_before is None:
        return evolve(delivery, outcome=None, attempts=0, retry_at=delivery.at)
    # As the first attempt, so that no change of the topic comes before the time asked for.
    return evolve(delivery, attempts=1, retry_at=max(delivery.at, delivery.not_before))


def _has_failed(delivery: Delivery) -> bool:
    """Whether an attempt failed that the subscriber was called for."""
    outcome = delivery.outcome
    return outcome is not None and not (outcome.success or outcome.refused)


def _record_outcomes(conn: Connection, final: Sequence[tuple[Delivery, Outcome]]) -> None:
    """Store the outcomes of deliveries that need no further attempt."""
    gone = [one.subscription for one, outcome in final if outcome.gone]
    succeeded = [one for one, outcome in final if outcome.success and not outcome.gone]
    failed = [
        {
            "key": one.subscription.id,
            "reason": outcome.reason,
            "at": to_micros(one.at),
            "most_failures": one.drop_after_failures,
        }
        for one, outcome in final
        if not outcome.success and not outcome.gone
    ]
    conn.execute(
        _REMOVE_PENDING,
        [{"key": one.subscription.id, "carried": one.content_id} for one, _ in final],
    )
    if gone:
        granted = [{"key": one.id, "granted": to_micros(one.lease.granted_at)} for one in gone]
        conn.execute(_REMOVE_SUBSCRIPTION, granted)
    if succeeded:
        conn.execute(_CLEAR_ERRORS, [{"key": one.subscription.id} for one in succeeded])
    if failed:
        conn.execute(_COUNT_ERROR, failed)


def _add_pending(
    conn: Connection, deliveries: Sequence[Delivery], node: int | None
) -> tuple[Subscription, ...]:
    """Add pending notifications, or update those that subscriptions have already.

    :returns: the subscriptions whose queues are full, so that a pushed content was left out.
    """
    by_key = {one.subscription.id: one for one in deliveries if one.content_id is None}
    existing = select(subscription.c.id, CONTENT_TOPIC_ID).where(subscription.c.id.in_(by_key))
    with_pending = select(pending.c.subscription_id).where(pending.c.subscription_id.in_(by_key))
    keys_with_pending = set(conn.execute(with_pending).scalars())
    inserts: list[dict[str, Any]] = []
    tried: list[dict[str, Any]] = []  # an attempt failed
    put_off: list[dict[str, Any]] = []  # no attempt was made to the end
    restarted: list[dict[str, Any]] = []  # the topic has changed again: attempts count from 0
    for key, content_topic in conn.execute(existing):
        one = by_key[key]
        if key not in keys_with_pending:
            inserts.append(_row_values(one, content_topic, node))
        elif one.pause is not None:
            restarted.append({"key": key, "due": _due_at(one), "pause": to_micros(one.pause)})
        elif one.outcome is None:
            put_off.append(_attempt_parameters(one, node))
        else:
            tried.append(_attempt_parameters(one, node))
    for statement, values in (
        (_FREE_FROM_OTHERS, [one | {"node": node} for one in restarted]),
        (_RESTART, restarted),
        (_PUT_OFF, put_off),
        (_RECORD_ATTEMPT, tried),
    ):
        if values:
            conn.execute(statement, values)
    if inserts:
        conn.execute(insert(pending), inserts)
    pushed = [one for one in deliveries if one.content_id is not None]
    return tuple(one.subscription for one in pushed if not _add_pushed(conn, one, node))


def _due_at(delivery: Delivery) -> int:
    """When the retry is due, in microseconds."""
    assert delivery.retry_at is not None  # ``record_deliveries`` has checked it
    return to_micros(delivery.retry_at)


def _row_values(delivery: Delivery, content_topic: int | None, node: int | None) -> dict[str, Any]:
    """The values of a new pending notification."""
    at = None if delivery.outcome is None else to_micros(delivery.at)
    failed = delivery.outcome is not None and not delivery.outcome.success
    return {
        "subscription_id": delivery.subscription.id,
        "attempts": delivery.attempts,
        "due_at": _due_at(delivery),
        "content_topic_id": content_topic,
        "host": delivery.subscription.callback.host,
        "node_id": node if delivery.claimed else None,
        "tried_at": at,
        "failing_since": at if failed else None,
        "not_before": to_micros_or_none(delivery.not_before),
        "content_id": delivery.content_id,
    }


def _attempt_parameters(delivery: Delivery, node: int | None) -> dict[str, Any]:
    """The parameters of ``_RECORD_ATTEMPT``; or of ``_PUT_OFF``, if no attempt came to its end."""
    changes: dict[str, Any] = {
        "key": delivery.subscription.id,
        "tries": delivery.attempts,
        "due": _due_at(delivery),
        "node": node if delivery.claimed else None,
        "carried": delivery.content_id,
    }
    if delivery.outcome is not None:
        changes |= {"at": to_micros(delivery.at), "asked": to_micros_or_none(delivery.not_before)}
    return changes


# --- pushed contents


def _add_pushed(conn: Connection, delivery: Delivery, node: int | None) -> bool:
    """Add a notification of pushed content, behind those of contents that were pushed earlier.

    :returns: False if the queue is full, so that the content is left out.
    """
    key = delivery.subscription.id
    kept = select(content.c.id).where(content.c.id == delivery.content_id)
    existing = select(CONTENT_TOPIC_ID).where(subscription.c.id == key, kept.exists())
    found = conn.execute(existing).first()
    if found is None:
        return True  # the subscription or the content was removed meanwhile
    present = conn.execute(
        select(pending.c.content_id).where(pending.c.subscription_id == key)
    ).first()
    if present is None:
        conn.execute(insert(pending), [_row_values(delivery, found[0], node)])
        return True
    assert delivery.content_id is not None  # the caller has checked it
    if present.content_id is not None and present.content_id < delivery.content_id:
        return _enqueue(conn, key, delivery.content_id)
    fits = True
    if present.content_id is not None and present.content_id > delivery.content_id:
        fits = _enqueue(conn, key, present.content_id)
    conn.execute(
        _PUT_OFF if delivery.outcome is None else _RECORD_ATTEMPT,
        [_attempt_parameters(delivery, node)],
    )
    return fits


def _enqueue(conn: Connection, key: int, content_key: int) -> bool:
    """Put a pushed content into the queue of a subscription; False if the queue is full."""
    of_subscription = select(queued.c.content_id).where(queued.c.subscription_id == key)
    in_queue = conn.scalars(of_subscription).all()
    if content_key in in_queue:
        return True
    if len(in_queue) >= MAX_QUEUED:
        return False
    conn.execute(insert(queued).values(subscription_id=key, content_id=content_key))
    return True


def _take_from_queue(conn: Connection, final: Sequence[Delivery]) -> bool:
    """Make the next content in the queue pending, for subscriptions whose pending notification
    has its outcome.

    :returns: whether any queue had a content.
    """
    at = {one.subscription.id: to_micros(one.at) for one in final}
    waits = select(pending.c.subscription_id).where(
        pending.c.subscription_id == queued.c.subscription_id
    )
    following = conn.execute(
        select(queued.c.subscription_id, func.min(queued.c.content_id))
        .where(queued.c.subscription_id.in_(at), ~waits.exists())
        .group_by(queued.c.subscription_id)
    ).all()
    for key, content_key in following:
        if add_pending(conn, key, at[key], content_key):  # else it stays in the queue
            mine = (queued.c.subscription_id == key, queued.c.content_id == content_key)
            conn.execute(delete(queued).where(*mine))
    return bool(following)
