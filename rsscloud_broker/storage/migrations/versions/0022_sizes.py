"""What is found by an index, so that large databases are as quick as small ones."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

#: Columns of topics that are null for most topics, with whether they had an index of all topics.
_OF_TOPICS = {
    "idle_at": False,
    "next_poll_at": True,
    "moved_to_id": True,
}


def upgrade() -> None:
    """Add the columns, and make smaller indexes in place of those over all rows."""
    op.drop_index("ix_ping_repeat", "ping")
    op.create_index(
        "ix_ping_repeat",
        "ping",
        [sa.text("(received_at / 3600000000)"), "fingerprint", "received_at"],
    )
    if op.get_context().dialect.name == "postgresql":
        op.create_index(
            "ix_subscription_asked_url",
            "subscription",
            ["topic_id", sa.text("md5(asked_url)")],
            postgresql_where=sa.column("asked_url") != "",
        )
    op.add_column("topic", sa.Column("first_url", sa.Text()))
    for name in _OF_TOPICS:
        op.drop_index(f"ix_topic_{name}", "topic")
        is_set = sa.column(name).is_not(None)
        op.create_index(
            f"ix_topic_{name}",
            "topic",
            [name, "id"],
            sqlite_where=is_set,
            postgresql_where=is_set,
        )
    op.add_column(
        "pending_notification", sa.Column("host", sa.Text(), nullable=False, server_default="")
    )
    op.execute(
        "UPDATE pending_notification SET host = coalesce((SELECT host FROM subscription "
        "WHERE subscription.id = pending_notification.subscription_id), '')"
    )
    op.drop_index("ix_pending_notification_due_at", "pending_notification")
    is_free = sa.column("node_id").is_(None)
    for name, columns in (("due_at", ["due_at"]), ("host", ["host", "due_at"])):
        op.create_index(
            f"ix_pending_notification_{name}",
            "pending_notification",
            [*columns, "subscription_id"],
            sqlite_where=is_free,
            postgresql_where=is_free,
        )


def downgrade() -> None:
    """Make the former indexes.  An empty ``asked_url`` stands for the present URL again."""
    if op.get_context().dialect.name == "postgresql":
        op.drop_index("ix_subscription_asked_url", "subscription")
    op.drop_index("ix_ping_repeat", "ping")
    op.create_index("ix_ping_repeat", "ping", ["fingerprint", "received_at"])
    for name in ("host", "due_at"):
        op.drop_index(f"ix_pending_notification_{name}", "pending_notification")
    op.create_index("ix_pending_notification_due_at", "pending_notification", ["due_at"])
    op.drop_column("pending_notification", "host")
    for name, of_all in _OF_TOPICS.items():
        op.drop_index(f"ix_topic_{name}", "topic")
        is_set = None if of_all else sa.column(name).is_not(None)
        op.create_index(
            f"ix_topic_{name}", "topic", [name], sqlite_where=is_set, postgresql_where=is_set
        )
    # Such a topic has no subscription under both URLs by the same callback.
    op.execute(
        "UPDATE subscription SET asked_url = "
        "(SELECT first_url FROM topic WHERE topic.id = subscription.topic_id) "
        "WHERE asked_url = '' AND EXISTS (SELECT 1 FROM topic "
        "WHERE topic.id = subscription.topic_id AND first_url IS NOT NULL)"
    )
    op.execute(
        "UPDATE subscription SET asked_url = '' "
        "WHERE asked_url <> '' AND EXISTS (SELECT 1 FROM topic "
        "WHERE topic.id = subscription.topic_id AND topic.url = subscription.asked_url)"
    )
    op.drop_column("topic", "first_url")
    of_nodes = sa.column("name").like("pings/%")
    counter = sa.table("counter", sa.column("name"), sa.column("value"))
    counted = sa.select(sa.func.sum(counter.c.value)).where(of_nodes).scalar_subquery()
    op.execute(
        sa.update(counter)
        .where(counter.c.name == "pings")
        .values(value=counter.c.value + sa.func.coalesce(counted, 0))
    )
    op.execute(sa.delete(counter).where(of_nodes))
