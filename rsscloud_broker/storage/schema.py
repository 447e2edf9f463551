"""The tables of the database, and how values are stored in their columns.

A URL may be longer than a row of a B-tree index in PostgreSQL (2,704 bytes).  So unique indexes
over URLs use hashes there; SQLite does not need them.

``operating_schema`` has the tables of administration, of accounts and of what nodes have to do with
each other.  Tables that one module alone uses are in that module: ``log_entries``,
``kept_changes``, ``statistics`` and ``relaying``.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    and_,
    false,
    func,
    literal_column,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import ExcludeConstraint

from rsscloud_broker.database.columns import Key, cascade, new_metadata, required
from rsscloud_broker.model import SubscriptionOptions


def options_to_text(options: SubscriptionOptions) -> str:
    """Convert options of a subscription to JSON, as they are stored; empty if there are none."""
    return json.dumps(dict(options), separators=(",", ":")) if options else ""


def options_from_text(stored: str) -> SubscriptionOptions:
    """Convert stored options back.  Quick for empty ones, since each notification needs it."""
    return json.loads(stored) if stored else {}


def index_where(
    name: str, where: ColumnElement[bool], *columns: Column[Any], unique: bool = False
) -> None:
    """Make an index of those rows only for which a condition holds."""
    Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


metadata = new_metadata()

topic = Table(
    "topic",
    metadata,
    Column("id", Key, primary_key=True),
    Column("url", Text, nullable=False),
    Column("digest", LargeBinary),
    Column("size", BigInteger),
    Column("read_at", BigInteger),
    Column("changed_at", BigInteger),
    # When a check of the topic was last requested; null if no check is requested.
    Column("check_requested_at", BigInteger),
    # Whether somebody said that the topic changed, since the check was requested.
    Column("check_pinged", Boolean, nullable=False, server_default=false()),
    # Why the topic has ended; empty if it has not.
    Column("ended", Text, nullable=False, server_default=""),
    # The results of fetches: see model.TopicStatus.
    *required(Text, "etag", "last_modified", server_default=""),
    Column("fresh_seconds", BigInteger),
    Column("asked_at", BigInteger),
    Column("result", Text, nullable=False, server_default=""),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("pinged_at", BigInteger),
    # Null if the topic is not polled, for example because it has ended.
    Column("next_poll_at", BigInteger),
    Column("poll_reason", Text, nullable=False, server_default=""),
    Column("poll_interval", BigInteger),
    Column("planned_at", BigInteger),
    # What the feed says about itself: a JSON object, or empty.
    Column("feed", Text, nullable=False, server_default=""),
    # The topic that has left this URL; null if it is still here: see ``topic_urls``.
    Column("moved_to_id", Key, ForeignKey("topic.id")),
    Column("moved_at", BigInteger),
    # The URL that an empty ``asked_url`` of a subscription stands for; null if that is ``url``.
    Column("first_url", Text),
    # When the topic was last fetched or a check requested, if it has no subscription: see ``idle``.
    Column("idle_at", BigInteger),
    # The nodes that have claimed the requested check and the poll; null if they are free.
    Column("check_node_id", BigInteger),
    Column("poll_node_id", BigInteger),
    # The id of the node whose fetch was recorded last; its row may be gone.
    Column("reader_id", BigInteger),
    # Of a requested check: who requested it first, the host of the topic, when it may be claimed
    # (null for at once), and how many attempts to fetch the topic have failed: see ``checks``.
    *required(Text, "check_source", "check_host", server_default=""),
    Column("check_due_at", BigInteger),
    Column("check_failures", Integer, nullable=False, server_default="0"),
    # How the broker learned that the topic may have changed (one of ``Way``; empty for FETCH), and
    # which brokers a ping of it has passed: see ``Ping``.
    *required(Text, "check_way", "check_origin", server_default=""),
    # The digest of the last content that strangers may know of: see model.Topic.
    Column("public_digest", LargeBinary),
    # How often it changed on each of the last days, as far as strangers may know: ``polls``.
    Column("change_days", Text, nullable=False, server_default=""),
    # Whether callers at other nodes than the one that has claimed it wait for the answer.
    Column("check_awaited", Boolean, nullable=False, server_default=false()),
    UniqueConstraint("url").ddl_if(dialect="sqlite"),
    ExcludeConstraint(("url", "="), using="hash", name="uq_topic_url").ddl_if(dialect="postgresql"),
)

#: How the URL begins, in the order of bytes, for ``summaries``.  SQLite has whole URLs in order.
URL_BEGINS = func.left(topic.c.url, literal_column("200"), type_=Text()).collate("C")
Index("ix_topic_url_begins", URL_BEGINS).ddl_if(dialect="postgresql")

# Most topics have none of these, and each update of an indexed column writes to all indexes.
for _name in ("idle_at", "next_poll_at", "moved_to_id"):
    _column = topic.c[_name]
    index_where(f"ix_topic_{_name}", _column.is_not(None), _column, topic.c.id)

#: Whether a check of a topic waits for any node to claim it.
CHECK_WAITS = and_(
    topic.c.check_requested_at.is_not(None),
    topic.c.check_node_id.is_(None),
    topic.c.check_due_at.is_(None),
)
_in_turn = (topic.c.check_source, topic.c.check_host, topic.c.check_requested_at)
index_where("ix_topic_check_waits", CHECK_WAITS, *_in_turn)
index_where("ix_topic_check_due_at", topic.c.check_due_at.is_not(None), topic.c.check_due_at)

# The ids of most tables below are never used twice: fan-outs keep ids of subscriptions as cursors,
# and sinks remember by an id how far they have read.

subscription = Table(
    "subscription",
    metadata,
    Column("id", Key, primary_key=True),
    Column("topic_id", Key, ForeignKey("topic.id"), nullable=False),
    *required(Text, "protocol", "callback_url"),
    *required(Text, "host", "procedure", server_default=""),
    *required(BigInteger, "granted_at", "lease_seconds"),
    Column("expires_at", BigInteger, nullable=False, index=True),
    Column("consecutive_errors", Integer, nullable=False),
    Column("last_error", Text, nullable=False),
    Column("last_error_at", BigInteger),
    Column("dropping", Boolean, nullable=False),
    # A JSON object, or empty if there are no options: see ``options_from_text``.
    Column("options", Text, nullable=False, server_default=""),
    Column("wants_content", Boolean, nullable=False, server_default=false()),
    # The URL that the subscriber asked for; empty if it is the first URL of the topic: see
    # ``topic_urls``.
    Column("asked_url", Text, nullable=False, server_default=""),
    # The topic as the subscriber wrote it; empty if that is its normal form.
    Column("written_url", Text, nullable=False, server_default=""),
    UniqueConstraint("topic_id", "asked_url", "callback_url", "protocol", "procedure").ddl_if(
        dialect="sqlite"
    ),
    Index("ix_subscription_walk", "topic_id", "id"),
    Index("ix_subscription_host", "host", "id"),
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

# It finds the few subscriptions to a URL that is not the first one of their topic.
Index(
    "ix_subscription_asked_url",
    subscription.c.topic_id,
    func.md5(subscription.c.asked_url),
    postgresql_where=subscription.c.asked_url != "",
).ddl_if(dialect="postgresql")

# It finds out quickly whether any subscription of a topic wants content, even if a million do not.
Index(
    "ix_subscription_content",
    subscription.c.topic_id,
    # A database uses a partial index only for queries with the same condition, and SQLAlchemy
    # writes this condition differently for the two.
    sqlite_where=subscription.c.wants_content == true(),
    postgresql_where=subscription.c.wants_content,
)

# By these, administrators find the few subscriptions that fail among a million.
Index(
    "ix_subscription_dropping",
    subscription.c.id,
    sqlite_where=subscription.c.dropping == true(),
    postgresql_where=subscription.c.dropping,
)
_is_failing = subscription.c.consecutive_errors > 0
index_where("ix_subscription_failing", _is_failing, subscription.c.id)

ping = Table(
    "ping",
    metadata,
    Column("id", Key, primary_key=True),
    Column("received_at", BigInteger, nullable=False),
    *required(Text, "name", "url", "changes_url", "rss_url", "tags"),
    # A hash that repeats have in common, in 16 bytes: see ``pings.fingerprint``.
    Column("fingerprint", LargeBinary, nullable=False),
    # The brokers and lists by which the ping came; empty if it was made here.
    Column("origin", Text, nullable=False, server_default=""),
    Index("ix_ping_received", "received_at", "id"),
    sqlite_autoincrement=True,
)

#: The hour of a ping.  It comes first in the index that finds repeats, since fingerprints alone are
#: in no order: each new one would change another page of an index that may be large.
PING_HOUR = "received_at / 3600000000"
Index("ix_ping_repeat", text(f"({PING_HOUR})"), ping.c.fingerprint, ping.c.received_at, _table=ping)

#: Contents that were fetched from topics or pushed for them, while something needs them.
content = Table(
    "content",
    metadata,
    Column("id", Key, primary_key=True),
    Column("topic_id", Key, cascade("topic.id"), nullable=False, index=True),
    *required(Text, "content_type", "link"),
    Column("body", LargeBinary, nullable=False),
    # The host that the content came from, and its size.  They are read from an index, since
    # SQLite would have to read through the body to reach columns behind it.
    Column("host", Text, nullable=False, server_default=""),
    Column("size", BigInteger, nullable=False, server_default="0"),
    Index("ix_content_host", "host", "id", "size"),
    sqlite_autoincrement=True,
)

#: The bytes of contents that are kept for each host; the host "" stands for the total.
content_sum = Table(
    "content_sum",
    metadata,
    Column("host", Text, primary_key=True),
    Column("size", BigInteger, nullable=False),
)

#: Unfinished fan-outs: see ``model.work.Fanout``.
fanout = Table(
    "fanout",
    metadata,
    Column("id", Key, primary_key=True),
    Column("topic_id", Key, cascade("topic.id"), nullable=False, index=True),
    *required(BigInteger, "cursor", "begun_at"),
    Column("content_id", Key, ForeignKey("content.id", ondelete="SET NULL"), index=True),
    # Whether it carries pushed content.
    Column("pushed", Boolean, nullable=False, server_default=false()),
    # Whether it lacks a content that subscriptions want, since it did not fit.
    Column("later", Boolean, nullable=False, server_default=false()),
    Column("content_size", BigInteger, nullable=False, server_default="0"),
    # The node that has claimed it; null if it is free.
    Column("node_id", BigInteger),
    # Whether a node has ever claimed it.
    Column("begun", Boolean, nullable=False, server_default=false()),
    # The id of the last subscription of this part of a fan-out; null for the last part.
    Column("last_id", BigInteger),
    # The id of the fan-out that this one was split off from; null if it was not.
    Column("part_of", BigInteger),
    sqlite_autoincrement=True,
)

#: The processes that work on this database: see ``nodes``.
node = Table(
    "node",
    metadata,
    Column("id", Key, primary_key=True),
    Column("name", Text, nullable=False),
    # When it started, and its last heartbeat, in microseconds by the clock of the database; with
    # a minus when the node is just removed.
    *required(BigInteger, "started_at", "beat_at", server_default="0"),
    Column("version", Text, nullable=False, server_default=""),
    # What it has done since its start, and what it does in a second: see ``pulse``.
    *required(BigInteger, "pings", "notifications", server_default="0"),
    *required(Double, "ping_rate", "notification_rate", server_default="0"),
    # By how many seconds the clock of its computer is ahead of the database's.
    Column("clock_ahead", Double, nullable=False, server_default="0"),
    sqlite_autoincrement=True,
)

#: Slices of fan-outs: subscriptions up to the cursor that have no outcome yet.
slice_ = Table(
    "slice",
    metadata,
    Column("id", Key, primary_key=True),
    Column("fanout_id", Key, cascade("fanout.id"), nullable=False),
    # The node that has claimed the slice; null if it is free.
    Column("node_id", Key, ForeignKey("node.id", ondelete="SET NULL"), index=True),
    # A JSON array of ids.
    Column("subscription_ids", Text, nullable=False),
    Index("ix_slice_fanout_id", "fanout_id"),
    sqlite_autoincrement=True,
)

#: Notifications that wait for their first or next attempt: at most one for a subscription.
pending = Table(
    "pending_notification",
    metadata,
    Column(
        "subscription_id", Key, cascade("subscription.id"), primary_key=True, autoincrement=False
    ),
    Column("attempts", Integer, nullable=False),
    Column("due_at", BigInteger, nullable=False),
    # The host of the callback, so that those of busy hosts can be skipped by an index.
    Column("host", Text, nullable=False, server_default=""),
    # The topic, if the subscription wants content; else null.  By its index the store sees at
    # once whether a pending notification needs the content of a topic.
    Column("content_topic_id", Key),
    # The node that has claimed it; null if it is free.
    Column("node_id", Key, ForeignKey("node.id", ondelete="SET NULL"), index=True),
    # When the last attempt was made, and when the first one failed; null if none was made.
    Column("tried_at", BigInteger),
    Column("failing_since", BigInteger),
    # The time before which the subscriber asked not to be called; null if it did not ask.
    Column("not_before", BigInteger),
    # The pushed content that it carries; null if it carries the newest content, or none.
    Column("content_id", Key, ForeignKey("content.id", ondelete="SET NULL"), index=True),
)

_is_free = pending.c.node_id.is_(None)
for _name, _first in (("due_at", ("due_at",)), ("host", ("host", "due_at"))):
    _columns = (*(pending.c[each] for each in _first), pending.c.subscription_id)
    index_where(f"ix_pending_notification_{_name}", _is_free, *_columns)

#: Pushed contents that wait for the pending notification of an earlier one, in the order of their
#: ids.
queued = Table(
    "queued",
    metadata,
    Column(
        "subscription_id", Key, cascade("subscription.id"), primary_key=True, autoincrement=False
    ),
    Column("content_id", Key, cascade("content.id"), primary_key=True, autoincrement=False),
    Index("ix_queued_content_id", "content_id"),
)

_of_content = pending.c.content_topic_id
index_where("ix_pending_notification_content_topic_id", _of_content.is_not(None), _of_content)

#: Intents that wait to be verified.
intent = Table(
    "intent",
    metadata,
    Column("id", Key, primary_key=True),
    *required(Text, "topic", "callback_url", "protocol", "procedure"),
    Column("lease_seconds", BigInteger, nullable=False),
    Column("challenge", Boolean, nullable=False),
    *required(Text, "source", "options"),
    Column("unsubscribe", Boolean, nullable=False),
    Column("written_topic", Text, nullable=False, server_default=""),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("retry_at", BigInteger),
    # The node that has claimed it; null if it is free.
    Column("node_id", BigInteger),
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

#: The columns with the ids of nodes that do not refer to their rows: ``nodes`` sets them to null
#: when it removes a node.  (SQLite cannot add or drop columns that refer to other tables.)
CLAIMS = (fanout.c.node_id, intent.c.node_id, topic.c.check_node_id, topic.c.poll_node_id)

for _claim in CLAIMS:
    index_where(f"ix_{_claim.table.name}_{_claim.name}", _claim.is_not(None), _claim)

#: Hosts that do not answer.
host_state = Table(
    "host_state",
    metadata,
    Column("name", Text, primary_key=True),
    Column("failures", Integer, nullable=False),
    Column("retry_at", BigInteger, nullable=False),
)

#: Numbers of rows ever made, which stay when the rows are removed.
counter = Table(
    "counter",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)
