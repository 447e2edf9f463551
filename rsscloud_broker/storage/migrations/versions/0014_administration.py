"""Administration: failed attempts, blocks, announcements, changes by administrators; and indexes
by which administrators find subscriptions.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables and the indexes."""
    op.create_table(
        "failed_attempt",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("subscription_id", _KEY, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("exchange", sa.Text(), nullable=False),
        sa.Column("request_body", sa.LargeBinary(), nullable=False),
        sa.Column("answer_body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_failed_attempt"),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscription.id"],
            name="fk_failed_attempt_subscription_id",
            ondelete="CASCADE",
        ),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_failed_attempt_subscription_id", "failed_attempt", ["subscription_id", "id"]
    )
    op.create_table(
        "block",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("object", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "object", name="pk_block"),
    )
    op.create_table(
        "announcement",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger()),
        sa.Column("account", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_announcement"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "admin_change",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("verb", sa.Text(), nullable=False),
        sa.Column("object", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("published", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_admin_change"),
        sqlite_autoincrement=True,
    )
    op.drop_index("ix_subscription_host", "subscription")
    op.create_index("ix_subscription_host", "subscription", ["host", "id"])
    op.create_index(
        "ix_subscription_dropping",
        "subscription",
        ["id"],
        sqlite_where=sa.text("dropping = 1"),
        postgresql_where=sa.text("dropping"),
    )
    op.create_index(
        "ix_subscription_failing",
        "subscription",
        ["id"],
        sqlite_where=sa.text("consecutive_errors > 0"),
        postgresql_where=sa.text("consecutive_errors > 0"),
    )


def downgrade() -> None:
    """Drop the tables, with all blocks, announcements and changes, and the indexes."""
    op.drop_index("ix_subscription_failing", "subscription")
    op.drop_index("ix_subscription_dropping", "subscription")
    op.drop_index("ix_subscription_host", "subscription")
    op.create_index("ix_subscription_host", "subscription", ["host"])
    for table in ("admin_change", "announcement", "block", "failed_attempt"):
        op.drop_table(table)
