"""Stores how far pings were passed on to each target, and how far followed lists were read."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Integer,
    Row,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)

from rsscloud_broker.database.columns import (
    columns_of,
    put_rows,
    record_of,
    required,
    to_micros,
    to_seconds,
)
from rsscloud_broker.interfaces import Position
from rsscloud_broker.model import Validators
from rsscloud_broker.model.shared import FollowedList, RelayProgress, WaitingPing
from rsscloud_broker.storage.pings import last_ping_id
from rsscloud_broker.storage.schema import metadata

#: How far pings were passed on to a target of the relay.
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

#: How far the change list of another broker was read.
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

#: How far a feed of pings was read.
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


def begin_relay(
    conn: Connection, names: Collection[str], now: float, forget_before: float
) -> list[RelayProgress]:
    """Read how far pings were passed on to each target, in the order of ``names``.

    An unknown target is stored, and gets the pings that are recorded from now on.

    :param forget_before: targets that are not named are forgotten if their progress was last
        recorded before this time.
    """
    _delete_unused(conn, relay_target, relay_target.c.name, names, forget_before)
    known = {row.name: row for row in conn.execute(select(relay_target))}
    last = last_ping_id(conn) if set(names) - known.keys() else 0
    return [
        _progress(known[name]) if name in known else _insert_new_target(conn, name, last, now)
        for name in names
    ]


def _insert_new_target(conn: Connection, name: str, last: int, now: float) -> RelayProgress:
    """Store that a new target gets the pings behind the last one, and return its progress."""
    conn.execute(
        insert(relay_target).values(name=name, ping_id=last, failures=0, updated_at=to_micros(now))
    )
    return RelayProgress(name, last)


def _progress(row: Row[Any]) -> RelayProgress:
    """How far pings were passed on to a target, by its row."""
    waiting = tuple(
        WaitingPing(ping_id, attempts, to_seconds(retry_at))
        for ping_id, attempts, retry_at in json.loads(row.waiting or "[]")
    )
    return record_of(RelayProgress, row, waiting=waiting)


def record_relay(conn: Connection, progress: RelayProgress, now: float) -> None:
    """Record how far pings were passed on to a target.  It never goes back."""
    others = {"updated_at": to_micros(now), "waiting": _as_text(progress.waiting)}
    conn.execute(
        update(relay_target)
        .where(relay_target.c.name == progress.name, relay_target.c.ping_id <= progress.ping_id)
        .values(columns_of(progress, relay_target, **others))
    )


def _as_text(waiting: Sequence[WaitingPing]) -> str:
    """The pings that wait, as they are stored; empty if none waits."""
    rows = [[each.ping_id, each.attempts, to_micros(each.retry_at)] for each in waiting]
    return json.dumps(rows, separators=(",", ":")) if rows else ""


def followed_lists(
    conn: Connection, urls: Collection[str], forget_before: float
) -> list[FollowedList]:
    """How far each list was read, by URL; forget others, last read before ``forget_before``."""
    _delete_unused(conn, followed_list, followed_list.c.url, urls, forget_before)
    query = select(followed_list).where(followed_list.c.url.in_(urls))
    known = {row.url: row for row in conn.execute(query)}
    return [_followed(known[url]) if url in known else FollowedList(url) for url in urls]


def _followed(row: Row[Any]) -> FollowedList:
    """How far a list was read, by its row."""
    return record_of(FollowedList, row, validators=Validators(row.etag, row.last_modified))


def record_followed(conn: Connection, followed: FollowedList, now: float) -> None:
    """Record how far a followed list was read."""
    validators = columns_of(followed.validators, followed_list, updated_at=to_micros(now))
    put_rows(conn, followed_list, [columns_of(followed, followed_list, **validators)])


def followed_feed_position(conn: Connection, url: str) -> Position | None:
    """How far a feed of pings was read; None if it was never read."""
    row = conn.execute(select(followed_feed).where(followed_feed.c.url == url)).first()
    return None if row is None else Position(row.entry, row.entry_updated, row.document)


def record_followed_feed(conn: Connection, url: str, position: Position, now: float) -> None:
    """Record how far a feed of pings was read."""
    others = {"url": url, "entry_updated": position.updated, "updated_at": to_micros(now)}
    put_rows(conn, followed_feed, [columns_of(position, followed_feed, **others)])


def forget_followed_feeds(conn: Connection, urls: Collection[str], forget_before: float) -> None:
    """Forget feeds that are not named, if they were last read before ``forget_before``."""
    _delete_unused(conn, followed_feed, followed_feed.c.url, urls, forget_before)


def _delete_unused(
    conn: Connection, table: Table, key: Any, used: Collection[str], forget_before: float
) -> None:
    """Delete the rows of what the configuration does not name any more, when they are old."""
    conn.execute(
        delete(table).where(key.not_in(used), table.c.updated_at < to_micros(forget_before))
    )
