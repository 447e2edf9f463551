"""Several nodes: heartbeats, and claims of fan-outs, checks, polls and intents."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

#: The columns that say which node has claimed a row, by their tables.
_CLAIMS = (
    ("fanout", "node_id"),
    ("intent", "node_id"),
    ("topic", "check_node_id"),
    ("topic", "poll_node_id"),
)


def upgrade() -> None:
    """Add the columns.  Nobody has claimed what they concern, so the next start does."""
    for name in ("started_at", "beat_at"):
        op.add_column("node", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("node", sa.Column("version", sa.Text(), nullable=False, server_default=""))
    op.add_column(
        "fanout", sa.Column("begun", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.add_column("fanout", sa.Column("last_id", sa.BigInteger()))
    op.add_column("fanout", sa.Column("part_of", sa.BigInteger()))
    op.add_column("topic", sa.Column("reader_id", sa.BigInteger()))
    for table, column in _CLAIMS:
        op.add_column(table, sa.Column(column, sa.BigInteger()))
        is_claimed = sa.column(column).is_not(None)
        op.create_index(
            f"ix_{table}_{column}",
            table,
            [column],
            sqlite_where=is_claimed,
            postgresql_where=is_claimed,
        )


def downgrade() -> None:
    """Drop the columns.  What is left of a fan-out in parts begins where the first part is."""
    op.execute(
        "UPDATE fanout SET cursor = (SELECT min(part.cursor) FROM fanout AS part "
        "WHERE coalesce(part.part_of, part.id) = coalesce(fanout.part_of, fanout.id))"
    )
    for table, column in _CLAIMS:
        op.drop_index(f"ix_{table}_{column}", table)
        op.drop_column(table, column)
    op.drop_column("topic", "reader_id")
    for name in ("part_of", "last_id", "begun"):
        op.drop_column("fanout", name)
    for name in ("version", "beat_at", "started_at"):
        op.drop_column("node", name)
