"""Finds and changes subscriptions and hosts for administrators.

A search reads at most ``LOOKED_AT`` subscriptions by one index, and filters those, so that it is
quick on a table of millions.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, delete, false, func, select, true, update

from rsscloud_broker.database.columns import to_micros, to_seconds, to_seconds_or_none
from rsscloud_broker.model.administration import (
    Change,
    PendingNotification,
    SubscriptionDetails,
    SubscriptionFilter,
    SubscriptionPage,
)
from rsscloud_broker.model.work import HostState
from rsscloud_broker.storage.changes import record_change, record_if_done
from rsscloud_broker.storage.failed_attempts import failed_attempts
from rsscloud_broker.storage.schema import host_state, pending, queued, subscription
from rsscloud_broker.storage.subscriptions import NO_ERRORS, add_pending, by_ids
from rsscloud_broker.storage.topic_urls import key_of
from rsscloud_broker.storage.walks import host_states_in

#: How many subscriptions one search looks at.
LOOKED_AT: Final = 20_000

_HAS_PENDING: Final = (
    select(pending.c.subscription_id).where(pending.c.subscription_id == subscription.c.id).exists()
)


# --- finding subscriptions


def find_subscriptions(
    conn: Connection, wanted: SubscriptionFilter, now: float, after: int, limit: int
) -> SubscriptionPage:
    """The next subscriptions that pass a filter: at most ``limit``, with ids above ``after``.

    :param wanted: the filter, whose topic is in normal form.
    :returns: them, and the id behind which the next page begins; None if there is no further page.
    """
    candidates = _candidates(conn, wanted, now).subquery()
    some = select(candidates.c.id).where(candidates.c.id > after)
    looked_at = some.order_by(candidates.c.id).limit(LOOKED_AT).subquery()
    last, number = conn.execute(
        select(func.max(looked_at.c.id), func.count()).select_from(looked_at)
    ).one()
    matching = (
        select(subscription.c.id)
        .where(subscription.c.id.in_(select(looked_at.c.id)), *_conditions(wanted, now))
        .order_by(subscription.c.id)
        .limit(limit + 1)
    )
    ids = list(conn.execute(matching).scalars())
    found = tuple(by_ids(conn, ids[:limit]))
    if len(ids) > limit:
        return SubscriptionPage(found, ids[limit - 1])
    return SubscriptionPage(found, last if number == LOOKED_AT else None)


def _candidates(conn: Connection, wanted: SubscriptionFilter, now: float) -> Select[Any]:
    """The ids of subscriptions by the index that leaves the fewest; the caller filters them."""
    ids, table = select(subscription.c.id), subscription.c
    of_state = _ids_in_state(wanted.state, now)
    if of_state is not None:
        # The limit keeps the database from reading the whole table in the order of ids.
        few = of_state.limit(LOOKED_AT + 1)
        if conn.execute(select(func.count()).select_from(few.subquery())).scalar_one() <= LOOKED_AT:
            return few
    if wanted.topic:
        return ids.where(table.topic_id == key_of(wanted.topic))
    if wanted.host:
        return ids.where(table.host == wanted.host)
    return ids


def _ids_in_state(state: str, now: float) -> Select[Any] | None:
    """The ids of subscriptions in a state that has an index; None for other states."""
    if state == "waiting":
        return select(pending.c.subscription_id.label("id"))
    if state in ("dropping", "expired", "failing"):
        return select(subscription.c.id).where(_is_in_state(state, now))
    return None


def _conditions(wanted: SubscriptionFilter, now: float) -> list[ColumnElement[bool]]:
    """The conditions of a filter, all of which must hold."""
    table = subscription.c
    found = []
    if wanted.topic:
        found.append(table.topic_id == key_of(wanted.topic))
    if wanted.host:
        found.append(table.host == wanted.host)
    if wanted.protocol:
        found.append(table.protocol == wanted.protocol)
    if wanted.state:
        found.append(_is_in_state(wanted.state, now))
    return found


def _is_in_state(state: str, now: float) -> ColumnElement[bool]:
    """The condition of a state: see ``model.administration.STATES``."""
    table = subscription.c
    expired = table.expires_at <= to_micros(now)
    # As in the condition of the partial index, which each database wants in its own words.
    dropping = table.dropping == true()
    conditions: dict[str, ColumnElement[bool]] = {
        "active": ~expired & (table.dropping == false()),
        "failing": table.consecutive_errors > 0,
        "dropping": dropping,
        "waiting": _HAS_PENDING,
        "expired": expired,
    }
    return conditions[state]


# --- one subscription


def subscription_details(conn: Connection, key: int) -> SubscriptionDetails | None:
    """One subscription with its pending notification, failures and breakers; None for none."""
    found = by_ids(conn, [key])
    if not found:
        return None
    callback = found[0].callback
    names = (callback.host, callback.origin)
    return SubscriptionDetails(
        found[0],
        _pending_notification(conn, key),
        failed_attempts(conn, key),
        tuple(host_states_in(conn, select(host_state).where(host_state.c.name.in_(names)))),
    )


def _pending_notification(conn: Connection, key: int) -> PendingNotification | None:
    """The pending notification of a subscription; None if it has none."""
    row = conn.execute(select(pending).where(pending.c.subscription_id == key)).first()
    if row is None:
        return None
    behind = select(func.count()).select_from(queued).where(queued.c.subscription_id == key)
    return PendingNotification(
        attempts=row.attempts,
        due_at=to_seconds(row.due_at),
        under_way=row.node_id is not None,
        failing_since=to_seconds_or_none(row.failing_since),
        not_before=to_seconds_or_none(row.not_before),
        queued=conn.execute(behind).scalar_one(),
    )


def redeliver(conn: Connection, key: int, change: Change) -> bool:
    """Make the pending notification of a subscription due now, or add one.

    If it is to carry content which the store does not have, the attempt has the topic
    fetched.  A notification that a process works on is left alone.

    :returns: whether there is such a subscription.
    """
    if not by_ids(conn, [key]):
        return False
    due_at = to_micros(change.at)
    conn.execute(
        update(pending)
        .where(pending.c.subscription_id == key, pending.c.node_id.is_(None))
        .values(attempts=0, due_at=due_at, failing_since=None, not_before=None)
    )
    add_pending(conn, key, due_at)
    record_change(conn, change)
    return True


def remove_subscription_by_id(conn: Connection, key: int, change: Change) -> bool:
    """Remove a subscription, and return whether there was one."""
    return record_if_done(conn, delete(subscription).where(subscription.c.id == key), change)


def set_dropping(conn: Connection, key: int, dropping: bool, change: Change) -> bool:
    """Mark a subscription for dropping; or take the mark from it and clear its errors.

    :returns: whether there is such a subscription.
    """
    values: dict[str, Any] = {"dropping": dropping}
    if not dropping:  # otherwise the next failure would mark it again
        values |= NO_ERRORS
    changed = update(subscription).where(subscription.c.id == key).values(values)
    return record_if_done(conn, changed, change)


# --- hosts


def host_states(conn: Connection, after: str, limit: int) -> list[HostState]:
    """The stored states of the hosts whose names follow ``after``, by name."""
    query = select(host_state).where(host_state.c.name > after).order_by(host_state.c.name)
    return host_states_in(conn, query.limit(limit))


def close_breaker(conn: Connection, host: str, change: Change) -> bool:
    """Delete the stored states of the breakers of a host and its ports, and record the ``Change``.

    It is recorded in any case, since a breaker in memory may not be stored yet.  The process
    that learns of the change calls ``make_due`` for the notifications that wait.

    :returns: whether there was a stored state.
    """
    name = host_state.c.name
    of_ports = name.startswith(f"{host}:", autoescape=True)
    closed = conn.execute(delete(host_state).where((name == host) | of_ports))
    record_change(conn, change)
    return closed.rowcount > 0
