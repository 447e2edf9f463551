"""The tables of accounts, sessions, API tokens and sign-in links: see ``schema``.

Secrets of sessions, tokens and links are not in the database, only their SHA-256 digests.  Ids are
never used twice, so that nobody who knew an old one finds a new row by it.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
)

from rsscloud_broker.database.columns import Key, cascade, required
from rsscloud_broker.storage.schema import (
    metadata,
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
    UniqueConstraint("name"),
    sqlite_autoincrement=True,
)

session = Table(
    "session",
    metadata,
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

token = Table(
    "token",
    metadata,
    Column("id", Key, primary_key=True),
    Column("account_id", Key, cascade("account.id"), nullable=False, index=True),
    Column("digest", LargeBinary, nullable=False),
    Column("name", Text, nullable=False),
    # The scopes, separated by spaces.
    Column("scopes", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    # Null if it never expires.
    Column("expires_at", BigInteger, index=True),
    Column("used_at", BigInteger),
    UniqueConstraint("digest"),
    sqlite_autoincrement=True,
)

sign_in_link = Table(
    "sign_in_link",
    metadata,
    # An account has one link at most.
    Column("account_id", Key, cascade("account.id"), primary_key=True),
    Column("digest", LargeBinary, nullable=False),
    Column("expires_at", BigInteger, nullable=False, index=True),
    UniqueConstraint("digest"),
)
