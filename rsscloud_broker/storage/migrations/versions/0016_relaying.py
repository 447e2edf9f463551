"""Relaying and following: the origin of pings, and how far relays and followed lists have come."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column and make the tables.  The pings until now were made here."""
    op.add_column("ping", sa.Column("origin", sa.Text(), nullable=False, server_default=""))
    op.create_table(
        "relay_target",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ping_id", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("retry_at", sa.BigInteger()),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_relay_target"),
    )
    op.create_table(
        "followed_list",
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("etag", sa.Text(), nullable=False),
        sa.Column("last_modified", sa.Text(), nullable=False),
        sa.Column("complete_until", sa.BigInteger()),
        sa.Column("missing_from", sa.BigInteger()),
        sa.Column("missing_to", sa.BigInteger()),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("retry_at", sa.BigInteger()),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("url", name="pk_followed_list"),
    )


def downgrade() -> None:
    """Drop the tables and the column.  Relays begin anew, and lists are read anew."""
    op.drop_table("followed_list")
    op.drop_table("relay_target")
    op.drop_column("ping", "origin")
