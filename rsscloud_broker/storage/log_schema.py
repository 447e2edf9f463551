"""The table of the event log: see ``log_entries``."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Table, Text, text

from rsscloud_broker.database.columns import Key, required
from rsscloud_broker.storage.schema import metadata

#: The event log: see ``log_entries``.
log_entry = Table(
    "log_entry",
    metadata,
    Column("id", Key, primary_key=True),
    Column("at", BigInteger, nullable=False),
    *required(Text, "kind", "outcome", "topic", "host", "protocol", "callback"),
    *required(Text, "source", "account", "reason"),
    # A JSON object, or empty if there are none.
    Column("numbers", Text, nullable=False),
    # Hashes of the topic and the host, which make small indexes; null if there is none.
    Column("topic_key", BigInteger),
    Column("host_key", BigInteger),
    Index("ix_log_entry_kind", "kind", "outcome", "id"),
    sqlite_autoincrement=True,
)

#: The number of the block that an entry is in: see ``log_entries``.
LOG_BLOCK = "id / 16384"

for _key in (log_entry.c.topic_key, log_entry.c.host_key):
    Index(
        f"ix_log_entry_{_key.name}",
        text(f"({LOG_BLOCK})"),
        _key,
        log_entry.c.id,
        sqlite_where=_key.is_not(None),
        postgresql_where=_key.is_not(None),
        _table=log_entry,
    )
