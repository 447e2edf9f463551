"""The tables of statistics: see ``statistics``."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, Table, Text

from rsscloud_broker.storage.schema import metadata

#: Statistics: how often something happened, or how many there were, in a minute or an hour.
statistic = Table(
    "statistic",
    metadata,
    # Seconds: 60 or 3600; and when the minute or hour began, in seconds since the epoch.
    Column("width", Integer, primary_key=True, autoincrement=False),
    Column("begin", BigInteger, primary_key=True, autoincrement=False),
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

#: The topics that were pinged most in an hour; ``hour`` counts hours since the epoch.
busy_topic = Table(
    "busy_topic",
    metadata,
    Column("hour", BigInteger, primary_key=True, autoincrement=False),
    Column("rank", Integer, primary_key=True, autoincrement=False),
    Column("url", Text, nullable=False),
    Column("pings", BigInteger, nullable=False),
)
