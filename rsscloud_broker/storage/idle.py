"""Limits the number of idle topics, which are topics without subscriptions.

Anybody can make the broker fetch a URL, by a ping.  The store remembers the topic, to see whether
it has changed when it is fetched again.  So the store keeps the topics fetched last, and
forgets the others.

A row is idle if its ``idle_at`` is set, to the time when the topic was last fetched or a check
was requested.  The rows of URLs that an idle topic has left are idle too.  When the last
subscription of a topic is removed, ``idle_at`` stays null until the next fetch or sweep.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, delete, func, or_, select, update

from rsscloud_broker.storage.contents import remove_all_contents
from rsscloud_broker.storage.schema import subscription, topic
from rsscloud_broker.storage.topic_urls import asked_among, named

#: How many idle topics are removed beside those that make room, so that nobody waits long.
_EXTRA = 100

_IDLE = named.c.idle_at.is_not(None)

# Else, with a Retry-After of a day, topics whose subscribers are gone would leave no room so long.
_IS_NOT_ASKED_FOR = or_(named.c.check_requested_at.is_(None), named.c.check_due_at.is_not(None))

_HAS_SUBSCRIPTIONS = select(subscription.c.id).where(subscription.c.topic_id == named.c.id).exists()


def evict_idle(conn: Connection, limit: int, wanted: int = 0, spared: Collection[int] = ()) -> int:
    """Remove idle topics, those fetched longest ago first, until more of them fit.

    Topics that wait to be fetched are not removed, unless that is put off: nobody would hear of
    what the next attempt finds.  If there are far too many, since a sweep has just made them idle,
    this removes some, and the sweep the others.

    :param limit: how many idle topics there may be.
    :param wanted: how many idle topics the caller wants to add.
    :param spared: the ids of topics that are not removed.
    :returns: how many the caller may add.
    """
    excess = min(_excess(conn, limit) + wanted, wanted + _EXTRA)
    if excess <= 0:
        return wanted
    removed = _remove_longest_idle(conn, excess, spared)
    return wanted if removed == excess else max(wanted - (excess - removed), 0)


def too_many_idle(conn: Connection, limit: int) -> bool:
    """Whether there are more idle topics than there may be."""
    return _excess(conn, limit) > 0


def evict_excess(conn: Connection, limit: int) -> int:
    """Remove some of the idle topics that are more than there may be; return how many."""
    excess = _excess(conn, limit)
    return _remove_longest_idle(conn, min(excess, _EXTRA), ()) if excess > 0 else 0


def _excess(conn: Connection, limit: int) -> int:
    """How many idle topics there are more than there may be; less than 0 if more would fit.

    The excess is counted up to ``_EXTRA``, so that to count never takes long.
    """
    some = select(named.c.id).where(_IDLE).limit(limit + _EXTRA).subquery()
    return conn.execute(select(func.count()).select_from(some)).scalar_one() - limit


def _remove_longest_idle(conn: Connection, number: int, spared: Collection[int]) -> int:
    """Remove the idle topics fetched longest ago, and return how many these are.

    Rows of URLs that a topic has left and that a subscriber asked for stay, and are not idle any
    more.
    """
    oldest = (
        select(named.c.id, named.c.moved_to_id)
        .where(_IDLE, _IS_NOT_ASKED_FOR, ~_HAS_SUBSCRIPTIONS)
        .order_by(named.c.idle_at, named.c.id)
        # Another node may be subscribing somebody to one of them, or requesting a check of it.
        .with_for_update(of=named, skip_locked=True)
    )
    if spared:
        oldest = oldest.where(named.c.id.not_in(spared))
    removed = 0
    while (wanted := number - removed) > 0:
        rows = conn.execute(oldest.limit(wanted)).all()
        asked = asked_among(conn, [row.id for row in rows if row.moved_to_id is not None])
        if asked:
            conn.execute(update(topic).where(topic.c.id.in_(asked)).values(idle_at=None))
        keys = [row.id for row in rows if row.id not in asked]
        remove_topics(conn, keys)
        removed += len(keys)
        if len(rows) < wanted:
            break
    return removed


def remove_topics(conn: Connection, keys: Sequence[int]) -> None:
    """Remove topics without subscriptions, with the rows of the URLs that they have left."""
    remove_all_contents(conn, keys)
    gone = or_(topic.c.moved_to_id.in_(keys), topic.c.id.in_(keys))
    conn.execute(delete(topic).where(gone))
