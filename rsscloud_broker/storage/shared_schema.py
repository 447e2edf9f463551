"""The tables of what nodes have to do with each other: jobs, documents that one node makes for all,
and suspects.  See ``jobs`` and ``suspects``.
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
    false,
)

from rsscloud_broker.database.columns import Key, cascade, required
from rsscloud_broker.storage.schema import metadata

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

_is_claimed = job.c.node_id.is_not(None)
Index("ix_job_node_id", job.c.node_id, sqlite_where=_is_claimed, postgresql_where=_is_claimed)

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
