"""What one node makes for all: jobs, and the files for crawlers; and how busy each node is."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

#: What a node counts, and how many of these there are in a second.
_COUNTS = ("pings", "notifications")
_RATES = ("ping_rate", "notification_rate")


def upgrade() -> None:
    """Make the tables.  Every job is due at once; archives on the disks are stored by the nodes."""
    for name in _COUNTS:
        op.add_column("node", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    for name in _RATES:
        op.add_column("node", sa.Column(name, sa.Double(), nullable=False, server_default="0"))
    op.create_table(
        "job",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("node_id", sa.BigInteger()),
        sa.PrimaryKeyConstraint("name", name="pk_job"),
    )
    is_claimed = sa.column("node_id").is_not(None)
    op.create_index(
        "ix_job_node_id",
        "job",
        ["node_id"],
        sqlite_where=is_claimed,
        postgresql_where=is_claimed,
    )
    op.create_table(
        "document",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("whole", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("records", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("stored_at", sa.BigInteger(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("id", name="pk_document"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_document_stored_at", "document", ["stored_at"])
    op.create_index("uq_document_name", "document", ["name", "whole"], unique=True)
    op.create_table(
        "document_part",
        sa.Column("document_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("document_id", "number", name="pk_document_part"),
        sa.ForeignKeyConstraint(
            ["document_id"],
            ["document.id"],
            name="fk_document_part_document_id",
            ondelete="CASCADE",
        ),
    )


def downgrade() -> None:
    """Drop the tables.  Each node keeps its own files."""
    for table in ("document_part", "document", "job"):
        op.drop_table(table)
    for name in (*_RATES, *_COUNTS):
        op.drop_column("node", name)
