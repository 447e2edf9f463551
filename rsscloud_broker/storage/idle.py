"""Idle topics: those that nobody has subscribed to, of which a bounded number is kept.

Anybody can have the broker read a URL.  What is then known of it tells whether it has
changed the next time; so the topics that were read last are kept, and the others forgotten.

A row is idle if its ``idle_at`` is set: when the topic was last read or asked for.  That is
so of a URL which such a topic has left, too.  Nothing sets it where the last subscription
goes: the next reading does, or the next sweep.

Each function is one step of a transaction that the caller has begun; run again
after a rollback, it does the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, and_, delete, func, or_, select, update

from rsscloud_broker.storage.contents import remove_contents_of
from rsscloud_broker.storage.schema import topic
from rsscloud_broker.storage.topic_urls import ASKED, SOMEBODY

#: Topics that are removed together.
_PORTION = 1000

_IDLE = topic.c.idle_at.is_not(None)

# Said in a way that leads SQLite to no index of almost all topics.
_IS_ASKED_FOR = func.coalesce(topic.c.check_requested_at, 0) > 0

_REMOVABLE = and_(_IDLE, ~_IS_ASKED_FOR, ~SOMEBODY, ~ASKED)


def make_room(conn: Connection, most: int, wanted: int = 0) -> int:
    """Remove idle topics until there is room for more, first those whose reading is longest
    ago.

    :param most: how many there may be.
    :param wanted: how many more there are to be.
    :returns: how many more there may be: fewer, where too many wait to be read.
    """
    count = select(func.count()).select_from(topic).where(_IDLE)
    excess = conn.execute(count).scalar_one() + wanted - most
    oldest = select(topic.c.id).where(_REMOVABLE).order_by(topic.c.idle_at, topic.c.id)
    while excess > 0:
        keys = list(conn.execute(oldest.limit(min(excess, _PORTION))).scalars())
        if not keys:
            return max(wanted - excess, 0)
        remove_topics(conn, keys)
        excess -= len(keys)
    return wanted


def remove_topics(conn: Connection, keys: Sequence[int]) -> None:
    """Remove topics without subscriptions, and the rows of the URLs that they have left."""
    remove_contents_of(conn, keys)
    gone = or_(topic.c.moved_to_id.in_(keys), topic.c.id.in_(keys))
    conn.execute(delete(topic).where(gone))


def note_idle(conn: Connection) -> None:
    """Note which topics have lost their last subscriptions."""
    lost = and_(topic.c.idle_at.is_(None), topic.c.moved_to_id.is_(None), ~SOMEBODY)
    conn.execute(update(topic).where(lost).values(idle_at=func.coalesce(topic.c.read_at, 0)))
