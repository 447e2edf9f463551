"""Pings that a target of the relay gets once more while others go on, and followed feeds."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column and make the table.  Until now, no ping waited by itself."""
    op.add_column(
        "relay_target", sa.Column("waiting", sa.Text(), nullable=False, server_default="")
    )
    op.create_table(
        "followed_feed",
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("entry", sa.Text(), nullable=False),
        sa.Column("entry_updated", sa.Double(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("url", name="pk_followed_feed"),
    )


def downgrade() -> None:
    """Drop both.  The pings that wait are not passed on again, and feeds are followed anew."""
    op.drop_table("followed_feed")
    op.drop_column("relay_target", "waiting")
