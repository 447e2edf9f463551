"""Stores and reads subscriptions; ``sweeping`` removes those that have ended."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from attrs import evolve
from sqlalchemy import (
    ColumnElement,
    Connection,
    ScalarSelect,
    bindparam,
    case,
    delete,
    func,
    select,
    update,
)

from rsscloud_broker.database.columns import (
    MICROSECONDS,
    columns_of,
    insert_into,
    insert_row,
    to_micros,
    to_seconds_or_none,
)
from rsscloud_broker.database.many_values import RowBatch
from rsscloud_broker.model import Callback, Lease, Subscription
from rsscloud_broker.storage.checks import request_content
from rsscloud_broker.storage.contents import is_kept
from rsscloud_broker.storage.intents import drop_intent
from rsscloud_broker.storage.polls import make_due
from rsscloud_broker.storage.schema import (
    options_from_text,
    options_to_text,
    pending,
    subscription,
    topic,
)
from rsscloud_broker.storage.topic_urls import ASKED_URL, TOPIC_ID, key_of, named, same
from rsscloud_broker.storage.topics import lock_topic, topic_row

#: The value of ``content_topic_id`` in the pending notification of a subscription.
CONTENT_TOPIC_ID = case((subscription.c.wants_content, subscription.c.topic_id))

#: Updates ``content_topic_id`` of a pending notification.  Run it with the subscription's key
#: when ``wants_content`` of the subscription may have changed.
MATCH_PENDING = (
    update(pending)
    .where(pending.c.subscription_id == bindparam("key"))
    .values(
        content_topic_id=select(CONTENT_TOPIC_ID)
        .where(subscription.c.id == pending.c.subscription_id)
        .scalar_subquery()
    )
)


#: The values of a subscription whose notifications have not failed lately.
NO_ERRORS: dict[str, Any] = {
    "consecutive_errors": 0,
    "last_error": "",
    "last_error_at": None,
    "dropping": False,
}


def state_values(one: Subscription) -> dict[str, Any]:
    """The columns of a subscription that change when it is renewed or imported."""
    return columns_of(
        one,
        subscription,
        granted_at=to_micros(one.lease.granted_at),
        lease_seconds=one.lease.seconds,
        expires_at=to_micros(one.lease.expires_at),
        options=options_to_text(one.options),
        written_url=one.written,
    )


def put_subscription(
    conn: Connection, wanted: Subscription, known: bytes | None = None
) -> Subscription:
    """Store a subscription, in place of one with the same topic and callback.

    The errors of the replaced subscription are cleared, and its pending notification is
    due at once.  An intent of the same topic and callback that still waits is removed: it is
    from before.

    A renewed subscription keeps its id.

    :param known: the digest of the topic's content when the subscriber asked.  If the
        topic has changed or ended since, the store adds a pending notification.  If that
        is to carry content which the store does not have, a check is requested, and the
        validators are forgotten, so that the server sends the content.
    :param intent_key: (of the store's method) the key of the intent that this settles and removes.
    :returns: the stored subscription, with ``renewed`` if it has replaced one.
    :raises ClaimLost: that intent was replaced meanwhile, or another node has claimed it.
        Then nothing is stored.
    """
    drop_intent(conn, wanted.topic, wanted.callback)
    lock_topic(conn, wanted.topic)
    row = topic_row(conn, wanted.topic)
    identity: dict[str, Any] = {
        "topic_id": row.id,
        "asked_url": "" if wanted.topic == (row.first_url or row.url) else wanted.topic,
        "callback_url": wanted.callback.url,
        "protocol": wanted.callback.protocol,
        "procedure": wanted.callback.procedure,
    }
    values = state_values(wanted) | NO_ERRORS
    granted_at = to_micros(wanted.lease.granted_at)
    key = _find_id_at(conn, row.id, identity["asked_url"], wanted.callback)
    renewed = key is not None
    if key is None:
        values["host"] = wanted.callback.host
        key = insert_row(conn, subscription, **identity, **values)
    else:
        conn.execute(update(subscription).where(subscription.c.id == key).values(values))
        conn.execute(MATCH_PENDING, {"key": key})
        conn.execute(
            update(pending)
            .where(pending.c.subscription_id == key)
            .values(attempts=0, due_at=granted_at, failing_since=None, not_before=None)
        )
    differs = row.digest is not None and row.digest != known
    if known is not None and (differs or row.ended):
        add_pending(conn, key, granted_at)
        if wanted.wants_content and not row.ended and not is_kept(conn, row.id):
            request_content(conn, wanted.topic, wanted.lease.granted_at)
    if row.idle_at is not None:
        conn.execute(update(topic).where(topic.c.id == row.id).values(idle_at=None))
    if row.next_poll_at is None and not row.ended:
        make_due(conn, [row.id], granted_at)
    (stored,) = by_ids(conn, [key])
    return evolve(stored, renewed=renewed)


def add_pending(conn: Connection, key: int, due_at: int, content_key: int | None = None) -> bool:
    """Add a pending notification for a subscription; False if it has one already.

    :param content_key: the id of the pushed content that it carries; None if it carries none.
    """
    row = insert_into(conn, pending).values(
        subscription_id=key,
        attempts=0,
        due_at=due_at,
        content_topic_id=_of_subscription(key, CONTENT_TOPIC_ID),
        host=_of_subscription(key, subscription.c.host),
        content_id=content_key,
    )
    added = row.on_conflict_do_nothing().returning(pending.c.subscription_id)
    return conn.execute(added).first() is not None


def _of_subscription(key: int, column: ColumnElement[Any]) -> ScalarSelect[Any]:
    """A subquery for a column of a subscription."""
    return select(column).where(subscription.c.id == key).scalar_subquery()


def remove_subscription(conn: Connection, topic_url: str, callback: Callback) -> bool:
    """Remove a subscription, and return whether there was one.

    An intent that still waits is removed too, as by ``put_subscription``.

    :param intent_key: as for ``put_subscription``.
    :raises ClaimLost: as for ``put_subscription``.
    """
    drop_intent(conn, topic_url, callback)
    key = _find_id(conn, topic_url, callback)
    if key is not None:
        conn.execute(delete(subscription).where(subscription.c.id == key))
    return key is not None


def has_subscription(conn: Connection, topic_url: str, callback: Callback) -> bool:
    """Whether there is a subscription with a topic and a callback."""
    return _find_id(conn, topic_url, callback) is not None


def _find_id(conn: Connection, topic_url: str, callback: Callback) -> int | None:
    """The id of the subscription to a URL by a callback; None if there is none."""
    location = select(topic.c.id, ASKED_URL).join_from(named, topic, topic.c.id == TOPIC_ID)
    found = conn.execute(location.where(named.c.url == topic_url)).first()
    return None if found is None else _find_id_at(conn, *found, callback)


def _find_id_at(conn: Connection, topic_key: int, asked_url: str, callback: Callback) -> int | None:
    """The id of the subscription to a topic by a callback; None if there is none.

    The query names all columns of the unique index, since a topic may have a million subscriptions,
    and a callback as well.

    :param asked_url: the URL that the subscriber asked for; empty for the first URL of the topic.
    """
    wanted = select(subscription.c.id).where(
        subscription.c.topic_id == topic_key,
        same(conn, subscription.c.asked_url, asked_url),
        same(conn, subscription.c.callback_url, callback.url),
        subscription.c.protocol == callback.protocol,
        subscription.c.procedure == callback.procedure,
    )
    return conn.execute(wanted).scalar()


_COLUMNS = subscription.c
_WITH_PENDING = (
    select(
        topic.c.url,
        topic.c.first_url,
        _COLUMNS.callback_url,
        _COLUMNS.protocol,
        _COLUMNS.procedure,
        _COLUMNS.granted_at,
        _COLUMNS.lease_seconds,
        _COLUMNS.id,
        _COLUMNS.consecutive_errors,
        _COLUMNS.last_error,
        _COLUMNS.last_error_at,
        _COLUMNS.dropping,
        pending.c.attempts,
        _COLUMNS.options,
        _COLUMNS.wants_content,
        topic.c.ended,
        _COLUMNS.asked_url,
        pending.c.failing_since,
        pending.c.content_id,
        _COLUMNS.written_url,
    )
    .join(topic, topic.c.id == _COLUMNS.topic_id)
    .outerjoin(pending, pending.c.subscription_id == _COLUMNS.id)
)

_BY_IDS = RowBatch(_WITH_PENDING.where(subscription.c.id.in_(bindparam("ids", expanding=True))))

_OF_TOPIC = RowBatch(
    _WITH_PENDING.where(
        subscription.c.topic_id == key_of(bindparam("of_topic")),
        subscription.c.id > bindparam("after"),
        subscription.c.id <= bindparam("until"),
    )
    .order_by(subscription.c.id)
    .limit(bindparam("at_most"))
)


#: Greater than all ids.
_NO_END = 2**62


def subscriptions(
    conn: Connection, topic_url: str, after: int, limit: int, until: int | None = None
) -> list[Subscription]:
    """The subscriptions of a topic with an id above ``after``, in the order of their ids.

    :param until: the last id that is wanted; None for all.
    """
    last = _NO_END if until is None else until
    parameters = {"of_topic": topic_url, "after": after, "until": last, "at_most": limit}
    found = [_subscription(row) for row in _OF_TOPIC.read(conn, parameters)]
    return sorted(found, key=attrgetter("id"))


def by_ids(conn: Connection, ids: Sequence[int]) -> list[Subscription]:
    """The subscriptions with the given ids, in that order.  Removed ones are left out."""
    by_id = {one.id: one for one in map(_subscription, _BY_IDS.read(conn, {"ids": ids}))}
    return [by_id[key] for key in ids if key in by_id]


def _subscription(row: Sequence[Any]) -> Subscription:
    # By position, which is quicker than by name: each notification needs this.
    (
        url, first_url, callback_url, protocol, procedure, granted_at, lease_seconds, key, errors,
        last_error, last_error_at, dropping, attempts, options, wants_content, ended, asked_url,
        failing_since, content_id, written,
    ) = row  # fmt: skip
    asked = asked_url or first_url or url
    return Subscription(
        asked,
        Callback(callback_url, protocol, procedure),
        Lease(granted_at / MICROSECONDS, lease_seconds),
        key,
        errors,
        last_error,
        to_seconds_or_none(last_error_at),
        bool(dropping),
        attempts,
        options_from_text(options),
        bool(wants_content),
        ended,
        "" if asked == url else url,
        to_seconds_or_none(failing_since),
        content_id,
        written,
    )


def count_of_host(conn: Connection, host: str, limit: int) -> int:
    """The number of subscriptions with a callback at a host, counted up to ``limit``."""
    some = select(subscription.c.id).where(subscription.c.host == host).limit(limit).subquery()
    return conn.execute(select(func.count()).select_from(some)).scalar_one()
