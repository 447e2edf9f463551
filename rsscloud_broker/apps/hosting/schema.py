"""The tables of the application: files, and the versions of each.

Ids are never used twice.  After an account was removed, its files are deleted; their rows stay,
with 0 for the account, until another account has the name.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
)

from rsscloud_broker.database.columns import FIRST_RELEASE, Key, cascade, new_metadata, required
from rsscloud_broker.interfaces import AppTables

metadata = new_metadata()

feed = Table(
    "hosting_feed",
    metadata,
    Column("id", Key, primary_key=True),
    # The name of the account, and the path below it.
    *required(Text, "account", "path"),
    Column("account_id", BigInteger, nullable=False, index=True),
    # The present version; null if the file was deleted.
    Column("version_id", BigInteger),
    # The bytes of the present version, those of all versions, and how many versions there are.
    Column("size", Integer, nullable=False),
    Column("stored", BigInteger, nullable=False),
    Column("versions", Integer, nullable=False),
    # Whether others may subscribe to it.
    Column("is_topic", Boolean, nullable=False),
    UniqueConstraint("account", "path"),
    sqlite_autoincrement=True,
)

version = Table(
    "hosting_version",
    metadata,
    Column("id", Key, primary_key=True),
    Column("feed_id", Key, cascade("hosting_feed.id"), nullable=False, index=True),
    *required(BigInteger, "account_id", "saved_at"),
    # What Last-Modified says, in whole seconds: each version has a later one than that before it.
    Column("modified_at", BigInteger, nullable=False),
    Column("size", Integer, nullable=False),
    Column("media_type", Text, nullable=False),
    *required(LargeBinary, "digest", "body"),
    # The body compressed by gzip; empty if that is no shorter.
    Column("packed", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)

TABLES = AppTables(metadata, FIRST_RELEASE, "0001")
