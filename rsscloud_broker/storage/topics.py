"""What the store does with topics: readings of them, and checks asked for.

Each function is one step of a transaction that the caller has begun; run again
after a rollback, it does the same.
"""

from __future__ import annotations

import attrs
from sqlalchemy import Connection, Row, case, insert, select, update

from rsscloud_broker.model import Ping, Reading, ReadingRecord, Topic
from rsscloud_broker.storage.pings import insert_pings
from rsscloud_broker.storage.schema import (
    fanout,
    subscription,
    to_micros,
    to_seconds_or_none,
    topic,
)


def get_topic(conn: Connection, url: str) -> Topic | None:
    """See ``IStore.topic``."""
    row = conn.execute(select(topic).where(topic.c.url == url)).first()
    return None if row is None else _topic(row)


def _topic(row: Row[tuple[object, ...]]) -> Topic:
    return Topic(
        url=row.url,
        digest=row.digest,
        size=row.size,
        read_at=to_seconds_or_none(row.read_at),
        changed_at=to_seconds_or_none(row.changed_at),
    )


def topic_key(conn: Connection, url: str) -> int:
    """The id of a topic, which is made if it is not known yet."""
    key = conn.execute(select(topic.c.id).where(topic.c.url == url)).scalar()
    if key is None:
        made = conn.execute(insert(topic).values(url=url)).inserted_primary_key
        assert made is not None  # a single insert always has one
        key = made[0]
    return int(key)


def record_reading(conn: Connection, reading: Reading, ping: Ping | None) -> ReadingRecord:
    """See ``IStore.record_reading``."""
    key = topic_key(conn, reading.url)
    row = conn.execute(select(topic).where(topic.c.id == key)).one()
    read_at = to_micros(reading.started_at)
    changed = (row.digest, row.size) != (reading.digest, reading.size)
    values: dict[str, object] = {"read_at": read_at}
    if changed:
        values |= {"digest": reading.digest, "size": reading.size, "changed_at": read_at}
    if row.check_requested_at is not None and row.check_requested_at <= read_at:
        values["check_requested_at"] = None
    conn.execute(update(topic).where(topic.c.id == key).values(values))
    recorded = None
    if changed:
        _begin_fanout(conn, key, read_at)
        (recorded,) = (None,) if ping is None else insert_pings(conn, [ping])
    now_known = attrs.evolve(
        _topic(row),
        digest=reading.digest,
        size=reading.size,
        read_at=to_seconds_or_none(read_at),
        changed_at=to_seconds_or_none(read_at if changed else row.changed_at),
    )
    return ReadingRecord(topic=now_known, changed=changed, ping=recorded)


def _begin_fanout(conn: Connection, key: int, begun_at: int) -> None:
    anybody = select(subscription.c.id).where(subscription.c.topic_id == key).limit(1)
    if conn.execute(anybody).first() is not None:
        conn.execute(insert(fanout).values(topic_id=key, cursor=0, begun_at=begun_at))


def checks_due(conn: Connection, limit: int) -> list[str]:
    """See ``IStore.checks_due``."""
    query = (
        select(topic.c.url)
        .where(topic.c.check_requested_at.is_not(None))
        .order_by(topic.c.check_requested_at, topic.c.id)
        .limit(limit)
    )
    return list(conn.execute(query).scalars())


def request_check(conn: Connection, url: str, at: float) -> bool:
    """See ``IStore.request_check``."""
    somebody = select(subscription.c.id).where(subscription.c.topic_id == topic.c.id).exists()
    asked = to_micros(at)
    earlier = topic.c.check_requested_at
    marked = conn.execute(
        update(topic)
        .where(topic.c.url == url, somebody)
        .values(check_requested_at=case((earlier > asked, earlier), else_=asked))
    )
    return marked.rowcount > 0


def drop_check(conn: Connection, url: str, asked_until: float) -> None:
    """See ``IStore.drop_check``."""
    conn.execute(
        update(topic)
        .where(topic.c.url == url, topic.c.check_requested_at <= to_micros(asked_until))
        .values(check_requested_at=None)
    )
