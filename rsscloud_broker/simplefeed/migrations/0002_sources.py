"""How far the source of a log was read."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column.  Logs until now have no source."""
    column = sa.Column("source", sa.BigInteger(), nullable=False, server_default="0")
    op.add_column("simplefeed_log", column)


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("simplefeed_log", "source")
