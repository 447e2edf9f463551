"""The tables of administration, beside those in ``schema``."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, Table, Text, false

from rsscloud_broker.database.columns import Key, cascade, required
from rsscloud_broker.storage.schema import metadata

#: The last failed attempts of subscriptions, with requests and answers: see ``failed_attempts``.
failed_attempt = Table(
    "failed_attempt",
    metadata,
    Column("id", Key, primary_key=True),
    Column("subscription_id", Key, cascade("subscription.id"), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    # All of the exchange but the bodies: a JSON object.
    Column("exchange", Text, nullable=False),
    *required(LargeBinary, "request_body", "answer_body"),
    Index("ix_failed_attempt_subscription_id", "subscription_id", "id"),
    sqlite_autoincrement=True,
)

#: What administrators have shut out: see ``model.administration.Block``.
block = Table(
    "block",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("object", Text, primary_key=True),
    *required(Text, "reason", "account"),
    Column("at", BigInteger, nullable=False),
)

#: Texts that administrators show on the pages.
announcement = Table(
    "announcement",
    metadata,
    Column("id", Key, primary_key=True),
    Column("text", Text, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("until", BigInteger),
    Column("account", Text, nullable=False),
    sqlite_autoincrement=True,
)

#: What administrators did: see ``changes``.
admin_change = Table(
    "admin_change",
    metadata,
    Column("id", Key, primary_key=True),
    *required(Text, "account", "verb", "object", "reason"),
    Column("at", BigInteger, nullable=False),
    # Whether some process has published it as an event.
    Column("published", Boolean, nullable=False, server_default=false()),
    sqlite_autoincrement=True,
)
