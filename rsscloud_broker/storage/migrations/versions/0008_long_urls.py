"""On PostgreSQL, URLs of any length fit into what keeps them unique."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

#: Columns that a B-tree has no room for, with URLs of 2,048 characters.
_SUBSCRIPTION = ("topic_id", "asked_url", "callback_url", "protocol", "procedure")
_INTENT = ("topic", "callback_url", "protocol", "procedure")


def upgrade() -> None:
    """Compare digests where URLs are compared; SQLite has no such limit."""
    if op.get_bind().dialect.name != "postgresql":
        return
    op.drop_constraint("uq_topic_url", "topic", type_="unique")
    op.create_exclude_constraint("uq_topic_url", "topic", ("url", "="), using="hash")
    op.drop_constraint("uq_subscription_topic_id", "subscription", type_="unique")
    op.create_index(
        "uq_subscription_identity",
        "subscription",
        ["topic_id", sa.func.md5(sa.column("asked_url")), sa.func.md5(sa.column("callback_url")),
         "protocol", "procedure"],
        unique=True,
    )  # fmt: skip
    op.create_index(
        "ix_subscription_callback_url", "subscription", ["callback_url"], postgresql_using="hash"
    )
    op.drop_constraint("uq_intent_topic", "intent", type_="unique")
    op.create_index(
        "uq_intent_identity",
        "intent",
        [sa.func.md5(sa.column("topic")), sa.func.md5(sa.column("callback_url")),
         "protocol", "procedure"],
        unique=True,
    )  # fmt: skip


def downgrade() -> None:
    """Compare the URLs themselves again."""
    if op.get_bind().dialect.name != "postgresql":
        return
    op.drop_index("uq_intent_identity", "intent")
    op.create_unique_constraint("uq_intent_topic", "intent", _INTENT)
    op.drop_index("ix_subscription_callback_url", "subscription")
    op.drop_index("uq_subscription_identity", "subscription")
    op.create_unique_constraint("uq_subscription_topic_id", "subscription", _SUBSCRIPTION)
    op.drop_constraint("uq_topic_url", "topic")
    op.create_unique_constraint("uq_topic_url", "topic", ["url"])
