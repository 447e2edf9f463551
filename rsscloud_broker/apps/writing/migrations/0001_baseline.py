"""Authors, messages, categories, what is being typed, and uploads."""

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

from rsscloud_broker.database.columns import Key, required

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "writing_author",
        Column("account_id", BigInteger, primary_key=True, autoincrement=False),
        *required(Text, "name", "base"),
        *required(BigInteger, "version", "next_id", "changed_at"),
        UniqueConstraint("name"),
    )
    op.create_table(
        "writing_post",
        Column("account_id", BigInteger, primary_key=True),
        Column("id", BigInteger, primary_key=True),
        Column("position", BigInteger, nullable=False),
        *required(Text, "text", "title", "link", "enclosure_url", "enclosure_type"),
        Column("enclosure_size", BigInteger, nullable=False),
        *required(Text, "categories", "items"),
        *required(BigInteger, "created_at", "changed_at"),
        Index("ix_writing_post_position", "account_id", "position"),
    )
    op.create_table(
        "writing_category",
        Column("account_id", BigInteger, primary_key=True),
        Column("name", Text, primary_key=True),
        Column("used_at", BigInteger, nullable=False),
    )
    op.create_table(
        "writing_unsent",
        Column("account_id", BigInteger, primary_key=True),
        Column("post_id", BigInteger, primary_key=True),
        Column("fields", Text, nullable=False),
        Column("saved_at", BigInteger, nullable=False),
    )
    op.create_table(
        "writing_upload",
        Column("id", Key, primary_key=True),
        Column("account_id", BigInteger, nullable=False),
        *required(Text, "digest", "name", "media_type"),
        *required(BigInteger, "size", "created_at"),
        Column("is_whole", Boolean, nullable=False),
        UniqueConstraint("account_id", "digest"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "writing_chunk",
        Column("upload_id", BigInteger, primary_key=True),
        Column("number", Integer, primary_key=True),
        Column("data", LargeBinary, nullable=False),
    )
    op.create_table(
        "writing_former",
        Column("name", Text, primary_key=True),
        Column("base", Text, nullable=False),
        *required(BigInteger, "version", "next_id"),
    )
