"""The tables of the authoring tool.

Rows are found by the account's id, which no other account ever has.  An account appears here with
its first message.  Numbers of messages begin at 1 for each account and are never used twice.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

from rsscloud_broker.database.columns import FIRST_RELEASE, Key, new_metadata, required
from rsscloud_broker.interfaces import AppTables

metadata = new_metadata()

author = Table(
    "writing_author",
    metadata,
    Column("account_id", BigInteger, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    # The URL of the author's page when the first message was written: ids in feeds begin with it,
    # so that they stay when the broker moves to another address.
    Column("base", Text, nullable=False),
    # Counts the changes.  Who changes something says on which version it is based.
    *required(BigInteger, "version", "next_id"),
    # When something that is published last changed; 0 if nothing ever was.
    Column("changed_at", BigInteger, nullable=False),
    UniqueConstraint("name"),
)

post = Table(
    "writing_post",
    metadata,
    *required(BigInteger, "account_id", "id"),
    # The version that published it: the larger, the newer.  0 for a draft.
    Column("position", BigInteger, nullable=False),
    *required(Text, "text", "title", "link", "enclosure_url", "enclosure_type", "enclosure_text"),
    Column("enclosure_size", BigInteger, nullable=False),
    # JSON: an array of texts; and an array of [text, title, link, [items below]].
    *required(Text, "categories", "items"),
    *required(BigInteger, "created_at", "changed_at"),
    PrimaryKeyConstraint("account_id", "id"),
)
Index("ix_writing_post_position", post.c.account_id, post.c.position)

category = Table(
    "writing_category",
    metadata,
    Column("account_id", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("used_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("account_id", "name"),
)

# What somebody is typing, and has not sent yet.
unsent = Table(
    "writing_unsent",
    metadata,
    Column("account_id", BigInteger, nullable=False),
    # The message that is being edited; 0 for a new one.
    Column("post_id", BigInteger, nullable=False),
    # JSON: the fields of the form by name.
    Column("fields", Text, nullable=False),
    Column("saved_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("account_id", "post_id"),
)

upload = Table(
    "writing_upload",
    metadata,
    Column("id", Key, primary_key=True),
    Column("account_id", BigInteger, nullable=False),
    # SHA-256 of the file, in hexadecimal.
    *required(Text, "digest", "name", "media_type"),
    *required(BigInteger, "size", "created_at"),
    # Whether all of it is stored.
    Column("is_whole", Boolean, nullable=False),
    UniqueConstraint("account_id", "digest"),
    sqlite_autoincrement=True,
)

# The bytes of uploads, in pieces of `upload_rows.CHUNK`.  Those of an upload that is gone are
# deleted little by little, so that no transaction is long.
chunk = Table(
    "writing_chunk",
    metadata,
    Column("upload_id", BigInteger, nullable=False),
    Column("number", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),
    PrimaryKeyConstraint("upload_id", "number"),
)

# Authors whose accounts were removed, after they had published something.  Their addresses are
# gone, and an author who gets the name counts on from these numbers.
former = Table(
    "writing_former",
    metadata,
    Column("name", Text, primary_key=True),
    Column("base", Text, nullable=False),
    *required(BigInteger, "version", "next_id"),
)

TABLES: Final = AppTables(metadata, FIRST_RELEASE, "0001")
