"""Feeds, who follows them, and items."""

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    Text,
    UniqueConstraint,
)

from rsscloud_broker.database.columns import Key, cascade, required

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "river_feed",
        Column("id", Key, primary_key=True),
        *required(Text, "url", "title", "link"),
        Column("is_found", Boolean, nullable=False),
        Column("offers", Text, nullable=False),
        Column("offer", Integer, nullable=False),
        *required(Text, "key", "secret"),
        Column("asked_at", BigInteger),
        Column("verified_at", BigInteger),
        Column("pushes_until", BigInteger),
        Column("push_due_at", BigInteger, index=True),
        Column("pinged_at", BigInteger),
        *required(Integer, "pushed", "found_by_poll", "missed"),
        Column("reads_until", BigInteger),
        Column("read_due_at", BigInteger, nullable=False, index=True),
        Column("failures", Integer, nullable=False),
        *required(Text, "problem", "push_problem"),
        Column("turn", Integer, nullable=False),
        UniqueConstraint("url"),
        UniqueConstraint("key"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "river_follow",
        Column("account_id", Key, cascade("account.id"), primary_key=True),
        Column("feed_id", Key, cascade("river_feed.id"), primary_key=True, index=True),
        Column("added_at", BigInteger, nullable=False),
    )
    op.create_table(
        "river_reader",
        Column("account_id", Key, cascade("account.id"), primary_key=True),
        Column("seen", BigInteger, nullable=False),
        Column("is_public", Boolean, nullable=False),
        Column("name", Text, nullable=False, index=True),
    )
    op.create_table(
        "river_item",
        Column("id", Key, primary_key=True),
        Column("feed_id", Key, cascade("river_feed.id"), nullable=False),
        Column("guid", Text, nullable=False),
        *required(LargeBinary, "guid_digest", "digest"),
        *required(Text, "title", "text_html", "link", "more"),
        Column("published_at", BigInteger),
        Column("arrived_at", BigInteger, nullable=False),
        Column("how", Text, nullable=False),
        Column("turn", Integer, nullable=False),
        UniqueConstraint("feed_id", "guid_digest"),
        Index("ix_river_item_feed_id_id", "feed_id", "id"),
        sqlite_autoincrement=True,
    )
