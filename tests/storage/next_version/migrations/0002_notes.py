"""Counters have notes."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, and fill it."""
    with op.batch_alter_table("counter") as table:
        table.add_column(sa.Column("note", sa.Text(), nullable=False, server_default=""))
    op.execute("UPDATE counter SET note = name")


def downgrade() -> None:
    """Drop the column."""
    with op.batch_alter_table("counter") as table:
        table.drop_column("note")
