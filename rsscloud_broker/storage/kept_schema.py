"""The table of changes that are not in the feeds of the broker yet: see ``kept_changes``."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, LargeBinary, Table, Text

from rsscloud_broker.database.columns import Key, required
from rsscloud_broker.storage.schema import metadata

#: Changes of topics that are not in the feeds yet: see ``kept_changes``.
kept_change = Table(
    "kept_change",
    metadata,
    Column("id", Key, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("url", Text, nullable=False),
    # How the broker learned of the change: one of ``records.Way``.
    *required(Text, "way", "origin", "content_type"),
    # The bytes of the content.  They are last, since SQLite reads through them to what is behind.
    Column("size", BigInteger, nullable=False),
    Column("body", LargeBinary),
    sqlite_autoincrement=True,
)
