"""The items of the feed."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "test_feed_item",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("slot", sa.BigInteger(), nullable=False),
        sa.Column("guid", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_test_feed_item"),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("test_feed_item")
