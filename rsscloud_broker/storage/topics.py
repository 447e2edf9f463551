"""Stores topics, their ends, their fan-outs, and the contents that publishers push.

``recording`` stores what fetches have found, ``checks`` which fetches are requested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Row, Select, Text, bindparam, case, insert, select, update

from rsscloud_broker.database import sqlite
from rsscloud_broker.database.columns import insert_missing, lock_rows, to_micros
from rsscloud_broker.model import Content, Topic
from rsscloud_broker.model.administration import Change
from rsscloud_broker.model.ways import Way
from rsscloud_broker.model.work import Bounds, KeptChange
from rsscloud_broker.storage import topic_urls
from rsscloud_broker.storage.changes import record_change_if_any, record_if_done
from rsscloud_broker.storage.checks import DEFAULT_BOUNDS, NO_CHECK, NO_VALIDATORS
from rsscloud_broker.storage.contents import keep_pushed, remove_unneeded
from rsscloud_broker.storage.hints import FANOUT, hint
from rsscloud_broker.storage.idle import evict_idle
from rsscloud_broker.storage.kept_changes import keep_changes
from rsscloud_broker.storage.polls import with_change
from rsscloud_broker.storage.schema import fanout, subscription, topic

_PLAIN = select(topic)

#: Replaces the columns of a topic that are given when it is executed.  It is built once, since
#: to build it takes longer than to execute it.
UPDATE = update(topic).where(topic.c.id == bindparam("key"))


def get_topics(conn: Connection, urls: Sequence[str]) -> list[Topic | None]:
    """The topic at each URL; None if the store does not know it."""
    rows = conn.execute(topic_urls.TOPICS_BY_URL.where(topic_urls.named.c.url.in_(urls)))
    found = {row.asked: topic_urls.as_topic(row) for row in rows}
    return [found.get(url) for url in urls]


def topic_key(conn: Connection, url: str) -> int:
    """The id of a topic.  Stores the topic if it is unknown."""
    at_url = select(topic_urls.TOPIC_ID).where(topic_urls.named.c.url == url)
    key = conn.execute(at_url).scalar()
    if key is None:
        insert_missing(conn, topic, [{"url": url}], topic.c.id)
        key = conn.execute(at_url).scalar_one()
    return int(key)


def lock_topic(conn: Connection, url: str) -> None:
    """Lock a topic: other transactions that record a fetch of it, or subscribe to it, wait.

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
    at_url, given = _narrow_to_url(query), {"wanted_url": url}
    row = conn.execute(at_url, given).first()
    if row is None:
        topic_key(conn, url)
        row = conn.execute(at_url, given).one()
    return row


@cache
def _narrow_to_url(query: Select[Any]) -> Select[Any]:
    """Narrow a query to the topic that is or was at the URL in its parameter ``wanted_url``.

    Cached, since to build a query takes longer than to execute it.
    """
    return query.where(topic.c.id == topic_urls.key_of(bindparam("wanted_url", type_=Text())))


def a_fanout(
    key: int,
    begun_at: int,
    content_key: int | None,
    carried: Content | None = None,
    *,
    pushed: bool = False,
    lacks_content: bool = False,
) -> dict[str, object]:
    """The values of a new fan-out of a topic, which has subscriptions.

    :param content_key: the id of the content ``carried`` in the store; None if it carries none.
    :param pushed: whether a publisher pushed that content, which can then not be fetched again.
    :param lacks_content: whether subscriptions want a content that the store does not have.
    """
    return {
        "topic_id": key,
        "cursor": 0,
        "begun_at": begun_at,
        "content_id": content_key,
        "content_size": 0 if carried is None else len(carried.body),
        "pushed": pushed,
        "later": lacks_content,
    }


def begin_fanouts(conn: Connection, fanouts: Sequence[Mapping[str, object]]) -> None:
    """Begin fan-outs.

    :param fanouts: what ``a_fanout`` made.
    """
    conn.execute(insert(fanout), fanouts)
    hint(conn, FANOUT)


def has_subscriptions(conn: Connection, key: int) -> bool:
    """Whether a topic has subscriptions."""
    anybody = select(subscription.c.id).where(subscription.c.topic_id == key).limit(1)
    return conn.execute(anybody).first() is not None


def _store_if_unknown(conn: Connection, url: str, at: int, bounds: Bounds) -> bool:
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
    """End a topic, known or not: the broker fetches it no more, its checks are dropped,
    and a fan-out begins if it has subscriptions.

    :param change: as for ``move_topic``.
    :returns: False if the topic had ended already, or if it is unknown and the store has
        as many such topics as it may keep.
    """
    ended_at = to_micros(at)
    if not _store_if_unknown(conn, url, ended_at, bounds):
        return False
    key = topic_key(conn, url)
    ended = conn.execute(
        update(topic)
        .where(topic.c.id == key, topic.c.ended == "")
        .values(ended=reason, changed_at=ended_at, next_poll_at=None, **NO_CHECK)
    )
    if not ended.rowcount:
        return False
    if has_subscriptions(conn, key):
        begin_fanouts(conn, [a_fanout(key, ended_at, None)])
    record_change_if_any(conn, change)
    return True


def revive_topic(conn: Connection, url: str, change: Change | None = None) -> bool:
    """Revive an ended topic.  The next fetch is unconditional.

    Checks that were requested meanwhile are dropped.

    :param change: as for ``move_topic``.
    :returns: whether the topic had ended.
    """
    revived = (
        update(topic)
        .where(topic.c.id == topic_urls.key_of(url), topic.c.ended != "")
        .values(
            ended="",
            next_poll_at=case((topic_urls.HAS_SUBSCRIPTIONS, 0), else_=None),
            **NO_VALIDATORS,
            **NO_CHECK,
        )
    )
    return record_if_done(conn, revived, change)


def push_content(
    conn: Connection, url: str, new: Content, at: float, bounds: Bounds = DEFAULT_BOUNDS
) -> bool:
    """Begin a fan-out of pushed content, if the topic has subscriptions.

    Such a fan-out supersedes no other, and no other supersedes it.

    The content is stored even if no subscription wants content now, since one may by the time
    that the fan-out reaches it.  It is stored whatever the limits are, since it cannot be fetched
    again.  Its change is kept for the feeds in any case.

    :returns: whether the topic has subscriptions.
    """
    keep_changes(conn, bounds.history, [KeptChange(0, url, at, Way.PUSH, content=new)])
    key = conn.execute(select(topic_urls.TOPIC_ID).where(topic_urls.named.c.url == url)).scalar()
    if key is None:
        return False
    lock_rows(conn, topic.c.id, [key])
    if not has_subscriptions(conn, key):
        return False
    begun_at = to_micros(at)
    query = select(topic.c.change_days, topic_urls.HAS_PUBLIC).where(topic.c.id == key)
    days, is_public = conn.execute(query).one()
    if is_public:
        days = with_change(days, at)
    conn.execute(
        update(topic).where(topic.c.id == key).values(changed_at=begun_at, change_days=days)
    )
    kept = keep_pushed(conn, key, new)
    begin_fanouts(conn, [a_fanout(key, begun_at, kept, new, pushed=True)])
    remove_unneeded(conn, [url])
    return True
