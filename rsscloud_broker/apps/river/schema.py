"""The tables of the river.

Times are stored as ``tables`` says.  A feed is stored once, even if many follow it.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
)

from rsscloud_broker.database.columns import (
    FIRST_RELEASE,
    Key,
    cascade,
    new_metadata,
    of_account,
    required,
)
from rsscloud_broker.interfaces import AppTables

metadata = new_metadata()

#: See ``FeedRecord``.  The offers are JSON.  A new feed has the defaults.
feed = Table(
    "river_feed",
    metadata,
    Column("id", Key, primary_key=True),
    Column("url", Text, nullable=False),
    *required(Text, "title", "link", default=""),
    Column("is_found", Boolean, nullable=False, default=False),
    Column("offers", Text, nullable=False, default="[]"),
    Column("offer", Integer, nullable=False, default=0),
    *required(Text, "key", "secret"),
    Column("asked_at", BigInteger),
    Column("verified_at", BigInteger),
    Column("pushes_until", BigInteger),
    Column("push_due_at", BigInteger, index=True),
    Column("pinged_at", BigInteger),
    *required(Integer, "pushed", "found_by_poll", "missed", default=0),
    Column("reads_until", BigInteger),
    Column("read_due_at", BigInteger, nullable=False, index=True),
    Column("failures", Integer, nullable=False, default=0),
    *required(Text, "problem", "push_problem", default=""),
    Column("turn", Integer, nullable=False, default=0),
    UniqueConstraint("url"),
    UniqueConstraint("key"),
    sqlite_autoincrement=True,
)

follow = Table(
    "river_follow",
    metadata,
    Column("account_id", Key, of_account(), primary_key=True),
    Column("feed_id", Key, cascade("river_feed.id"), primary_key=True),
    Column("added_at", BigInteger, nullable=False),
    # Whether the river of the account leaves the items of the feed out.
    Column("is_muted", Boolean, nullable=False),
    Index("ix_river_follow_feed_id", "feed_id"),
)

reader = Table(
    "river_reader",
    metadata,
    Column("account_id", Key, of_account(), primary_key=True, autoincrement=False),
    # The newest item that was marked as seen.
    Column("seen", BigInteger, nullable=False, default=0),
    # The newest item that is below the line where somebody stopped; null without such a line.
    Column("stopped_at", BigInteger),
    # Whether everybody may read the river of the account, and the account's name then.
    Column("is_public", Boolean, nullable=False, default=False),
    Column("name", Text, nullable=False, index=True, default=""),
)

item = Table(
    "river_item",
    metadata,
    Column("id", Key, primary_key=True),
    Column("feed_id", Key, cascade("river_feed.id"), nullable=False),
    Column("guid", Text, nullable=False),
    # SHA-256 of the guid, and of all that may be edited.
    *required(LargeBinary, "guid_digest", "digest"),
    *required(Text, "title", "text_html", "link"),
    # Enclosures and items below it, as JSON.
    Column("more", Text, nullable=False),
    Column("published_at", BigInteger),
    Column("arrived_at", BigInteger, nullable=False),
    Column("how", Text, nullable=False),
    # The last document of the feed that had it.
    Column("turn", Integer, nullable=False),
    UniqueConstraint("feed_id", "guid_digest"),
    Index("ix_river_item_feed_id_id", "feed_id", "id"),
    sqlite_autoincrement=True,
)

TABLES: Final = AppTables(metadata, FIRST_RELEASE, "0001")
