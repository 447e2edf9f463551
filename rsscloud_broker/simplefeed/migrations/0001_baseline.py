"""Logs, their entries and their documents."""

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Integer,
    LargeBinary,
    Text,
    UniqueConstraint,
    false,
)

from rsscloud_broker.database.columns import Key, cascade, required

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "simplefeed_log",
        Column("id", Key, primary_key=True),
        *required(Text, "name", "feed_id", "title", "author"),
        Column("per_document", Integer, nullable=False),
        *required(BigInteger, "newest", "document", "first", "size", "created_at", "updated_at"),
        Column("source", BigInteger, nullable=False, server_default="0"),
        UniqueConstraint("name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "simplefeed_entries",
        Column("log_id", Key, cascade("simplefeed_log.id"), primary_key=True),
        Column("last", BigInteger, primary_key=True),
        Column("first", BigInteger, nullable=False),
        Column("data", LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "simplefeed_document",
        Column("log_id", Key, cascade("simplefeed_log.id"), primary_key=True),
        Column("number", BigInteger, primary_key=True),
        *required(BigInteger, "first", "last", "updated_at"),
        Column("gone", Boolean, nullable=False, server_default=false()),
        sqlite_with_rowid=False,
    )
