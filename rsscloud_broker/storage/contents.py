"""What the store does with contents: they are kept while something has need of them.

A content is needed by the walks that carry it.  The newest of a topic is needed too
while a notification waits that is to carry it.  Whatever ends such a need calls
``remove_unneeded``; a sweep does so for what was missed.

Each function is one step of a transaction that the caller has begun; run again
after a rollback, it does the same.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, or_, select

from rsscloud_broker.model import Content
from rsscloud_broker.storage.places import PRESENT, key_of, named
from rsscloud_broker.storage.schema import content, fanout, subscription, waiting

_CARRIED = select(fanout.c.id).where(fanout.c.content_id == content.c.id).exists()
_WAITED_FOR = (
    select(waiting.c.subscription_id)
    .where(waiting.c.content_topic_id == content.c.topic_id)
    .correlate(content)
    .exists()
)
_of_topic = content.alias("of_topic")
_NEWEST = (
    select(func.max(_of_topic.c.id))
    .where(_of_topic.c.topic_id == content.c.topic_id)
    .scalar_subquery()
)
_UNNEEDED = and_(~_CARRIED, or_(~_WAITED_FOR, content.c.id < _NEWEST))


def get_content(conn: Connection, key: int) -> Content | None:
    """See ``IStore.content``."""
    return _first(conn, content.c.id == key)


def newest_content(conn: Connection, url: str) -> Content | None:
    """See ``IStore.newest_content``."""
    return _first(conn, content.c.topic_id == key_of(url))


def _first(conn: Connection, which: ColumnElement[bool]) -> Content | None:
    query = (
        select(content.c.body, content.c.content_type, content.c.link)
        .where(which)
        .order_by(content.c.id.desc())
        .limit(1)
    )
    row = conn.execute(query).first()
    return None if row is None else Content(*row)


def insert_content(conn: Connection, topic_key: int, new: Content) -> int:
    """Keep a content; its key."""
    made = conn.execute(
        insert(content).values(
            topic_id=topic_key, content_type=new.content_type, link=new.link, body=new.body
        )
    ).inserted_primary_key
    assert made is not None  # a single insert always has one
    return int(made[0])


def is_wanted(conn: Connection, topic_key: int) -> bool:
    """Whether some subscription of a topic wants content.  An index knows."""
    somebody = select(subscription.c.id).where(
        subscription.c.topic_id == topic_key, subscription.c.wants_content
    )
    return conn.execute(somebody.limit(1)).first() is not None


def is_waited_for(conn: Connection, topic_key: int) -> bool:
    """Whether a notification waits that is to carry a content of a topic."""
    waits = select(waiting.c.subscription_id).where(waiting.c.content_topic_id == topic_key)
    return conn.execute(waits.limit(1)).first() is not None


def is_kept(conn: Connection, topic_key: int) -> bool:
    """Whether there is any content of a topic."""
    kept = select(content.c.id).where(content.c.topic_id == topic_key)
    return conn.execute(kept.limit(1)).first() is not None


def remove_outdated(conn: Connection, topic_key: int) -> None:
    """Remove what was read of a topic before it changed to a content that is not kept.

    Who subscribes now must not be given it.  The walks that carry it are needless by
    now; what was handed in is carried to its end.
    """
    carried = select(fanout.c.id).where(fanout.c.content_id == content.c.id, fanout.c.pushed)
    conn.execute(delete(content).where(content.c.topic_id == topic_key, ~carried.exists()))


def remove_unneeded(conn: Connection, urls: Collection[str]) -> None:
    """Remove the contents of some topics that nothing needs any more."""
    among = select(PRESENT).where(named.c.url.in_(urls))
    conn.execute(delete(content).where(content.c.topic_id.in_(among), _UNNEEDED))


def remove_all_unneeded(conn: Connection) -> None:
    """Remove the contents that nothing needs any more."""
    conn.execute(delete(content).where(_UNNEEDED))
