"""Checks that wait are claimed in portions, fairly by source and by host."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_WAITS = sa.and_(
    sa.column("check_requested_at").is_not(None),
    sa.column("check_node_id").is_(None),
    sa.column("check_due_at").is_(None),
)
_PUT_OFF = sa.column("check_due_at").is_not(None)


def upgrade() -> None:
    """Add the columns.  Each topic that waits now counts as one of a host of its own."""
    for name in ("check_source", "check_host"):
        op.add_column("topic", sa.Column(name, sa.Text(), nullable=False, server_default=""))
    op.add_column("topic", sa.Column("check_due_at", sa.BigInteger()))
    op.add_column(
        "topic", sa.Column("check_failures", sa.Integer(), nullable=False, server_default="0")
    )
    op.add_column(
        "topic", sa.Column("check_awaited", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.execute(
        "UPDATE topic SET check_host = substr(url, 1, 255) WHERE check_requested_at IS NOT NULL"
    )
    op.drop_index("ix_topic_check_requested_at", "topic")
    op.create_index(
        "ix_topic_check_waits",
        "topic",
        ["check_source", "check_host", "check_requested_at"],
        sqlite_where=_WAITS,
        postgresql_where=_WAITS,
    )
    op.create_index(
        "ix_topic_check_due_at",
        "topic",
        ["check_due_at"],
        sqlite_where=_PUT_OFF,
        postgresql_where=_PUT_OFF,
    )


def downgrade() -> None:
    """Drop the columns.  Checks that were put off are made at the next start."""
    op.drop_index("ix_topic_check_due_at", "topic")
    op.drop_index("ix_topic_check_waits", "topic")
    op.create_index("ix_topic_check_requested_at", "topic", ["check_requested_at"])
    for name in ("check_awaited", "check_failures", "check_due_at", "check_host", "check_source"):
        op.drop_column("topic", name)
