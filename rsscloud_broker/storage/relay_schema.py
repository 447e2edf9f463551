"""The tables of relays and of what is followed: how far each has come."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Integer, Table, Text

from rsscloud_broker.database.columns import required
from rsscloud_broker.storage.schema import metadata

#: How far pings were passed on to a target of the relay: see ``relaying``.
relay_target = Table(
    "relay_target",
    metadata,
    Column("name", Text, primary_key=True),
    Column("ping_id", BigInteger, nullable=False),
    Column("failures", Integer, nullable=False, server_default="0"),
    # When the target is called again after failures; null if it may be called.
    Column("retry_at", BigInteger),
    Column("updated_at", BigInteger, nullable=False),
    # Earlier pings that are passed on again, as JSON: id, failed attempts, and when.
    Column("waiting", Text, nullable=False, server_default=""),
)

#: How far the change list of another broker was read: see ``relaying``.
followed_list = Table(
    "followed_list",
    metadata,
    Column("url", Text, primary_key=True),
    *required(Text, "etag", "last_modified"),
    # All pings until then are here, but for those of the missing hours.
    Column("complete_until", BigInteger),
    # Hours since the epoch, whose archives are still to be read; the last one included.
    Column("missing_from", BigInteger),
    Column("missing_to", BigInteger),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("retry_at", BigInteger),
    Column("updated_at", BigInteger, nullable=False),
)

#: How far a feed of pings was read: see ``relaying``.
followed_feed = Table(
    "followed_feed",
    metadata,
    Column("url", Text, primary_key=True),
    # The last entry: see ``Position``.
    Column("entry", Text, nullable=False),
    Column("entry_updated", Double, nullable=False),
    Column("document", Text, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)
