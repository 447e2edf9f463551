"""Counters have notes."""

import sqlalchemy as sa
from alembic import op

from rsscloud_broker.storage.upgrade import LATEST_REVISION
from tests.storage.next_version import REVISION

revision = REVISION
down_revision = LATEST_REVISION
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
