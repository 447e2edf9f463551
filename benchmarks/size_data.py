"""Fills a database with very many subscriptions and pings, by statements that make many rows each.

The rows are made by the database itself, since Python would need hours for tens of millions.
"""

from __future__ import annotations

import time

from attrs import frozen
from sqlalchemy import Connection, Index, create_engine, event, text
from sqlalchemy.schema import CreateIndex, DropIndex

from rsscloud_broker.database.columns import to_micros
from rsscloud_broker.storage import migrate
from rsscloud_broker.storage.schema import pending, ping, subscription, topic

#: The tables with many rows.
LARGE = ("topic", "subscription", "ping", "pending_notification")

_DAY = 86_400

_NUMBERS = {
    "sqlite": "(WITH RECURSIVE numbers(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM numbers "
    "WHERE n < {last}) SELECT n FROM numbers)",
    "postgresql": "(SELECT generate_series(CAST({first} AS bigint), {last}) AS n)",
}

_FINGERPRINT = {"sqlite": "randomblob(16)", "postgresql": "decode(md5('ping ' || n), 'hex')"}


@frozen
class Sizes:
    """How many rows a database gets.

    :ivar topics: topics with subscriptions.
    :ivar subscriptions: all subscriptions.
    :ivar popular: subscriptions of the first topic, and of the second; they are among all.
    :ivar expired: subscriptions whose leases have ended; they are among all.
    :ivar pings: pings of the last ten days.
    """

    topics: int
    subscriptions: int
    popular: int
    expired: int
    pings: int

    @classmethod
    def at(cls, scale: float) -> Sizes:
        """The sizes at a scale; at 1 there are 10,000,000 subscriptions."""

        def scaled(number: int) -> int:
            return max(10, round(number * scale))

        return cls(
            topics=scaled(1_000_000),
            subscriptions=scaled(10_000_000),
            popular=scaled(1_000_000),
            expired=scaled(1_000_000),
            pings=scaled(50_000_000),
        )


def topic_url(number: int) -> str:
    """The URL of a topic; the first two are popular."""
    return f"http://127.0.0.1:1/feed/{number}"


def fill(url: str, sizes: Sizes) -> None:
    """Make the tables in an empty database, and fill them.

    :param url: the SQLAlchemy URL of the database.
    """
    migrate(url)
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":

        def connect(connection: object, record: object) -> None:
            for pragma in ("synchronous=OFF", "cache_size=-2000000", "temp_store=MEMORY"):
                connection.execute(f"PRAGMA {pragma}")  # type: ignore[attr-defined] # a driver's

        event.listen(engine, "connect", connect)
    try:
        with engine.begin() as conn:
            _without_indexes(conn, sizes)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            conn.execute(text("ANALYZE" if engine.dialect.name == "sqlite" else "VACUUM ANALYZE"))
    finally:
        engine.dispose()


def _without_indexes(conn: Connection, sizes: Sizes) -> None:
    """Drop indexes, insert, and make the indexes again, which is quicker."""
    dialect = conn.dialect.name
    tables = (topic, subscription, ping, pending)
    indexes = [
        index
        for table in tables
        for index in sorted(table.indexes, key=lambda index: str(index.name))
        if _is_of(index, conn)
    ]
    for index in indexes:
        conn.execute(DropIndex(index))
    now = to_micros(time.time())
    for statement in _statements(dialect, sizes, now):
        conn.execute(text(statement.replace(":", "\\:")))  # no parameters
    for index in indexes:
        conn.execute(CreateIndex(index))
    for table in ("topic", "subscription", "ping"):
        if dialect == "postgresql":
            conn.execute(text(f"SELECT setval('{table}_id_seq', (SELECT max(id) FROM {table}))"))


def _is_of(index: Index, conn: Connection) -> bool:
    only = index._ddl_if
    return only is None or only.dialect == conn.dialect.name


def _statements(dialect: str, sizes: Sizes, now: int) -> list[str]:
    def numbers(first: int, last: int) -> str:
        return _NUMBERS[dialect].format(first=first, last=last)

    # The second half of a day, so that no poll is due during the benchmark.
    planned = f"{now} + ({_DAY} / 2 + n % {_DAY // 2}) * 1000000"
    days = {"ping": 10 * _DAY}
    alive, ended = now + 30 * _DAY * 1_000_000, now - 1_000_000
    lease, false = _DAY * 30, "0" if dialect == "sqlite" else "false"
    callback = (
        "'http://127.' || (n / 65536 % 250 + 1) || '.' || (n / 256 % 256) || '.' || (n % 256)"
        " || ':1/notify/' || n"
    )
    host = "'127.' || (n / 65536 % 250 + 1) || '.' || (n / 256 % 256) || '.' || (n % 256)"
    of_topic = (
        f"CASE WHEN n % 10 = 0 AND n / 10 < {sizes.popular} THEN 1 "
        f"WHEN n % 10 = 1 AND n / 10 < {sizes.popular} THEN 2 "
        f"ELSE 3 + n % ({sizes.topics} - 2) END"
    )
    return [
        "INSERT INTO topic (id, url, digest, size, read_at, changed_at, asked_at, result, "
        "next_poll_at, poll_reason, poll_interval, planned_at, feed) "
        f"SELECT n, 'http://127.0.0.1:1/feed/' || n, {_blob(dialect)}, 20000, {now}, {now}, {now}, "
        f"'200 OK', {planned}, 'polled every hour, by how often it changed lately', 3600000000, "
        f"""{now}, '{{"title":"The weblog of somebody, number ' || n || '"}}' """
        f"FROM {numbers(1, sizes.topics)} AS numbered",
        "INSERT INTO subscription (id, topic_id, protocol, callback_url, host, granted_at, "
        "lease_seconds, expires_at, consecutive_errors, last_error, dropping) "
        f"SELECT n, {of_topic}, 'http-post', {callback}, {host}, {now}, {lease}, "
        f"CASE WHEN n % 10 = 5 AND n / 10 < {sizes.expired} THEN {ended} ELSE {alive} END, "
        f"0, '', {false} "
        f"FROM {numbers(1, sizes.subscriptions)} AS numbered",
        "INSERT INTO ping (id, received_at, name, url, changes_url, rss_url, tags, fingerprint) "
        f"SELECT n, {now} - ({sizes.pings} - n) * {days['ping'] * 1_000_000 // sizes.pings}, "
        "'The weblog of somebody, number ' || n % 1000000, "
        "'http://weblog-' || n % 1000000 || '.example/', '', "
        f"'http://weblog-' || n % 1000000 || '.example/feed', '', {_FINGERPRINT[dialect]} "
        f"FROM {numbers(1, sizes.pings)} AS numbered",
    ]


def _blob(dialect: str) -> str:
    return "zeroblob(32)" if dialect == "sqlite" else "decode(repeat('00', 32), 'hex')"
