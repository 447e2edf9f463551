"""Stores topics: the results of fetches, requested checks, pushed contents, and the ends of topics.

Each function runs in a transaction that the caller has begun, and may run again after a
rollback.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

import attrs
from sqlalchemy import (
    Connection,
    Row,
    Select,
    Text,
    bindparam,
    case,
    false,
    insert,
    select,
    update,
)

from rsscloud_broker.admin_records import Change
from rsscloud_broker.model import Content, FetchResult, Ping, Topic
from rsscloud_broker.records import Bounds, FetchRecord
from rsscloud_broker.storage import sqlite
from rsscloud_broker.storage.changes import record_change_if_any
from rsscloud_broker.storage.checks import DEFAULT_BOUNDS, NO_CHECK, NO_VALIDATORS
from rsscloud_broker.storage.conflicts import insert_missing, lock_rows
from rsscloud_broker.storage.contents import (
    insert_content,
    is_kept,
    is_waited_for,
    is_wanted,
    keep_pushed,
    remove_outdated,
    remove_unneeded,
)
from rsscloud_broker.storage.hints import FANOUT, hint
from rsscloud_broker.storage.idle import evict_idle
from rsscloud_broker.storage.operations import Operation
from rsscloud_broker.storage.pings import insert_pings
from rsscloud_broker.storage.schema import fanout, pending, subscription, topic
from rsscloud_broker.storage.topic_urls import (
    HAS_SUBSCRIPTIONS,
    TOPIC_ID,
    TOPICS,
    TOPICS_BY_URL,
    as_topic,
    key_of,
    named,
)
from rsscloud_broker.tables import to_micros, to_micros_or_none, to_seconds_or_none

T = TypeVar("T")

_PLAIN = select(topic)

#: No fetch takes longer than this, in microseconds.
_LONGEST_FETCH = to_micros(300)

#: Replaces the columns of a topic that are given when it is executed.  It is built once, since
#: to build it takes longer than to execute it.
_UPDATE = update(topic).where(topic.c.id == bindparam("key"))


def get_topics(conn: Connection, urls: Sequence[str]) -> list[Topic | None]:
    """See ``IStore.topic``, for several topics."""
    rows = conn.execute(TOPICS_BY_URL.where(named.c.url.in_(urls)))
    found = {row.asked: as_topic(row) for row in rows}
    return [found.get(url) for url in urls]


def topic_key(conn: Connection, url: str) -> int:
    """The id of a topic.  Stores the topic if it is unknown."""
    wanted = select(TOPIC_ID).where(named.c.url == url)
    key = conn.execute(wanted).scalar()
    if key is None:
        insert_missing(conn, topic, [{"url": url}], topic.c.id)
        key = conn.execute(wanted).scalar_one()
    return int(key)


def lock_topic(conn: Connection, url: str) -> None:
    """Make other transactions wait that record a fetch of a topic or subscribe to it.

    So of two nodes that record the same change one finds it recorded; and a subscription is stored
    either before a fan-out begins, which then reaches it, or with the knowledge of the change.
    Stores the topic if it is unknown.
    """
    if not sqlite.serves(conn):
        lock_rows(conn, topic.c.id, [topic_key(conn, url)])


def topic_row(conn: Connection, url: str, query: Select[Any] = _PLAIN) -> Row[Any]:
    """The row of a topic.  Stores the topic if it is unknown.

    :param query: selects the columns.
    """
    wanted, given = _at_url(query), {"wanted_url": url}
    row = conn.execute(wanted, given).first()
    if row is None:
        topic_key(conn, url)
        row = conn.execute(wanted, given).one()
    return row


@cache
def _at_url(query: Select[Any]) -> Select[Any]:
    """A query for the topic at a URL.  It is built once: that takes longer than to execute it."""
    return query.where(topic.c.id == key_of(bindparam("wanted_url", type_=Text())))


def record_fetch(
    conn: Connection,
    fetched: FetchResult,
    ping: Ping | None,
    bounds: Bounds = DEFAULT_BOUNDS,
    node: int | None = None,
) -> FetchRecord:
    """See ``IStore.record_fetch``.

    :param node: the node id of this process.
    """
    lock_topic(conn, fetched.url)
    return _record(conn, topic_row(conn, fetched.url, TOPICS), fetched, ping, bounds, node)


def _is_outdated(row: Row[Any], read_at: int, node: int | None) -> bool:
    """Whether another node has recorded a fetch of a topic that began after this one.

    The clocks of the nodes are compared here, so they must agree to a fraction of a second.  If a
    fetch seems to have begun much later than this one, a clock is wrong.
    """
    by_another = row.reader_id is not None and node is not None and row.reader_id != node
    return by_another and 0 < (row.read_at or 0) - read_at < _LONGEST_FETCH


def _record(
    conn: Connection,
    row: Row[Any],
    fetched: FetchResult,
    ping: Ping | None,
    bounds: Bounds,
    node: int | None,
) -> FetchRecord:
    """Record what a fetch found.

    :param row: the row of the topic, as ``TOPICS`` selects it.
    :param node: the node id of this process.
    """
    key: int = row.id
    read_at = to_micros(fetched.started_at)
    if _is_outdated(row, read_at, node):
        return FetchRecord(as_topic(row), changed=False)
    is_idle = not row.counted
    if is_idle and row.idle_at is None:
        evict_idle(conn, bounds.idle_topics - 1)
    changed = (row.digest, row.size) != (fetched.digest, fetched.size)
    values: dict[str, object] = {
        "read_at": read_at,
        "etag": fetched.validators.etag,
        "last_modified": fetched.validators.last_modified,
        "fresh_seconds": to_micros_or_none(fetched.fresh_seconds),
        "asked_at": read_at,
        "reader_id": node,
        "result": fetched.result,
        "failures": 0,
        "idle_at": read_at if is_idle else None,
    }
    if fetched.pinged:
        values["pinged_at"] = read_at
    if changed:
        values |= {"digest": fetched.digest, "size": fetched.size, "changed_at": read_at}
    if row.check_requested_at is not None and row.check_requested_at <= read_at:
        values |= NO_CHECK
    conn.execute(_UPDATE, {"key": key, **values})
    wanted, content_key = _keep_content(conn, row, fetched, changed, bounds)
    recorded = None
    if changed:
        asked_at = fetched.started_at if fetched.asked_at is None else fetched.asked_at
        lacks_content = wanted and content_key is None
        carried = None if content_key is None else fetched.content
        begun_at = to_micros(asked_at)
        if not is_idle:
            _begin_fanout(conn, key, begun_at, content_key, carried, lacks_content=lacks_content)
        (recorded,) = (None,) if ping is None else insert_pings(conn, [ping])
    content_awaited = not changed and content_key is not None
    if content_awaited:
        _use_content(conn, key, content_key, fetched)
    if content_key is not None:
        remove_unneeded(conn, [fetched.url])
    topic_now = attrs.evolve(
        as_topic(row),
        digest=fetched.digest,
        size=fetched.size,
        read_at=to_seconds_or_none(read_at),
        changed_at=to_seconds_or_none(read_at if changed else row.changed_at),
        validators=fetched.validators,
    )
    return FetchRecord(
        topic=topic_now,
        changed=changed,
        ping=recorded,
        content_awaited=content_awaited,
        stored=content_key is not None,
    )


def publish(
    conn: Connection,
    fetched: Sequence[FetchResult],
    ping: Ping,
    operation: Operation[T],
    bounds: Bounds = DEFAULT_BOUNDS,
    node: int | None = None,
) -> tuple[T, list[FetchRecord]]:
    """See ``IStore.publish``.

    :param node: the node id of this process.
    """
    result = operation(conn)
    records = []
    for number, each in enumerate(fetched):
        lock_topic(conn, each.url)
        row = topic_row(conn, each.url, TOPICS)
        if row.ended:
            revive_topic(conn, each.url)
            row = topic_row(conn, each.url, TOPICS)
        records.append(_record(conn, row, each, None if number else ping, bounds, node))
    return result, records


def _keep_content(
    conn: Connection, row: Row[Any], fetched: FetchResult, changed: bool, bounds: Bounds
) -> tuple[bool, int | None]:
    """Store the content of a fetch if something needs it and it fits.

    :param row: the row of the topic, as ``TOPICS`` selects it.
    :returns: whether something needs the content; and its key, or None if it is not stored.
    """
    key: int = row.id
    if changed:
        wanted = bool(row.counted) and is_wanted(conn, key)
    else:
        # The store may lack a content that notifications wait for: when it changed, no
        # subscription wanted content, or it did not fit.
        waited_for = is_waited_for(conn, key) or _has_fanout_without_content(conn, key)
        wanted = waited_for and not is_kept(conn, key)
    content_key = None
    if wanted and fetched.content is not None:
        content_key = insert_content(conn, key, fetched.url, fetched.content, bounds)
    if changed and content_key is None:
        remove_outdated(conn, key)
    return wanted, content_key


def _has_fanout_without_content(conn: Connection, key: int) -> bool:
    """Whether a topic has a fan-out for whose content it did not fit."""
    walk = select(fanout.c.id).where(fanout.c.topic_id == key, fanout.c.later)
    return conn.execute(walk.limit(1)).first() is not None


def _use_content(conn: Connection, key: int, content_key: int | None, fetched: FetchResult) -> None:
    """Give a content to the fan-outs that lack it, and make those pending notifications due that
    wait for it and have had no attempt.
    """
    at = to_micros(fetched.started_at)
    conn.execute(
        update(fanout)
        .where(fanout.c.topic_id == key, fanout.c.later)
        .values(content_id=content_key, content_size=fetched.size, later=false())
    )
    conn.execute(
        update(pending)
        .where(
            pending.c.content_topic_id == key,
            pending.c.attempts == 0,
            pending.c.due_at > at,
        )
        .values(due_at=at)
    )


def _begin_fanout(
    conn: Connection,
    key: int,
    begun_at: int,
    content_key: int | None,
    carried: Content | None = None,
    *,
    pushed: bool = False,
    lacks_content: bool = False,
) -> None:
    """Begin a fan-out of a topic, which has subscriptions."""
    made = conn.execute(
        insert(fanout).values(
            topic_id=key,
            cursor=0,
            begun_at=begun_at,
            content_id=content_key,
            content_size=0 if carried is None else len(carried.body),
            pushed=pushed,
            later=lacks_content,
        )
    ).inserted_primary_key
    assert made is not None  # a single insert always has one
    hint(conn, FANOUT, made[0])


def _has_subscriptions(conn: Connection, key: int) -> bool:
    anybody = select(subscription.c.id).where(subscription.c.topic_id == key).limit(1)
    return conn.execute(anybody).first() is not None


def push_content(conn: Connection, url: str, new: Content, at: float) -> bool:
    """See ``IStore.push_content``.

    The content is stored even if no subscription wants content now, since one may by the time
    that the fan-out reaches it.  It is stored whatever the limits are, since it cannot be fetched
    again.
    """
    key = conn.execute(select(TOPIC_ID).where(named.c.url == url)).scalar()
    if key is None:
        return False
    lock_rows(conn, topic.c.id, [key])
    if not _has_subscriptions(conn, key):
        return False
    begun_at = to_micros(at)
    conn.execute(update(topic).where(topic.c.id == key).values(changed_at=begun_at))
    _begin_fanout(conn, key, begun_at, keep_pushed(conn, key, new), new, pushed=True)
    remove_unneeded(conn, [url])
    return True


def _make_known(conn: Connection, url: str, at: int, bounds: Bounds) -> bool:
    """Store a topic without subscriptions, if it is unknown.

    :returns: False if the topic does not fit.
    """
    if conn.execute(select(topic.c.id).where(topic.c.url == url)).first() is not None:
        return True
    if not evict_idle(conn, bounds.idle_topics, 1):
        return False
    insert_missing(conn, topic, [{"url": url, "idle_at": at}], topic.c.id)
    return True


def end_topic(
    conn: Connection,
    url: str,
    reason: str,
    at: float,
    bounds: Bounds = DEFAULT_BOUNDS,
    change: Change | None = None,
) -> bool:
    """See ``IStore.end_topic``."""
    ended_at = to_micros(at)
    if not _make_known(conn, url, ended_at, bounds):
        return False
    key = topic_key(conn, url)
    ended = conn.execute(
        update(topic)
        .where(topic.c.id == key, topic.c.ended == "")
        .values(ended=reason, changed_at=ended_at, next_poll_at=None, **NO_CHECK)
    )
    if not ended.rowcount:
        return False
    if _has_subscriptions(conn, key):
        _begin_fanout(conn, key, ended_at, None)
    record_change_if_any(conn, change)
    return True


def revive_topic(conn: Connection, url: str, change: Change | None = None) -> bool:
    """See ``IStore.revive_topic``.  Checks that were requested meanwhile are dropped."""
    revived = conn.execute(
        update(topic)
        .where(topic.c.id == key_of(url), topic.c.ended != "")
        .values(
            ended="",
            next_poll_at=case((HAS_SUBSCRIPTIONS, 0), else_=None),
            **NO_VALIDATORS,
            **NO_CHECK,
        )
    )
    if not revived.rowcount:
        return False
    record_change_if_any(conn, change)
    return True
