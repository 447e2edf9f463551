"""What the store does with subscriptions, and with the walks over them.

Each function is one step of a transaction that the caller has begun; run again
after a rollback, it does the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from sqlalchemy import (
    BigInteger,
    Connection,
    Row,
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

from rsscloud_broker.model import Callback, Delivery, Fanout, Lease, Subscription, Swept
from rsscloud_broker.storage.schema import (
    fanout,
    subscription,
    to_micros,
    to_seconds,
    to_seconds_or_none,
    topic,
)
from rsscloud_broker.storage.topics import topic_key

# Deliveries come in slices of hundreds: each of these is made once, and run
# for many keys at a time.

_CLEAR_ERRORS = (
    update(subscription)
    .where(subscription.c.id == bindparam("key"), subscription.c.consecutive_errors > 0)
    .values(consecutive_errors=0, last_error="", last_error_at=None, marked=false())
)

_COUNT_ERROR = (
    update(subscription)
    .where(subscription.c.id == bindparam("key"))
    .values(
        consecutive_errors=subscription.c.consecutive_errors + 1,
        last_error=bindparam("reason"),
        last_error_at=bindparam("at"),
        # A comparison with null, for protocols that never give up, is not true.
        marked=case(
            (
                subscription.c.consecutive_errors + 1 >= bindparam("marks", type_=BigInteger),
                true(),
            ),
            else_=subscription.c.marked,
        ),
    )
)


def lease_values(lease: Lease) -> dict[str, int]:
    """The columns of a lease."""
    return {
        "granted_at": to_micros(lease.granted_at),
        "lease_seconds": lease.seconds,
        "expires_at": to_micros(lease.expires_at),
    }


def put_subscription(conn: Connection, wanted: Subscription) -> Subscription:
    """See ``IStore.put_subscription``.  A renewed one keeps its id."""
    identity = {
        "topic_id": topic_key(conn, wanted.topic),
        "callback_url": wanted.callback.url,
        "protocol": wanted.callback.protocol,
        "procedure": wanted.callback.procedure,
    }
    values = {
        **lease_values(wanted.lease),
        "consecutive_errors": 0,
        "last_error": "",
        "last_error_at": None,
        "marked": False,
    }
    key = conn.execute(select(subscription.c.id).filter_by(**identity)).scalar()
    if key is None:
        made = conn.execute(insert(subscription).values(identity | values)).inserted_primary_key
        assert made is not None  # a single insert always has one
        key = made[0]
    else:
        conn.execute(update(subscription).where(subscription.c.id == key).values(values))
    lease = attrs.evolve(wanted.lease, granted_at=to_seconds(to_micros(wanted.lease.granted_at)))
    return Subscription(topic=wanted.topic, callback=wanted.callback, lease=lease, id=key)


def remove_subscription(conn: Connection, topic_url: str, callback: Callback) -> bool:
    """See ``IStore.remove_subscription``."""
    removed = conn.execute(
        delete(subscription).where(
            subscription.c.topic_id
            == select(topic.c.id).where(topic.c.url == topic_url).scalar_subquery(),
            subscription.c.callback_url == callback.url,
            subscription.c.protocol == callback.protocol,
            subscription.c.procedure == callback.procedure,
        )
    )
    return removed.rowcount > 0


def subscriptions(conn: Connection, topic_url: str, after: int, limit: int) -> list[Subscription]:
    """See ``IStore.subscriptions``."""
    query = (
        select(subscription)
        .join(topic)
        .where(topic.c.url == topic_url, subscription.c.id > after)
        .order_by(subscription.c.id)
        .limit(limit)
    )
    return [_subscription(row, topic_url) for row in conn.execute(query)]


def _subscription(row: Row[tuple[object, ...]], topic_url: str) -> Subscription:
    return Subscription(
        topic=topic_url,
        callback=Callback(row.callback_url, row.protocol, row.procedure),
        lease=Lease(to_seconds(row.granted_at), row.lease_seconds),
        id=row.id,
        consecutive_errors=row.consecutive_errors,
        last_error=row.last_error,
        last_error_at=to_seconds_or_none(row.last_error_at),
        marked=row.marked,
    )


def sweep(conn: Connection, now: float, idle_topics_before: float) -> Swept:
    """See ``IStore.sweep``.

    What is both marked and expired counts as marked.  The walks over a topic
    go with it.
    """
    marked = conn.execute(delete(subscription).where(subscription.c.marked)).rowcount
    expired = conn.execute(
        delete(subscription).where(subscription.c.expires_at <= to_micros(now))
    ).rowcount
    somebody = select(subscription.c.id).where(subscription.c.topic_id == topic.c.id).exists()
    idle = or_(topic.c.read_at.is_(None), topic.c.read_at < to_micros(idle_topics_before))
    topics = conn.execute(
        delete(topic).where(topic.c.check_requested_at.is_(None), idle, ~somebody)
    ).rowcount
    return Swept(expired=expired, marked=marked, topics=topics)


def fanouts(conn: Connection, limit: int) -> list[Fanout]:
    """See ``IStore.fanouts``."""
    newest = select(func.max(fanout.c.id)).group_by(fanout.c.topic_id)
    query = (
        select(fanout.c.id, topic.c.url, fanout.c.cursor)
        .join(topic)
        .where(fanout.c.id.in_(newest))
        .order_by(fanout.c.id)
        .limit(limit)
    )
    return [Fanout(id=key, topic=url, cursor=cursor) for key, url, cursor in conn.execute(query)]


def record_slice(
    conn: Connection, walk: Fanout, cursor: int, deliveries: Sequence[Delivery], done: bool
) -> None:
    """See ``IStore.record_slice``.

    Deliveries of subscriptions that were removed meanwhile find no row.
    """
    succeeded = [{"key": one.subscription.id} for one in deliveries if one.outcome.success]
    if succeeded:
        conn.execute(_CLEAR_ERRORS, succeeded)
    failed = [
        {
            "key": one.subscription.id,
            "reason": one.outcome.reason,
            "at": to_micros(one.at),
            "marks": one.marks,
        }
        for one in deliveries
        if not one.outcome.success
    ]
    if failed:
        conn.execute(_COUNT_ERROR, failed)
    if done:
        same_topic = select(topic.c.id).where(topic.c.url == walk.topic).scalar_subquery()
        conn.execute(delete(fanout).where(fanout.c.topic_id == same_topic, fanout.c.id <= walk.id))
    else:
        conn.execute(update(fanout).where(fanout.c.id == walk.id).values(cursor=cursor))
