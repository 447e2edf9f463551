"""Adds nodes, their claims, and a queue of pushed contents for each subscription."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from alembic import op
from alembic.operations import BatchOperations

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_OF_CONTENT = "ix_waiting_content_topic_id"
_TIMES = ("tried_at", "failing_since", "not_before")
_REFERENCES = (("node_id", "node"), ("content_id", "content"))


def upgrade() -> None:
    """Add tables and columns.  What an earlier version had claimed is due again at its due time."""
    op.create_table(
        "node",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_node"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "slice",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("fanout_id", _KEY, nullable=False),
        sa.Column("node_id", _KEY),
        sa.Column("subscription_ids", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_slice"),
        sa.ForeignKeyConstraint(
            ["fanout_id"], ["fanout.id"], name="fk_slice_fanout_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["node_id"], ["node.id"], name="fk_slice_node_id", ondelete="SET NULL"
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_slice_fanout_id", "slice", ["fanout_id"])
    op.create_index("ix_slice_node_id", "slice", ["node_id"])
    with _altered_waiting() as batch:
        for name in _TIMES:
            batch.add_column(sa.Column(name, sa.BigInteger()))
        for name, table in _REFERENCES:
            batch.add_column(sa.Column(name, _KEY))
            batch.create_foreign_key(
                f"fk_waiting_{name}", table, [name], ["id"], ondelete="SET NULL"
            )
            batch.create_index(f"ix_waiting_{name}", [name])
    op.create_table(
        "queued",
        sa.Column("subscription_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("content_id", _KEY, autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("subscription_id", "content_id", name="pk_queued"),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscription.id"],
            name="fk_queued_subscription_id",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["content_id"], ["content.id"], name="fk_queued_content_id", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_queued_content_id", "queued", ["content_id"])


@contextmanager
def _altered_waiting() -> Iterator[BatchOperations]:
    """Change the table of pending notifications.

    SQLite replaces the table for this and forgets the condition of an index, so that index is made
    again.  No other table refers to this one, so the replacement deletes no other row.
    """
    op.drop_index(_OF_CONTENT, "waiting")
    with op.batch_alter_table("waiting") as batch:
        yield batch
    waited_for = sa.column("content_topic_id").is_not(None)
    op.create_index(
        _OF_CONTENT,
        "waiting",
        ["content_topic_id"],
        sqlite_where=waited_for,
        postgresql_where=waited_for,
    )


def downgrade() -> None:
    """Drop these tables and columns.  Contents in queues and claimed slices are not delivered."""
    op.drop_table("queued")
    with _altered_waiting() as batch:
        for name, _ in _REFERENCES:
            batch.drop_index(f"ix_waiting_{name}")
            batch.drop_constraint(f"fk_waiting_{name}", type_="foreignkey")
            batch.drop_column(name)
        for name in _TIMES:
            batch.drop_column(name)
    op.drop_table("slice")
    op.drop_table("node")
