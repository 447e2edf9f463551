"""The event log gets its table."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_TEXTS = (
    "kind",
    "outcome",
    "topic",
    "host",
    "protocol",
    "callback",
    "source",
    "account",
    "reason",
    "numbers",
)


def upgrade() -> None:
    """Make the table.  The log begins empty."""
    op.create_table(
        "log_entry",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in _TEXTS),
        sa.Column("topic_key", sa.BigInteger()),
        sa.Column("host_key", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_log_entry"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_log_entry_kind", "log_entry", ["kind", "outcome", "id"])
    for column in ("topic_key", "host_key"):
        there = sa.column(column).is_not(None)
        op.create_index(
            f"ix_log_entry_{column}",
            "log_entry",
            [sa.text("(id / 16384)"), column, "id"],
            sqlite_where=there,
            postgresql_where=there,
        )


def downgrade() -> None:
    """Drop the table, with all that was logged."""
    op.drop_table("log_entry")
