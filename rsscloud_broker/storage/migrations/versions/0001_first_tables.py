"""The first tables: topics, subscriptions, pings, walks, hosts and tallies."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "topic",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary()),
        sa.Column("size", sa.BigInteger()),
        sa.Column("read_at", sa.BigInteger()),
        sa.Column("changed_at", sa.BigInteger()),
        sa.Column("check_requested_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_topic"),
        sa.UniqueConstraint("url", name="uq_topic_url"),
    )
    op.create_index("ix_topic_check_requested_at", "topic", ["check_requested_at"])

    op.create_table(
        "subscription",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("topic_id", _KEY, nullable=False),
        sa.Column("protocol", sa.Text(), nullable=False),
        sa.Column("callback_url", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False, server_default=""),
        sa.Column("procedure", sa.Text(), nullable=False, server_default=""),
        sa.Column("granted_at", sa.BigInteger(), nullable=False),
        sa.Column("lease_seconds", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("consecutive_errors", sa.Integer(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=False),
        sa.Column("last_error_at", sa.BigInteger()),
        sa.Column("marked", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_subscription"),
        sa.ForeignKeyConstraint(["topic_id"], ["topic.id"], name="fk_subscription_topic_id"),
        sa.UniqueConstraint(
            "topic_id", "callback_url", "protocol", "procedure", name="uq_subscription_topic_id"
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_subscription_walk", "subscription", ["topic_id", "id"])
    op.create_index("ix_subscription_expires_at", "subscription", ["expires_at"])
    op.create_index("ix_subscription_host", "subscription", ["host"])

    op.create_table(
        "ping",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("changes_url", sa.Text(), nullable=False),
        sa.Column("rss_url", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ping"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_ping_received", "ping", ["received_at", "id"])
    op.create_index("ix_ping_repeat", "ping", ["fingerprint", "received_at"])

    op.create_table(
        "fanout",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("topic_id", _KEY, nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=False),
        sa.Column("begun_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_fanout"),
        sa.ForeignKeyConstraint(
            ["topic_id"], ["topic.id"], name="fk_fanout_topic_id", ondelete="CASCADE"
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_fanout_topic_id", "fanout", ["topic_id"])

    op.create_table(
        "waiting",
        sa.Column("subscription_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("subscription_id", name="pk_waiting"),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscription.id"],
            name="fk_waiting_subscription_id",
            ondelete="CASCADE",
        ),
    )
    op.create_index("ix_waiting_due_at", "waiting", ["due_at"])

    op.create_table(
        "host",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("retry_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_host"),
    )

    op.create_table(
        "tally",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_tally"),
    )


def downgrade() -> None:
    """Drop the tables, and what is in them."""
    for table in ("fanout", "subscription", "ping", "tally", "topic"):
        op.drop_table(table)
