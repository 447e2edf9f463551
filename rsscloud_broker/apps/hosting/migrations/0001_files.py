"""Files, and the versions of each.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "hosting_feed",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("account_id", sa.BigInteger(), nullable=False),
        sa.Column("version_id", sa.BigInteger()),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("stored", sa.BigInteger(), nullable=False),
        sa.Column("versions", sa.Integer(), nullable=False),
        sa.Column("is_topic", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_hosting_feed"),
        sa.UniqueConstraint("account", "path", name="uq_hosting_feed_account"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "hosting_version",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("feed_id", _KEY, nullable=False),
        sa.Column("account_id", sa.BigInteger(), nullable=False),
        sa.Column("saved_at", sa.BigInteger(), nullable=False),
        sa.Column("modified_at", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("packed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_hosting_version"),
        sa.ForeignKeyConstraint(
            ["feed_id"],
            ["hosting_feed.id"],
            name="fk_hosting_version_feed_id",
            ondelete="CASCADE",
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_hosting_version_feed_id", "hosting_version", ["feed_id"])


def downgrade() -> None:
    """Remove the tables."""
    op.drop_table("hosting_version")
    op.drop_table("hosting_feed")
