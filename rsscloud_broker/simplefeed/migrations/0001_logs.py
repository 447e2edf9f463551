"""Logs, entries and archived documents."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _of_log(table: str) -> tuple[sa.Column, sa.ForeignKeyConstraint]:  # type: ignore[type-arg] # of any type
    return (
        sa.Column("log_id", _KEY, nullable=False),
        sa.ForeignKeyConstraint(
            ["log_id"], ["simplefeed_log.id"], name=f"fk_{table}_log_id", ondelete="CASCADE"
        ),
    )


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "simplefeed_log",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("feed_id", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("per_document", sa.Integer(), nullable=False),
        sa.Column("newest", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.BigInteger(), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_simplefeed_log"),
        sa.UniqueConstraint("name", name="uq_simplefeed_log_name"),
        sqlite_autoincrement=True,
    )
    column, reference = _of_log("simplefeed_entry")
    op.create_table(
        "simplefeed_entry",
        column,
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("log_id", "number", name="pk_simplefeed_entry"),
        reference,
        sqlite_with_rowid=False,
    )
    column, reference = _of_log("simplefeed_document")
    op.create_table(
        "simplefeed_document",
        column,
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("kept", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("log_id", "number", name="pk_simplefeed_document"),
        reference,
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Drop the tables, and with them all logs."""
    for table in ("document", "entry", "log"):
        op.drop_table(f"simplefeed_{table}")
