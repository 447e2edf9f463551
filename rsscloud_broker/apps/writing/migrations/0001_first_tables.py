"""The first tables: authors, messages, categories, what is being typed, and uploads."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "writing_author",
        sa.Column("account_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("next_id", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("account_id", name="pk_writing_author"),
        sa.UniqueConstraint("name", name="uq_writing_author_name"),
    )
    op.create_table(
        "writing_post",
        sa.Column("account_id", sa.BigInteger(), nullable=False),
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("link", sa.Text(), nullable=False),
        sa.Column("enclosure_url", sa.Text(), nullable=False),
        sa.Column("enclosure_type", sa.Text(), nullable=False),
        sa.Column("enclosure_size", sa.BigInteger(), nullable=False),
        sa.Column("categories", sa.Text(), nullable=False),
        sa.Column("items", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("account_id", "id", name="pk_writing_post"),
    )
    op.create_index("ix_writing_post_position", "writing_post", ["account_id", "position"])
    op.create_table(
        "writing_category",
        sa.Column("account_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("account_id", "name", name="pk_writing_category"),
    )
    op.create_table(
        "writing_unsent",
        sa.Column("account_id", sa.BigInteger(), nullable=False),
        sa.Column("post_id", sa.BigInteger(), nullable=False),
        sa.Column("fields", sa.Text(), nullable=False),
        sa.Column("saved_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("account_id", "post_id", name="pk_writing_unsent"),
    )
    op.create_table(
        "writing_upload",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("account_id", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_writing_upload"),
        sa.UniqueConstraint("account_id", "digest", name="uq_writing_upload_account_id"),
        sqlite_autoincrement=True,
    )
