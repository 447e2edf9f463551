"""Work that may have ended processes of the broker."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

FITS_OLDER_NODES = True

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the table.  Nothing is suspect yet."""
    op.create_table(
        "suspect",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ends", sa.Integer(), nullable=False),
        sa.Column("node_id", _KEY),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "key", name="pk_suspect"),
        sa.ForeignKeyConstraint(
            ["node_id"], ["node.id"], name="fk_suspect_node_id", ondelete="SET NULL"
        ),
    )
    for name in ("node_id", "ended_at"):
        op.create_index(f"ix_suspect_{name}", "suspect", [name])


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("suspect")
