"""Stores contents that publishers push."""

from __future__ import annotations

from sqlalchemy import Connection, select, update

from rsscloud_broker.database.columns import to_micros
from rsscloud_broker.database.conflicts import lock_rows
from rsscloud_broker.model import Content
from rsscloud_broker.model.ways import Way
from rsscloud_broker.model.work import Bounds
from rsscloud_broker.storage.change_days import with_change
from rsscloud_broker.storage.checks import DEFAULT_BOUNDS
from rsscloud_broker.storage.contents import keep_pushed, remove_unneeded
from rsscloud_broker.storage.kept_changes import keep_change
from rsscloud_broker.storage.schema import topic
from rsscloud_broker.storage.topic_urls import HAS_PUBLIC, TOPIC_ID, named
from rsscloud_broker.storage.topics import a_fanout, begin_fanouts, has_subscriptions


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
    keep_change(conn, bounds.history, url, Way.PUSH, at, new)
    key = conn.execute(select(TOPIC_ID).where(named.c.url == url)).scalar()
    if key is None:
        return False
    lock_rows(conn, topic.c.id, [key])
    if not has_subscriptions(conn, key):
        return False
    begun_at = to_micros(at)
    query = select(topic.c.change_days, HAS_PUBLIC).where(topic.c.id == key)
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
