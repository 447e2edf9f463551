"""By how much the clock of a node's computer is ahead of the database's."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

FITS_OLDER_NODES = True


def upgrade() -> None:
    """Add the column.  Each node writes it with its next heartbeat."""
    op.add_column("node", sa.Column("clock_ahead", sa.Double(), nullable=False, server_default="0"))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("node", "clock_ahead")
