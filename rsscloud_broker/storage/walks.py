"""What the store does with walks over subscriptions, and with what came of them.

Each function is one step of a transaction that the caller has begun; run again
after a rollback, it does the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import (
    BigInteger,
    Connection,
    and_,
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

from rsscloud_broker.model import Delivery, Fanout, HostState, Subscription
from rsscloud_broker.storage.contents import remove_unneeded
from rsscloud_broker.storage.schema import (
    fanout,
    host,
    subscription,
    to_micros,
    to_seconds,
    to_seconds_or_none,
    topic,
    waiting,
)
from rsscloud_broker.storage.subscriptions import CONTENT_TOPIC_ID, by_ids

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


_FORGET = delete(waiting).where(waiting.c.subscription_id == bindparam("key"))

# One that was renewed since is wanted again.
_REMOVE = delete(subscription).where(
    subscription.c.id == bindparam("key"), subscription.c.granted_at == bindparam("granted")
)

_WAIT_ON = (
    update(waiting)
    .where(waiting.c.subscription_id == bindparam("key"))
    .values(attempts=bindparam("tries"), due_at=bindparam("due"))
)


def fanouts(conn: Connection, limit: int) -> list[Fanout]:
    """See ``IStore.fanouts``."""
    newest = select(func.max(fanout.c.id)).where(~fanout.c.pushed).group_by(fanout.c.topic_id)
    next_ones = (
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
        .where(fanout.c.id.in_(next_ones))
        .order_by(fanout.c.id)
        .limit(limit)
    )
    return [
        Fanout(key, url, cursor, to_seconds(begun_at), *others)
        for key, url, cursor, begun_at, *others in conn.execute(query)
    ]


def record_slice(
    conn: Connection, walk: Fanout, cursor: int, deliveries: Sequence[Delivery], done: bool
) -> None:
    """See ``IStore.record_slice``."""
    record_deliveries(conn, deliveries)
    if done:
        _end(conn, walk)
        remove_unneeded(conn, [walk.topic])
    else:
        conn.execute(update(fanout).where(fanout.c.id == walk.id).values(cursor=cursor))


def _end(conn: Connection, walk: Fanout) -> None:
    """Remove a walk, and those that it made needless."""
    this = conn.execute(
        select(fanout.c.topic_id, fanout.c.pushed).where(fanout.c.id == walk.id)
    ).first()
    if this is None:
        return
    over = fanout.c.id == walk.id
    if not this.pushed:
        older = and_(fanout.c.topic_id == this.topic_id, fanout.c.id < walk.id, ~fanout.c.pushed)
        over = or_(over, older)
    conn.execute(delete(fanout).where(over))


def record_deliveries(conn: Connection, deliveries: Sequence[Delivery]) -> None:
    """See ``IStore.record_deliveries``.

    Deliveries of subscriptions that were removed meanwhile find no row.
    """
    wait = [one for one in deliveries if one.retry_at is not None]
    over = [
        (one, one.outcome)
        for one in deliveries
        if one.outcome and (one.retry_at is None or not one.attempts)
    ]
    gone = [one for one, outcome in over if outcome.gone]
    succeeded = [one for one, outcome in over if outcome.success and not outcome.gone]
    failed = [
        {
            "key": one.subscription.id,
            "reason": outcome.reason,
            "at": to_micros(one.at),
            "marks": one.marks,
        }
        for one, outcome in over
        if not outcome.success and not outcome.gone
    ]
    if over:
        conn.execute(_FORGET, _keys([one for one, _ in over]))
    if gone:
        conn.execute(
            _REMOVE,
            [
                {"key": one.id, "granted": to_micros(one.lease.granted_at)}
                for one in (delivery.subscription for delivery in gone)
            ],
        )
    if succeeded:
        conn.execute(_CLEAR_ERRORS, _keys(succeeded))
    if failed:
        conn.execute(_COUNT_ERROR, failed)
    if wait:
        _wait(conn, wait)
    let_go = {
        delivery.subscription.topic
        for delivery, outcome in over
        if delivery.subscription.wants_content
        and (outcome.gone or delivery.subscription.attempts is not None)
    }
    if let_go:
        remove_unneeded(conn, let_go)


def _keys(deliveries: Sequence[Delivery]) -> list[dict[str, int]]:
    return [{"key": one.subscription.id} for one in deliveries]


def _wait(conn: Connection, deliveries: Sequence[Delivery]) -> None:
    """Let notifications wait; where one waits already it is the same from now on."""
    wanted = {one.subscription.id: one for one in deliveries}
    alive = select(subscription.c.id, CONTENT_TOPIC_ID).where(subscription.c.id.in_(wanted))
    waits = select(waiting.c.subscription_id).where(waiting.c.subscription_id.in_(wanted))
    there = set(conn.execute(waits).scalars())
    updates, inserts = [], []
    for key, content_topic in conn.execute(alive):
        one = wanted[key]
        assert one.retry_at is not None  # the caller looked
        due = to_micros(one.retry_at)
        if key in there:
            if not one.unless_waiting:
                updates.append({"key": key, "tries": one.attempts, "due": due})
        else:
            inserts.append(
                {
                    "subscription_id": key,
                    "attempts": one.attempts,
                    "due_at": due,
                    "content_topic_id": content_topic,
                }
            )
    if updates:
        conn.execute(_WAIT_ON, updates)
    if inserts:
        conn.execute(insert(waiting), inserts)


def claim_due(
    conn: Connection, now: float, until: float, limit: int, busy: Collection[str]
) -> list[Subscription]:
    """See ``IStore.claim_due``.  What is due is gone through in its order, by an index,
    until enough is found, past however many of busy hosts.
    """
    due = (
        select(waiting.c.subscription_id)
        .where(waiting.c.due_at <= to_micros(now))
        .order_by(waiting.c.due_at, waiting.c.subscription_id)
    )
    if busy:
        due = due.join(subscription, subscription.c.id == waiting.c.subscription_id).where(
            subscription.c.host.not_in(busy)
        )
    ids = list(conn.execute(due.limit(limit)).scalars())
    if not ids:
        return []
    conn.execute(
        update(waiting).where(waiting.c.subscription_id.in_(ids)).values(due_at=to_micros(until))
    )
    return by_ids(conn, ids)


def next_due(conn: Connection) -> float | None:
    """See ``IStore.next_due``."""
    return to_seconds_or_none(conn.execute(select(func.min(waiting.c.due_at))).scalar())


def hosts(conn: Connection) -> list[HostState]:
    """See ``IStore.hosts``."""
    return [
        HostState(host=row.name, failures=row.failures, retry_at=to_seconds(row.retry_at))
        for row in conn.execute(select(host).order_by(host.c.name))
    ]


def record_hosts(conn: Connection, states: Sequence[HostState]) -> None:
    """See ``IStore.record_hosts``."""
    latest = {state.host: state for state in states}
    conn.execute(delete(host).where(host.c.name.in_(latest)))
    failing = [state for state in latest.values() if state.failures]
    if failing:
        conn.execute(
            insert(host),
            [
                {
                    "name": state.host,
                    "failures": state.failures,
                    "retry_at": to_micros(state.retry_at),
                }
                for state in failing
            ],
        )
