"""The tables of logs.

``log`` has a row for each log.  It is also the counter of the log: who appends locks the row until
the end of the transaction.  So numbers are in the order of commits, which those of a sequence are
not, and a transaction that fails leaves no gap.  ``entries`` has the entries; those that were
appended together share a row.  ``document`` has a row for each document that is archived, since the
number of entries in a document may change.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    false,
)

from rsscloud_broker.database.columns import FIRST_RELEASE, Key, cascade, new_metadata, required
from rsscloud_broker.interfaces import AppTables

metadata: Final = new_metadata()


def _of_log() -> Column[int]:
    """The column with the id of a log; rows are deleted with their log."""
    return Column("log_id", Key, cascade("simplefeed_log.id"), primary_key=True)


log: Final = Table(
    "simplefeed_log",
    metadata,
    Column("id", Key, primary_key=True),
    Column("name", Text, nullable=False),
    # The atom:id of the feed.
    *required(Text, "feed_id", "title", "author"),
    # How many entries a document has that begins now.
    Column("per_document", Integer, nullable=False),
    # The number of the newest entry, which is also how many there ever were.
    Column("newest", BigInteger, nullable=False),
    # The current document: its number, that of its first entry, and the size of its entries.
    *required(BigInteger, "document", "first", "size", "created_at"),
    # The time of the newest entry; that of the log itself if there is none.
    Column("updated_at", BigInteger, nullable=False),
    # How far the rows were read that the entries are made of: see ``log.lock``.
    Column("source", BigInteger, nullable=False, server_default="0"),
    UniqueConstraint("name"),
    sqlite_autoincrement=True,
)

entries: Final = Table(
    "simplefeed_entries",
    metadata,
    _of_log(),
    # The numbers of the newest and of the oldest entry in the row; all are of one document.
    Column("last", BigInteger, primary_key=True, autoincrement=False),
    Column("first", BigInteger, nullable=False),
    # A list of ``entries.Entry`` as MessagePack, the oldest first.
    Column("data", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

document: Final = Table(
    "simplefeed_document",
    metadata,
    _of_log(),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    # The numbers of its entries.
    *required(BigInteger, "first", "last"),
    # The time of its newest entry.
    Column("updated_at", BigInteger, nullable=False),
    # Whether its entries were removed.
    Column("gone", Boolean, nullable=False, server_default=false()),
    sqlite_with_rowid=False,
)

#: The tables, for ``storage.upgrade.migrate``.
TABLES: Final = AppTables(metadata, FIRST_RELEASE, "0001")
