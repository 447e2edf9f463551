"""Statistics: numbers of each minute and hour, and the most pinged topics of each hour."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables.  The statistics begin now."""
    op.create_table(
        "statistic",
        sa.Column("width", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("begin", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("width", "begin", "name", name="pk_statistic"),
    )
    op.create_table(
        "busy_topic",
        sa.Column("hour", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("rank", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("pings", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("hour", "rank", name="pk_busy_topic"),
    )


def downgrade() -> None:
    """Drop the tables, with all statistics."""
    op.drop_table("busy_topic")
    op.drop_table("statistic")
