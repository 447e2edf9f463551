"""Limits the number of idle topics, which are topics without subscriptions.

Anybody can make the broker fetch a URL, by a ping.  The store remembers the topic, to see whether
it has changed when it is fetched again.  So the store keeps the topics fetched last, and
forgets the others.

A row is idle if its ``idle_at`` is set, to the time when the topic was last fetched or a check
was requested.  The rows of URLs that an idle topic has left are idle too.  When the last
subscription of a topic is removed, ``idle_at`` stays null until the next fetch or sweep.

Each function runs in a transaction that the caller has begun, and may run again after a
rollback.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, and_, delete, func, or_, select, update

from rsscloud_broker.storage.contents import remove_contents_of
from rsscloud_broker.storage.schema import topic
from rsscloud_broker.storage.topic_urls import HAS_SUBSCRIPTIONS, IS_ASKED_URL

#: How many topics are removed together.
_BATCH = 1000

_IDLE = topic.c.idle_at.is_not(None)

# Written so that SQLite does not use the index of this column, which has almost all topics.
_CHECK_REQUESTED = func.coalesce(topic.c.check_requested_at, 0) > 0

_REMOVABLE = and_(_IDLE, ~_CHECK_REQUESTED, ~HAS_SUBSCRIPTIONS, ~IS_ASKED_URL)


def evict_idle(conn: Connection, limit: int, wanted: int = 0, spared: Collection[int] = ()) -> int:
    """Remove idle topics, those fetched longest ago first, until more of them fit.

    Topics that wait to be fetched are not removed.

    :param limit: how many idle topics there may be.
    :param wanted: how many idle topics the caller wants to add.
    :param spared: the ids of topics that are not removed.
    :returns: how many the caller may add.
    """
    count = select(func.count()).select_from(topic).where(_IDLE)
    excess = conn.execute(count).scalar_one() + wanted - limit
    removable = and_(_REMOVABLE, topic.c.id.not_in(spared)) if spared else _REMOVABLE
    oldest = select(topic.c.id).where(removable).order_by(topic.c.idle_at, topic.c.id)
    while excess > 0:
        keys = list(conn.execute(oldest.limit(min(excess, _BATCH))).scalars())
        if not keys:
            return max(wanted - excess, 0)
        remove_topics(conn, keys)
        excess -= len(keys)
    return wanted


def remove_topics(conn: Connection, keys: Sequence[int]) -> None:
    """Remove topics without subscriptions, with the rows of the URLs that they have left."""
    remove_contents_of(conn, keys)
    gone = or_(topic.c.moved_to_id.in_(keys), topic.c.id.in_(keys))
    conn.execute(delete(topic).where(gone))


def mark_idle(conn: Connection) -> None:
    """Mark topics as idle that have lost their last subscriptions."""
    lost = and_(topic.c.idle_at.is_(None), topic.c.moved_to_id.is_(None), ~HAS_SUBSCRIPTIONS)
    conn.execute(update(topic).where(lost).values(idle_at=func.coalesce(topic.c.read_at, 0)))
