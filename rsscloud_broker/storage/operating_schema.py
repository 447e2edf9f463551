"""The tables of administration, of accounts and of what nodes have to do with each other, beside
those in ``schema``.

Secrets are not in the database, only their SHA-256 digests.  Ids are never used twice, so that
nobody who knew an old one finds a new row by it.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    false,
)

from rsscloud_broker.database.columns import Key, cascade, required
from rsscloud_broker.storage.schema import index_where, metadata

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
index_where("uq_secret_link", _is_link, secret.c.account_id, secret.c.kind, unique=True)

#: Jobs that one node does for all: those of each minute and hour, and those that never end.
job = Table(
    "job",
    metadata,
    Column("name", Text, primary_key=True),
    # Since when what the job does has not been done, or when it is due next.
    Column("due_at", BigInteger, nullable=False),
    # The node that has claimed it; null if it is free.
    Column("node_id", BigInteger),
)

index_where("ix_job_node_id", job.c.node_id.is_not(None), job.c.node_id)

#: The archives and ResourceSync documents, for all nodes: at most one whole version of each.
document = Table(
    "document",
    metadata,
    Column("id", Key, primary_key=True),
    # The path at which it is served, such as ``/2026/09/29/12.xml``.
    Column("name", Text, nullable=False),
    # Whether all its parts are there; before that, nobody reads it.
    Column("whole", Boolean, nullable=False, server_default=false()),
    Column("made_at", BigInteger, nullable=False),
    # The bytes of the file, and how many pings are listed in it.
    *required(BigInteger, "size", "records", server_default="0"),
    # When it became whole, by the clock of the database.
    Column("stored_at", BigInteger, nullable=False, server_default="0", index=True),
    sqlite_autoincrement=True,
)
Index("uq_document_name", document.c.name, document.c.whole, unique=True)

#: The gzipped bytes of a document, in parts.
document_part = Table(
    "document_part",
    metadata,
    Column("document_id", Key, cascade("document.id"), primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
)

#: Work that nodes had claimed when they ended: see ``suspects``.
suspect = Table(
    "suspect",
    metadata,
    Column("kind", Text, primary_key=True),
    # The id of the row of the work; of a notification, that of its subscription.
    Column("key", BigInteger, primary_key=True, autoincrement=False),
    # How many nodes have ended: the first had claimed it, and the others were working on it.
    Column("ends", Integer, nullable=False),
    # The node that works on it; null if none does.
    Column("node_id", Key, ForeignKey("node.id", ondelete="SET NULL"), index=True),
    # When the last one was found to have ended, by the clock of the database.
    Column("ended_at", BigInteger, nullable=False, index=True),
)
