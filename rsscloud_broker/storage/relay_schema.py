"""The tables of relays and followed lists: how far each has come."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, Table, Text

from rsscloud_broker.storage.schema import metadata

#: How far pings were passed on to a target of the relay: see ``relaying``.
relay_target = Table(
    "relay_target",
    metadata,
    Column("name", Text, primary_key=True),
    # The id of the last ping that is done with.
    Column("ping_id", BigInteger, nullable=False),
    Column("failures", Integer, nullable=False, server_default="0"),
    # When the target is called again after failures; null if it may be called.
    Column("retry_at", BigInteger),
    Column("updated_at", BigInteger, nullable=False),
)

#: How far the change list of another broker was read: see ``relaying``.
followed_list = Table(
    "followed_list",
    metadata,
    Column("url", Text, primary_key=True),
    Column("etag", Text, nullable=False),
    Column("last_modified", Text, nullable=False),
    # All pings until then are here, but for those of the missing hours.
    Column("complete_until", BigInteger),
    # Hours since the epoch, whose archives are still to be read; the last one included.
    Column("missing_from", BigInteger),
    Column("missing_to", BigInteger),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("retry_at", BigInteger),
    Column("updated_at", BigInteger, nullable=False),
)
