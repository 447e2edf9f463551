"""The tables of administration and of accounts, beside those in ``schema``.

Secrets are not in the database, only their SHA-256 digests.  Ids are never used twice, so that
nobody who knew an old one finds a new row by it.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    false,
)

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


account = Table(
    "account",
    metadata,
    Column("id", Key, primary_key=True),
    Column("name", Text, nullable=False),
    # The hash of the password, in PHC string format; empty if it is not kept here.
    Column("password", Text, nullable=False),
    Column("is_admin", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("signed_in_at", BigInteger),
    # Why an administrator has disabled it; empty if none has.
    Column("disabled", Text, nullable=False, server_default=""),
    # The most bytes that it may store; null for what the configuration says.
    Column("max_bytes", BigInteger),
    UniqueConstraint("name"),
    sqlite_autoincrement=True,
)

#: What proves an account, by the kind: ``session``, ``token``, ``link`` or ``invitation``.
secret = Table(
    "secret",
    metadata,
    Column("id", Key, primary_key=True),
    Column("account_id", Key, cascade("account.id"), nullable=False, index=True),
    Column("kind", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    # Of a session and a token: when they were made and last used; null if never.
    Column("created_at", BigInteger),
    Column("used_at", BigInteger, index=True),
    # Null if it never expires.
    Column("expires_at", BigInteger, index=True),
    # What the browser of a session called itself, or what a token is for.
    Column("name", Text, nullable=False),
    # Of a session: where the sign-in came from.  Of a token: the scopes, separated by spaces.
    *required(Text, "address", "scopes"),
    UniqueConstraint("kind", "digest"),
    sqlite_autoincrement=True,
)

# An account has one link at most, and one invitation.
_is_link = secret.c.kind.in_(("link", "invitation"))
Index(
    "uq_secret_link",
    secret.c.account_id,
    secret.c.kind,
    unique=True,
    sqlite_where=_is_link,
    postgresql_where=_is_link,
)
