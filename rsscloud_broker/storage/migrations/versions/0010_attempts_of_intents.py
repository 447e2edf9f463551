"""Intents keep how many times their verification failed, and when it is tried again."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns.  The intents that wait now begin with no attempts."""
    op.add_column("intent", sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("intent", sa.Column("retry_at", sa.BigInteger()))


def downgrade() -> None:
    """Drop the columns.  All intents are tried at the next start, with no attempts."""
    op.drop_column("intent", "retry_at")
    op.drop_column("intent", "attempts")
