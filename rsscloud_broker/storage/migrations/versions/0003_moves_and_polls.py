"""Adds what polls need: results of fetches, where topics moved to, and when each poll is due."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from alembic import op
from alembic.operations import BatchOperations

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_UNIQUE = "uq_subscription_topic_id"


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False, server_default="")


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger())


def _new_columns() -> tuple[sa.Column[Any], ...]:
    return (
        _text("etag"),
        _text("last_modified"),
        _number("fresh_seconds"),
        _number("asked_at"),
        _text("result"),
        sa.Column("failures", sa.Integer(), nullable=False, server_default="0"),
        _number("pinged_at"),
        _number("next_poll_at"),
        _text("poll_reason"),
        _number("poll_interval"),
        _number("planned_at"),
        _text("feed"),
        _number("moved_at"),
    )


def upgrade() -> None:
    """Add the columns.  Each topic with subscribers is due for a poll at once."""
    for column in _new_columns():
        op.add_column("topic", column)
    _refer_to_topics()
    op.create_index("ix_topic_next_poll_at", "topic", ["next_poll_at"])
    op.create_index("ix_topic_moved_to_id", "topic", ["moved_to_id"])
    with _altered_subscription() as batch:
        batch.add_column(_text("asked_url"))
        batch.drop_constraint(_UNIQUE, type_="unique")
        batch.create_unique_constraint(
            _UNIQUE, ["topic_id", "asked_url", "callback_url", "protocol", "procedure"]
        )
    op.execute(
        "UPDATE topic SET next_poll_at = 0 WHERE ended = '' AND EXISTS "
        "(SELECT id FROM subscription WHERE subscription.topic_id = topic.id)"
    )


def _refer_to_topics() -> None:
    """Add a column that refers to another topic.

    SQLite adds such a column only by this statement.  To replace the whole table would delete all
    rows of other tables that refer to it.
    """
    name = "fk_topic_moved_to_id"
    if op.get_bind().dialect.name == "sqlite":
        op.execute(
            f"ALTER TABLE topic ADD COLUMN moved_to_id INTEGER "
            f"CONSTRAINT {name} REFERENCES topic (id)"
        )
        return
    op.add_column("topic", sa.Column("moved_to_id", _KEY))
    op.create_foreign_key(name, "topic", "topic", ["moved_to_id"], ["id"])


@contextmanager
def _altered_subscription() -> Iterator[BatchOperations]:
    """Change the table of subscriptions.

    SQLite replaces the table for this.  This function saves what the replacement would delete, and
    restores it: the pending notifications, and the last id.
    """
    connection = op.get_bind()
    if connection.dialect.name != "sqlite":
        with op.batch_alter_table("subscription") as batch:
            yield batch
        return
    last = connection.execute(
        sa.text("SELECT seq FROM sqlite_sequence WHERE name = 'subscription'")
    ).scalar()
    op.execute("CREATE TEMPORARY TABLE kept_waiting AS SELECT * FROM waiting")
    # Another table would be made without the condition of this index.
    op.drop_index("ix_subscription_content", "subscription")
    keeps_keys = {"sqlite_autoincrement": True}
    with op.batch_alter_table("subscription", table_kwargs=keeps_keys) as batch:
        yield batch
    wants_content = sa.column("wants_content", sa.Boolean())
    op.create_index(
        "ix_subscription_content",
        "subscription",
        ["topic_id"],
        sqlite_where=wants_content == sa.true(),
    )
    op.execute(
        "INSERT INTO waiting (subscription_id, attempts, due_at, content_topic_id) "
        "SELECT subscription_id, attempts, due_at, content_topic_id FROM kept_waiting"
    )
    op.execute("DROP TABLE kept_waiting")
    if last is not None:
        op.execute("DELETE FROM sqlite_sequence WHERE name = 'subscription'")
        again = sa.text("INSERT INTO sqlite_sequence (name, seq) VALUES ('subscription', :last)")
        op.execute(again.bindparams(last=last))


def downgrade() -> None:
    """Drop the columns, and have subscriptions refer to the topics that they asked for."""
    op.execute(
        "UPDATE subscription SET topic_id = "
        "(SELECT id FROM topic WHERE topic.url = subscription.asked_url) WHERE asked_url <> ''"
    )
    with _altered_subscription() as batch:
        batch.drop_constraint(_UNIQUE, type_="unique")
        batch.create_unique_constraint(
            _UNIQUE, ["topic_id", "callback_url", "protocol", "procedure"]
        )
        batch.drop_column("asked_url")
    op.drop_index("ix_topic_moved_to_id", "topic")
    op.drop_index("ix_topic_next_poll_at", "topic")
    op.drop_column("topic", "moved_to_id")
    for column in _new_columns():
        op.drop_column("topic", column.name)
