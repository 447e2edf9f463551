"""The tables.

Times are whole microseconds since the epoch (UTC) in BIGINT columns: exact,
ordered, and alike in every database.  They become seconds in floats where rows
become model classes.  URLs may be longer than a row of a B-tree in PostgreSQL (2,704 bytes):
what has to be unique there is compared by hashes, of which SQLite has no need.

Migrations bring a database to these tables; a test holds that both agree.
"""

from __future__ import annotations

import json

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
    func,
    true,
)
from sqlalchemy.dialects.postgresql import ExcludeConstraint

from rsscloud_broker.model import SubscriptionOptions

MICROSECONDS = 1_000_000


def to_micros(seconds: float) -> int:
    """Seconds since the epoch as whole microseconds, the way they are stored."""
    return round(seconds * MICROSECONDS)


def to_seconds(micros: int) -> float:
    """Stored microseconds as seconds since the epoch."""
    return micros / MICROSECONDS


def to_seconds_or_none(micros: int | None) -> float | None:
    """As ``to_seconds``, for a column that may be null."""
    return None if micros is None else to_seconds(micros)


def to_micros_or_none(seconds: float | None) -> int | None:
    """As ``to_micros``, for a column that may be null."""
    return None if seconds is None else to_micros(seconds)


def options_to_text(options: SubscriptionOptions) -> str:
    """SubscriptionOptions the way they are stored: as JSON; empty if there are none."""
    return json.dumps(dict(options), separators=(",", ":")) if options else ""


def options_from_text(stored: str) -> SubscriptionOptions:
    """Stored options; quick where there are none, as this is done for each notification."""
    return json.loads(stored) if stored else {}


metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)

#: SQLite gives out keys by itself only for a column that it calls INTEGER.
Key = BigInteger().with_variant(Integer(), "sqlite")

topic = Table(
    "topic",
    metadata,
    Column("id", Key, primary_key=True),
    Column("url", Text, nullable=False),
    Column("digest", LargeBinary),
    Column("size", BigInteger),
    Column("read_at", BigInteger),
    Column("changed_at", BigInteger),
    # Null unless somebody said that the topic changed and it was not read since.
    Column("check_requested_at", BigInteger, index=True),
    # Whether one of those who asked for the check says that the topic changed.
    Column("check_pinged", Boolean, nullable=False, server_default=false()),
    # Why the topic has ended; empty while it has not.
    Column("ended", Text, nullable=False, server_default=""),
    # What came of asking its server: see model.TopicStatus.
    Column("etag", Text, nullable=False, server_default=""),
    Column("last_modified", Text, nullable=False, server_default=""),
    Column("fresh_seconds", BigInteger),
    Column("asked_at", BigInteger),
    Column("result", Text, nullable=False, server_default=""),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("pinged_at", BigInteger),
    # Null where it is not polled: where it has ended, for one.
    Column("next_poll_at", BigInteger, index=True),
    Column("poll_reason", Text, nullable=False, server_default=""),
    Column("poll_interval", BigInteger),
    Column("planned_at", BigInteger),
    # A JSON object, or empty where there is none.
    Column("feed", Text, nullable=False, server_default=""),
    # Where the topic went that was at this URL: see ``topic_urls``.
    Column("moved_to_id", Key, ForeignKey("topic.id"), index=True),
    Column("moved_at", BigInteger),
    # When it was last read or asked for, if nobody has subscribed to it: see idle.
    Column("idle_at", BigInteger),
    UniqueConstraint("url").ddl_if(dialect="sqlite"),
    ExcludeConstraint(("url", "="), using="hash", name="uq_topic_url").ddl_if(dialect="postgresql"),
)

_is_idle = topic.c.idle_at.is_not(None)
Index("ix_topic_idle_at", topic.c.idle_at, sqlite_where=_is_idle, postgresql_where=_is_idle)

# The ids of the tables below are never used twice: walks keep them as cursors,
# and sinks remember how far they came.

subscription = Table(
    "subscription",
    metadata,
    Column("id", Key, primary_key=True),
    Column("topic_id", Key, ForeignKey("topic.id"), nullable=False),
    Column("protocol", Text, nullable=False),
    Column("callback_url", Text, nullable=False),
    Column("host", Text, nullable=False, server_default="", index=True),
    Column("procedure", Text, nullable=False, server_default=""),
    Column("granted_at", BigInteger, nullable=False),
    Column("lease_seconds", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False, index=True),
    Column("consecutive_errors", Integer, nullable=False),
    Column("last_error", Text, nullable=False),
    Column("last_error_at", BigInteger),
    Column("dropping", Boolean, nullable=False),
    # A JSON object, or empty where there are none: see options_from_text.
    Column("options", Text, nullable=False, server_default=""),
    Column("wants_content", Boolean, nullable=False, server_default=false()),
    # The URL that was subscribed to; empty if the topic is still there: see ``topic_urls``.
    Column("asked_url", Text, nullable=False, server_default=""),
    # The topic as the subscriber wrote it; empty if that is its normal form.
    Column("written_url", Text, nullable=False, server_default=""),
    UniqueConstraint("topic_id", "asked_url", "callback_url", "protocol", "procedure").ddl_if(
        dialect="sqlite"
    ),
    Index("ix_subscription_walk", "topic_id", "id"),
    Index("ix_subscription_callback_url", "callback_url", postgresql_using="hash").ddl_if(
        dialect="postgresql"
    ),
    sqlite_autoincrement=True,
)
Index(
    "uq_subscription_identity",
    subscription.c.topic_id,
    func.md5(subscription.c.asked_url),
    func.md5(subscription.c.callback_url),
    subscription.c.protocol,
    subscription.c.procedure,
    unique=True,
).ddl_if(dialect="postgresql")

# Whether anybody wants the content of a topic is asked of topics with a million
# subscribers who do not.
Index(
    "ix_subscription_content",
    subscription.c.topic_id,
    # Each uses it only where a query says the same, and this is how they say it.
    sqlite_where=subscription.c.wants_content == true(),
    postgresql_where=subscription.c.wants_content,
)

ping = Table(
    "ping",
    metadata,
    Column("id", Key, primary_key=True),
    Column("received_at", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("changes_url", Text, nullable=False),
    Column("rss_url", Text, nullable=False),
    Column("tags", Text, nullable=False),
    # What makes two pings alike, in 16 bytes: see pings.fingerprint.
    Column("fingerprint", LargeBinary, nullable=False),
    Index("ix_ping_received", "received_at", "id"),
    Index("ix_ping_repeat", "fingerprint", "received_at"),
    sqlite_autoincrement=True,
)

#: What was found at topics or pushed for them, while something has need of it.
content = Table(
    "content",
    metadata,
    Column("id", Key, primary_key=True),
    Column("topic_id", Key, ForeignKey("topic.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("content_type", Text, nullable=False),
    Column("link", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    # Where it came from, and its bytes: what is summed, by an index, as SQLite would have
    # to read through the body to come to what stands behind it.
    Column("host", Text, nullable=False, server_default=""),
    Column("size", BigInteger, nullable=False, server_default="0"),
    Index("ix_content_host", "host", "id", "size"),
    sqlite_autoincrement=True,
)

#: The bytes of contents that are kept: those of each host, and of all by the name "".
content_sum = Table(
    "content_sum",
    metadata,
    Column("host", Text, primary_key=True),
    Column("size", BigInteger, nullable=False),
)

fanout = Table(
    "fanout",
    metadata,
    Column("id", Key, primary_key=True),
    Column("topic_id", Key, ForeignKey("topic.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("cursor", BigInteger, nullable=False),
    Column("begun_at", BigInteger, nullable=False),
    Column("content_id", Key, ForeignKey("content.id", ondelete="SET NULL"), index=True),
    # Whether it carries a content that was pushed.
    Column("pushed", Boolean, nullable=False, server_default=false()),
    # Whether a content was wanted and is not kept.
    Column("later", Boolean, nullable=False, server_default=false()),
    Column("content_size", BigInteger, nullable=False, server_default="0"),
    sqlite_autoincrement=True,
)

#: The processes that work on this database: see ``nodes``.
node = Table(
    "node",
    metadata,
    Column("id", Key, primary_key=True),
    Column("name", Text, nullable=False),
    sqlite_autoincrement=True,
)

#: Subscriptions that a walk has handed out, up to its cursor, and whose outcomes are not
#: recorded yet.  Free if no node has them.
slice_ = Table(
    "slice",
    metadata,
    Column("id", Key, primary_key=True),
    Column("fanout_id", Key, ForeignKey("fanout.id", ondelete="CASCADE"), nullable=False),
    Column("node_id", Key, ForeignKey("node.id", ondelete="SET NULL"), index=True),
    # A JSON array of ids.
    Column("subscription_ids", Text, nullable=False),
    Index("ix_slice_fanout_id", "fanout_id"),
    sqlite_autoincrement=True,
)

#: Notifications that wait to be tried, or tried again: at most one for a subscription.
pending = Table(
    "pending_notification",
    metadata,
    Column(
        "subscription_id",
        Key,
        ForeignKey("subscription.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("attempts", Integer, nullable=False),
    Column("due_at", BigInteger, nullable=False, index=True),
    # The topic of a subscription that wants content, else null: it tells at once
    # whether a content is waited for.
    Column("content_topic_id", Key),
    # The node that works on it; null if it is free.
    Column("node_id", Key, ForeignKey("node.id", ondelete="SET NULL"), index=True),
    # When it was tried last, and when it first failed; null if it was not tried.
    Column("tried_at", BigInteger),
    Column("failing_since", BigInteger),
    # The time that the subscriber asked for; null if it did not.
    Column("not_before", BigInteger),
    # What was pushed and is to be carried; null for whatever is the newest.
    Column("content_id", Key, ForeignKey("content.id", ondelete="SET NULL"), index=True),
)

#: Contents that were pushed and wait for those before them, in the order of their ids.
queued = Table(
    "queued",
    metadata,
    Column(
        "subscription_id",
        Key,
        ForeignKey("subscription.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column(
        "content_id",
        Key,
        ForeignKey("content.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Index("ix_queued_content_id", "content_id"),
)

_content_waited_for = pending.c.content_topic_id.is_not(None)
Index(
    "ix_pending_notification_content_topic_id",
    pending.c.content_topic_id,
    sqlite_where=_content_waited_for,
    postgresql_where=_content_waited_for,
)

#: What subscribers asked for, until it is verified.
intent = Table(
    "intent",
    metadata,
    Column("id", Key, primary_key=True),
    Column("topic", Text, nullable=False),
    Column("callback_url", Text, nullable=False),
    Column("protocol", Text, nullable=False),
    Column("procedure", Text, nullable=False),
    Column("lease_seconds", BigInteger, nullable=False),
    Column("challenge", Boolean, nullable=False),
    Column("source", Text, nullable=False),
    Column("options", Text, nullable=False),
    Column("unsubscribe", Boolean, nullable=False),
    Column("written_topic", Text, nullable=False, server_default=""),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("retry_at", BigInteger),
    UniqueConstraint("topic", "callback_url", "protocol", "procedure").ddl_if(dialect="sqlite"),
    sqlite_autoincrement=True,
)
Index(
    "uq_intent_identity",
    func.md5(intent.c.topic),
    func.md5(intent.c.callback_url),
    intent.c.protocol,
    intent.c.procedure,
    unique=True,
).ddl_if(dialect="postgresql")

#: Hosts that do not answer.
host_state = Table(
    "host_state",
    metadata,
    Column("name", Text, primary_key=True),
    Column("failures", Integer, nullable=False),
    Column("retry_at", BigInteger, nullable=False),
)

#: Numbers that must outlive the rows they count.
counter = Table(
    "counter",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)
