"""What the store does with pings.

Each function is one step of a transaction that the caller has begun; run again
after a rollback, it does the same.
"""

from __future__ import annotations

import json
from hashlib import blake2b

import attrs
from sqlalchemy import (
    BigInteger,
    Connection,
    Row,
    Text,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    tuple_,
    update,
)

from rsscloud_broker.model import Ping, PingRecord
from rsscloud_broker.storage.schema import (
    MICROSECONDS,
    ping,
    subscription,
    tally,
    to_micros,
    to_seconds,
    topic,
)

_HOUR = 3600 * MICROSECONDS
_PRUNED = "pruned pings"

# The statements of the busiest path are made once.  Those that name their
# parameters differently from columns do so because SQLAlchemy keeps the names
# of columns for itself.

_INSERT = insert(ping)

_EARLIER = (
    select(ping.c.id)
    .where(
        ping.c.fingerprint == bindparam("alike"),
        ping.c.received_at > bindparam("after"),
        ping.c.received_at < bindparam("until"),
    )
    .limit(1)
)

_ASKED = bindparam("asked", type_=BigInteger)
_MARK_WATCHED = (
    update(topic)
    .where(
        or_(*(topic.c.url == bindparam(name, type_=Text) for name in ("url_1", "url_2", "url_3"))),
        select(subscription.c.id).where(subscription.c.topic_id == topic.c.id).exists(),
    )
    .values(
        check_requested_at=case(
            (topic.c.check_requested_at > _ASKED, topic.c.check_requested_at), else_=_ASKED
        )
    )
    .returning(topic.c.url)
)


def fingerprint(record: Ping) -> bytes:
    """What makes two pings alike: name, URL and feed, in 16 bytes.

    It keeps the index for finding repeats small, and the search short even
    where many different pings name the same page.
    """
    alike = json.dumps((record.name, record.url, record.rss_url))
    return blake2b(alike.encode(), digest_size=16).digest()


def add_ping(conn: Connection, record: Ping, repeat_window: float) -> PingRecord:
    """See ``IStore.add_ping``.  A repeat is given back with the id 0."""
    received_at = to_micros(record.received_at)
    window = to_micros(repeat_window)
    # Ahead as well as back, lest a clock that was set back silence a site.
    repeat = conn.execute(
        _EARLIER,
        {
            "alike": fingerprint(record),
            "after": received_at - window,
            "until": received_at + window,
        },
    ).first()
    stored = record if repeat else insert_ping(conn, record)
    return PingRecord(
        ping=stored, repeat=repeat is not None, watched=_mark_watched(conn, record, received_at)
    )


def insert_ping(conn: Connection, record: Ping) -> Ping:
    """Record a ping; the record with its id."""
    received_at = to_micros(record.received_at)
    key = conn.execute(
        _INSERT,
        {
            "received_at": received_at,
            "name": record.name,
            "url": record.url,
            "changes_url": record.changes_url,
            "rss_url": record.rss_url,
            "tags": json.dumps(record.tags) if record.tags else "",
            "fingerprint": fingerprint(record),
        },
    ).inserted_primary_key
    assert key is not None  # a single insert always has one
    return attrs.evolve(record, id=key[0], received_at=to_seconds(received_at))


def _mark_watched(conn: Connection, record: Ping, asked: int) -> tuple[str, ...]:
    rows = conn.execute(
        _MARK_WATCHED,
        {
            "asked": asked,
            "url_1": record.url,
            # An empty one would ask for the topic "", which cannot be.
            "url_2": record.changes_url or record.url,
            "url_3": record.rss_url or record.url,
        },
    )
    return tuple(sorted(rows.scalars()))


def pings(
    conn: Connection, since: float, until: float, before: Ping | None, limit: int
) -> list[Ping]:
    """See ``IStore.pings``."""
    query = (
        select(ping)
        .where(ping.c.received_at >= to_micros(since), ping.c.received_at < to_micros(until))
        .order_by(ping.c.received_at.desc(), ping.c.id.desc())
        .limit(limit)
    )
    if before is not None:
        position = tuple_(ping.c.received_at, ping.c.id)
        query = query.where(position < (to_micros(before.received_at), before.id))
    return [_ping(row) for row in conn.execute(query)]


def _ping(row: Row[tuple[object, ...]]) -> Ping:
    return Ping(
        name=row.name,
        url=row.url,
        received_at=to_seconds(row.received_at),
        changes_url=row.changes_url,
        rss_url=row.rss_url,
        tags=tuple(json.loads(row.tags)) if row.tags else (),
        id=row.id,
    )


def count_pings(conn: Connection) -> int:
    """See ``IStore.count_pings``."""
    kept = conn.execute(select(func.count()).select_from(ping)).scalar_one()
    pruned = conn.execute(select(tally.c.value).where(tally.c.name == _PRUNED)).scalar()
    return kept + (pruned or 0)


def ping_hours(conn: Connection, since: float, until: float) -> dict[int, int]:
    """See ``IStore.ping_hours``."""
    # Written into the statement, as PostgreSQL does not see that two
    # parameters are the same number.
    hour = ping.c.received_at // literal(_HOUR, BigInteger, literal_execute=True)
    query = (
        select(hour, func.count())
        .where(ping.c.received_at >= to_micros(since), ping.c.received_at < to_micros(until))
        .group_by(hour)
    )
    return dict(conn.execute(query).tuples().all())


def prune_pings(conn: Connection, before: float) -> int:
    """See ``IStore.prune_pings``."""
    pruned = conn.execute(delete(ping).where(ping.c.received_at < to_micros(before))).rowcount
    counted = conn.execute(
        update(tally).where(tally.c.name == _PRUNED).values(value=tally.c.value + pruned)
    )
    if not counted.rowcount:
        conn.execute(insert(tally).values(name=_PRUNED, value=pruned))
    return pruned
