"""The part of the river that keeps feeds, who follows them, and items.

Each method is one transaction; the SQL is in ``feeds_sql`` and ``items_sql``.
"""

from __future__ import annotations

from rsscloud_broker.apps.river import feeds_sql, items_sql
from rsscloud_broker.database.methods import reading, writing
from rsscloud_broker.interfaces import IDatabase


class RiverStore:
    """Keeps what the river knows."""

    def __init__(self, database: IDatabase) -> None:
        self._database = database

    feed = reading(feeds_sql.feed_of)
    feed_by_key = reading(feeds_sql.feed_by_key)
    feed_by_url = reading(feeds_sql.feed_by_url)
    add_feed = writing(feeds_sql.add_feed)
    change_feed = writing(feeds_sql.change_feed)
    move_feed = writing(feeds_sql.move_feed)
    due_feeds = reading(feeds_sql.due_feeds)
    abandoned_feeds = reading(feeds_sql.abandoned_feeds)
    remove_feed = writing(feeds_sql.remove_feed)
    follow_feed = writing(feeds_sql.follow_feed)
    add_and_follow = writing(feeds_sql.add_and_follow)
    number_of_feeds = reading(feeds_sql.number_of_feeds)
    unfollow_feed = writing(feeds_sql.unfollow_feed)
    mute_feed = writing(feeds_sql.mute_feed)
    is_followed = reading(feeds_sql.is_followed)
    followed_feeds = reading(feeds_sql.followed_feeds)
    mark_seen = writing(feeds_sql.mark_seen)
    last_seen = reading(feeds_sql.last_seen)
    stop_at = writing(feeds_sql.stop_at)
    stopped_at = reading(feeds_sql.stopped_at)
    set_public = writing(feeds_sql.set_public)
    public_account = reading(feeds_sql.public_account)
    is_public = reading(feeds_sql.is_public)
    store_document = writing(items_sql.store_document)
    items = reading(items_sql.items_before)
    items_after = reading(items_sql.items_after)
    arrivals = reading(items_sql.arrivals)
    newest_id = reading(items_sql.newest_id)
