"""The tables of the first release."""

from typing import Any

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Text,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.dialects.postgresql import ExcludeConstraint

from rsscloud_broker.database.columns import Key, cascade, required

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

#: PostgreSQL alone needs them: see ``storage/schema.py``.
_OF_LONG_URLS = (
    "CREATE INDEX ix_subscription_callback_url ON subscription USING hash (callback_url)",
    "CREATE INDEX ix_subscription_asked_url ON subscription (topic_id, md5(asked_url))"
    " WHERE asked_url != ''",
    "CREATE UNIQUE INDEX uq_subscription_identity ON subscription"
    " (topic_id, md5(asked_url), md5(callback_url), protocol, procedure)",
    "CREATE UNIQUE INDEX uq_intent_identity ON intent"
    " (md5(topic), md5(callback_url), protocol, procedure)",
)


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "topic",
        Column("id", Key, primary_key=True),
        Column("url", Text, nullable=False),
        Column("digest", LargeBinary),
        Column("size", BigInteger),
        Column("read_at", BigInteger),
        Column("changed_at", BigInteger),
        Column("check_requested_at", BigInteger),
        Column("check_pinged", Boolean, nullable=False, server_default=false()),
        Column("ended", Text, nullable=False, server_default=""),
        Column("etag", Text, nullable=False, server_default=""),
        Column("last_modified", Text, nullable=False, server_default=""),
        Column("fresh_seconds", BigInteger),
        Column("asked_at", BigInteger),
        Column("result", Text, nullable=False, server_default=""),
        Column("failures", Integer, nullable=False, server_default="0"),
        Column("pinged_at", BigInteger),
        Column("next_poll_at", BigInteger),
        Column("poll_reason", Text, nullable=False, server_default=""),
        Column("poll_interval", BigInteger),
        Column("planned_at", BigInteger),
        Column("feed", Text, nullable=False, server_default=""),
        Column("moved_to_id", Key, ForeignKey("topic.id")),
        Column("moved_at", BigInteger),
        Column("first_url", Text),
        Column("idle_at", BigInteger),
        Column("check_node_id", BigInteger),
        Column("poll_node_id", BigInteger),
        Column("reader_id", BigInteger),
        Column("check_source", Text, nullable=False, server_default=""),
        Column("check_host", Text, nullable=False, server_default=""),
        Column("check_due_at", BigInteger),
        Column("check_failures", Integer, nullable=False, server_default="0"),
        Column("check_way", Text, nullable=False, server_default=""),
        Column("check_origin", Text, nullable=False, server_default=""),
        Column("public_digest", LargeBinary),
        Column("check_awaited", Boolean, nullable=False, server_default=false()),
        UniqueConstraint("url").ddl_if(dialect="sqlite"),
        ExcludeConstraint(("url", "="), using="hash", name="uq_topic_url").ddl_if(
            dialect="postgresql"
        ),
        _index_where("ix_topic_check_due_at", "check_due_at IS NOT NULL", "check_due_at"),
        _index_where("ix_topic_check_node_id", "check_node_id IS NOT NULL", "check_node_id"),
        _index_where(
            "ix_topic_check_waits",
            "check_requested_at IS NOT NULL AND check_node_id IS NULL AND check_due_at IS NULL",
            "check_source",
            "check_host",
            "check_requested_at",
        ),
        _index_where("ix_topic_idle_at", "idle_at IS NOT NULL", "idle_at", "id"),
        _index_where("ix_topic_moved_to_id", "moved_to_id IS NOT NULL", "moved_to_id", "id"),
        _index_where("ix_topic_next_poll_at", "next_poll_at IS NOT NULL", "next_poll_at", "id"),
        _index_where("ix_topic_poll_node_id", "poll_node_id IS NOT NULL", "poll_node_id"),
    )
    op.create_table(
        "subscription",
        Column("id", Key, primary_key=True),
        Column("topic_id", Key, ForeignKey("topic.id"), nullable=False),
        *required(Text, "protocol", "callback_url"),
        Column("host", Text, nullable=False, server_default=""),
        Column("procedure", Text, nullable=False, server_default=""),
        *required(BigInteger, "granted_at", "lease_seconds"),
        Column("expires_at", BigInteger, nullable=False, index=True),
        Column("consecutive_errors", Integer, nullable=False),
        Column("last_error", Text, nullable=False),
        Column("last_error_at", BigInteger),
        Column("dropping", Boolean, nullable=False),
        Column("options", Text, nullable=False, server_default=""),
        Column("wants_content", Boolean, nullable=False, server_default=false()),
        Column("asked_url", Text, nullable=False, server_default=""),
        Column("written_url", Text, nullable=False, server_default=""),
        UniqueConstraint("topic_id", "asked_url", "callback_url", "protocol", "procedure").ddl_if(
            dialect="sqlite"
        ),
        Index(
            "ix_subscription_content",
            "topic_id",
            postgresql_where=text("wants_content"),
            sqlite_where=text("wants_content = 1"),
        ),
        Index(
            "ix_subscription_dropping",
            "id",
            postgresql_where=text("dropping"),
            sqlite_where=text("dropping = 1"),
        ),
        _index_where("ix_subscription_failing", "consecutive_errors > 0", "id"),
        Index("ix_subscription_host", "host", "id"),
        Index("ix_subscription_walk", "topic_id", "id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "ping",
        Column("id", Key, primary_key=True),
        Column("received_at", BigInteger, nullable=False),
        *required(Text, "name", "url", "changes_url", "rss_url", "tags"),
        Column("fingerprint", LargeBinary, nullable=False),
        Column("origin", Text, nullable=False, server_default=""),
        Index("ix_ping_received", "received_at", "id"),
        Index("ix_ping_repeat", text("(received_at / 3600000000)"), "fingerprint", "received_at"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "content",
        Column("id", Key, primary_key=True),
        Column("topic_id", Key, cascade("topic.id"), nullable=False, index=True),
        *required(Text, "content_type", "link"),
        Column("body", LargeBinary, nullable=False),
        Column("host", Text, nullable=False, server_default=""),
        Column("size", BigInteger, nullable=False, server_default="0"),
        Index("ix_content_host", "host", "id", "size"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "content_sum",
        Column("host", Text, primary_key=True),
        Column("size", BigInteger, nullable=False),
    )
    op.create_table(
        "fanout",
        Column("id", Key, primary_key=True),
        Column("topic_id", Key, cascade("topic.id"), nullable=False, index=True),
        *required(BigInteger, "cursor", "begun_at"),
        Column("content_id", Key, ForeignKey("content.id", ondelete="SET NULL"), index=True),
        Column("pushed", Boolean, nullable=False, server_default=false()),
        Column("later", Boolean, nullable=False, server_default=false()),
        Column("content_size", BigInteger, nullable=False, server_default="0"),
        Column("node_id", BigInteger),
        Column("begun", Boolean, nullable=False, server_default=false()),
        Column("last_id", BigInteger),
        Column("part_of", BigInteger),
        _index_where("ix_fanout_node_id", "node_id IS NOT NULL", "node_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "node",
        Column("id", Key, primary_key=True),
        Column("name", Text, nullable=False),
        Column("started_at", BigInteger, nullable=False, server_default="0"),
        Column("beat_at", BigInteger, nullable=False, server_default="0"),
        Column("version", Text, nullable=False, server_default=""),
        Column("pings", BigInteger, nullable=False, server_default="0"),
        Column("notifications", BigInteger, nullable=False, server_default="0"),
        Column("ping_rate", Double, nullable=False, server_default="0"),
        Column("notification_rate", Double, nullable=False, server_default="0"),
        Column("clock_ahead", Double, nullable=False, server_default="0"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "slice",
        Column("id", Key, primary_key=True),
        Column("fanout_id", Key, cascade("fanout.id"), nullable=False, index=True),
        Column("node_id", Key, ForeignKey("node.id", ondelete="SET NULL"), index=True),
        Column("subscription_ids", Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "pending_notification",
        Column("subscription_id", Key, cascade("subscription.id"), primary_key=True),
        Column("attempts", Integer, nullable=False),
        Column("due_at", BigInteger, nullable=False),
        Column("host", Text, nullable=False, server_default=""),
        Column("content_topic_id", Key),
        Column("node_id", Key, ForeignKey("node.id", ondelete="SET NULL"), index=True),
        Column("tried_at", BigInteger),
        Column("failing_since", BigInteger),
        Column("not_before", BigInteger),
        Column("content_id", Key, ForeignKey("content.id", ondelete="SET NULL"), index=True),
        _index_where(
            "ix_pending_notification_content_topic_id",
            "content_topic_id IS NOT NULL",
            "content_topic_id",
        ),
        _index_where(
            "ix_pending_notification_due_at", "node_id IS NULL", "due_at", "subscription_id"
        ),
        _index_where(
            "ix_pending_notification_host", "node_id IS NULL", "host", "due_at", "subscription_id"
        ),
    )
    op.create_table(
        "queued",
        Column("subscription_id", Key, cascade("subscription.id"), primary_key=True),
        Column("content_id", Key, cascade("content.id"), primary_key=True, index=True),
    )
    op.create_table(
        "intent",
        Column("id", Key, primary_key=True),
        *required(Text, "topic", "callback_url", "protocol", "procedure"),
        Column("lease_seconds", BigInteger, nullable=False),
        Column("challenge", Boolean, nullable=False),
        *required(Text, "source", "options"),
        Column("unsubscribe", Boolean, nullable=False),
        Column("written_topic", Text, nullable=False, server_default=""),
        Column("attempts", Integer, nullable=False, server_default="0"),
        Column("retry_at", BigInteger),
        Column("node_id", BigInteger),
        UniqueConstraint("topic", "callback_url", "protocol", "procedure").ddl_if(dialect="sqlite"),
        _index_where("ix_intent_node_id", "node_id IS NOT NULL", "node_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "host_state",
        Column("name", Text, primary_key=True),
        Column("failures", Integer, nullable=False),
        Column("retry_at", BigInteger, nullable=False),
    )
    op.create_table(
        "counter",
        Column("name", Text, primary_key=True),
        Column("value", BigInteger, nullable=False),
    )
    op.create_table(
        "account",
        Column("id", Key, primary_key=True),
        *required(Text, "name", "password"),
        Column("is_admin", Boolean, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("signed_in_at", BigInteger),
        UniqueConstraint("name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "session",
        Column("id", Key, primary_key=True),
        Column("account_id", Key, cascade("account.id"), nullable=False, index=True),
        Column("digest", LargeBinary, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("used_at", BigInteger, nullable=False, index=True),
        Column("expires_at", BigInteger, nullable=False, index=True),
        *required(Text, "address", "browser"),
        UniqueConstraint("digest"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "token",
        Column("id", Key, primary_key=True),
        Column("account_id", Key, cascade("account.id"), nullable=False, index=True),
        Column("digest", LargeBinary, nullable=False),
        *required(Text, "name", "scopes"),
        Column("created_at", BigInteger, nullable=False),
        Column("expires_at", BigInteger, index=True),
        Column("used_at", BigInteger),
        UniqueConstraint("digest"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "sign_in_link",
        Column("account_id", Key, cascade("account.id"), primary_key=True),
        Column("digest", LargeBinary, nullable=False),
        Column("expires_at", BigInteger, nullable=False, index=True),
        UniqueConstraint("digest"),
    )
    op.create_table(
        "job",
        Column("name", Text, primary_key=True),
        Column("due_at", BigInteger, nullable=False),
        Column("node_id", BigInteger),
        _index_where("ix_job_node_id", "node_id IS NOT NULL", "node_id"),
    )
    op.create_table(
        "document",
        Column("id", Key, primary_key=True),
        Column("name", Text, nullable=False),
        Column("whole", Boolean, nullable=False, server_default=false()),
        Column("made_at", BigInteger, nullable=False),
        Column("size", BigInteger, nullable=False, server_default="0"),
        Column("records", BigInteger, nullable=False, server_default="0"),
        Column("stored_at", BigInteger, nullable=False, server_default="0", index=True),
        Index("uq_document_name", "name", "whole", unique=True),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "document_part",
        Column("document_id", Key, cascade("document.id"), primary_key=True),
        Column("number", BigInteger, primary_key=True),
        Column("body", LargeBinary, nullable=False),
    )
    op.create_table(
        "suspect",
        Column("kind", Text, primary_key=True),
        Column("key", BigInteger, primary_key=True),
        Column("ends", Integer, nullable=False),
        Column("node_id", Key, ForeignKey("node.id", ondelete="SET NULL"), index=True),
        Column("ended_at", BigInteger, nullable=False, index=True),
    )
    op.create_table(
        "failed_attempt",
        Column("id", Key, primary_key=True),
        Column("subscription_id", Key, cascade("subscription.id"), nullable=False),
        Column("at", BigInteger, nullable=False),
        Column("attempt", Integer, nullable=False),
        *required(Text, "reason", "exchange"),
        *required(LargeBinary, "request_body", "answer_body"),
        Index("ix_failed_attempt_subscription_id", "subscription_id", "id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "block",
        Column("kind", Text, primary_key=True),
        Column("object", Text, primary_key=True),
        *required(Text, "reason", "account"),
        Column("at", BigInteger, nullable=False),
    )
    op.create_table(
        "announcement",
        Column("id", Key, primary_key=True),
        Column("text", Text, nullable=False),
        Column("since", BigInteger, nullable=False),
        Column("until", BigInteger),
        Column("account", Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "admin_change",
        Column("id", Key, primary_key=True),
        *required(Text, "account", "verb", "object", "reason"),
        Column("at", BigInteger, nullable=False),
        Column("published", Boolean, nullable=False, server_default=false()),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "kept_change",
        Column("id", Key, primary_key=True),
        Column("at", BigInteger, nullable=False),
        *required(Text, "url", "way", "origin", "content_type"),
        Column("size", BigInteger, nullable=False),
        Column("body", LargeBinary),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "relay_target",
        Column("name", Text, primary_key=True),
        Column("ping_id", BigInteger, nullable=False),
        Column("failures", Integer, nullable=False, server_default="0"),
        Column("retry_at", BigInteger),
        Column("updated_at", BigInteger, nullable=False),
        Column("waiting", Text, nullable=False, server_default=""),
    )
    op.create_table(
        "followed_list",
        Column("url", Text, primary_key=True),
        *required(Text, "etag", "last_modified"),
        Column("complete_until", BigInteger),
        Column("missing_from", BigInteger),
        Column("missing_to", BigInteger),
        Column("failures", Integer, nullable=False, server_default="0"),
        Column("retry_at", BigInteger),
        Column("updated_at", BigInteger, nullable=False),
    )
    op.create_table(
        "followed_feed",
        Column("url", Text, primary_key=True),
        Column("entry", Text, nullable=False),
        Column("entry_updated", Double, nullable=False),
        Column("document", Text, nullable=False),
        Column("updated_at", BigInteger, nullable=False),
    )
    op.create_table(
        "log_entry",
        Column("id", Key, primary_key=True),
        Column("at", BigInteger, nullable=False),
        *required(Text, "kind", "outcome", "topic", "host", "protocol", "callback", "source"),
        *required(Text, "account", "reason", "numbers"),
        Column("topic_key", BigInteger),
        Column("host_key", BigInteger),
        _index_where(
            "ix_log_entry_host_key", "host_key IS NOT NULL", text("(id / 16384)"), "host_key", "id"
        ),
        Index("ix_log_entry_kind", "kind", "outcome", "id"),
        _index_where(
            "ix_log_entry_topic_key",
            "topic_key IS NOT NULL",
            text("(id / 16384)"),
            "topic_key",
            "id",
        ),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "statistic",
        Column("width", Integer, primary_key=True),
        Column("begin", BigInteger, primary_key=True),
        Column("name", Text, primary_key=True),
        Column("value", BigInteger, nullable=False),
    )
    op.create_table(
        "busy_topic",
        Column("hour", BigInteger, primary_key=True),
        Column("rank", Integer, primary_key=True),
        Column("url", Text, nullable=False),
        Column("pings", BigInteger, nullable=False),
    )
    if op.get_context().dialect.name == "postgresql":
        for index in _OF_LONG_URLS:
            op.execute(index)


def _index_where(name: str, where: str, *columns: Any) -> Index:
    """An index of those rows only for which a condition holds."""
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))
