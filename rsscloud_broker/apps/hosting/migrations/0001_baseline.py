"""Files, and the versions of each."""

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Integer, LargeBinary, Text, UniqueConstraint

from rsscloud_broker.database.columns import Key, cascade, required

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "hosting_feed",
        Column("id", Key, primary_key=True),
        *required(Text, "account", "path"),
        Column("account_id", BigInteger, nullable=False, index=True),
        Column("version_id", BigInteger),
        Column("size", Integer, nullable=False),
        Column("stored", BigInteger, nullable=False),
        Column("versions", Integer, nullable=False),
        Column("is_topic", Boolean, nullable=False),
        UniqueConstraint("account", "path"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "hosting_version",
        Column("id", Key, primary_key=True),
        Column("feed_id", Key, cascade("hosting_feed.id"), nullable=False, index=True),
        *required(BigInteger, "account_id", "saved_at", "modified_at"),
        Column("size", Integer, nullable=False),
        Column("media_type", Text, nullable=False),
        *required(LargeBinary, "digest", "body", "packed"),
        sqlite_autoincrement=True,
    )
