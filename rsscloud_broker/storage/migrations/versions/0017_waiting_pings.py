"""Pings that are passed on to a target of the relay once more, while others go on."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column.  Until now, no ping waited by itself."""
    op.add_column(
        "relay_target", sa.Column("waiting", sa.Text(), nullable=False, server_default="")
    )


def downgrade() -> None:
    """Drop the column.  The pings that wait are not passed on again."""
    op.drop_column("relay_target", "waiting")
