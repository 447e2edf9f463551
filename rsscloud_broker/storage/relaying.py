"""Stores how far pings were passed on to each target, and how far followed lists were read."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Table, delete, insert, select, update

from rsscloud_broker.database.columns import (
    to_micros,
    to_micros_or_none,
    to_seconds,
    to_seconds_or_none,
)
from rsscloud_broker.interfaces import Position
from rsscloud_broker.model import Validators
from rsscloud_broker.model.shared import FollowedList, RelayProgress, WaitingPing
from rsscloud_broker.storage.pings import last_ping_id
from rsscloud_broker.storage.relay_schema import followed_feed, followed_list, relay_target


def begin_relay(
    conn: Connection, names: Collection[str], now: float, forget_before: float
) -> list[RelayProgress]:
    """How far pings were passed on to each target, in this order.

    A target that is unknown gets the pings that are recorded from now on.

    :param forget_before: targets that are not named are forgotten if their progress was last
        recorded before this time.
    """
    _forget(conn, relay_target, relay_target.c.name, names, forget_before)
    known = {row.name: row for row in conn.execute(select(relay_target))}
    last = last_ping_id(conn) if set(names) - known.keys() else 0
    return [
        _progress(known[name]) if name in known else _begun(conn, name, last, now) for name in names
    ]


def _begun(conn: Connection, name: str, last: int, now: float) -> RelayProgress:
    conn.execute(
        insert(relay_target).values(name=name, ping_id=last, failures=0, updated_at=to_micros(now))
    )
    return RelayProgress(name, last)


def _progress(row: Row[Any]) -> RelayProgress:
    waiting = tuple(
        WaitingPing(ping_id, attempts, to_seconds(retry_at))
        for ping_id, attempts, retry_at in json.loads(row.waiting or "[]")
    )
    retry_at = to_seconds_or_none(row.retry_at)
    return RelayProgress(row.name, row.ping_id, row.failures, retry_at, waiting)


def record_relay(conn: Connection, progress: RelayProgress, now: float) -> None:
    """Record how far pings were passed on to a target.  It never goes back."""
    conn.execute(
        update(relay_target)
        .where(relay_target.c.name == progress.name, relay_target.c.ping_id <= progress.ping_id)
        .values(
            ping_id=progress.ping_id,
            failures=progress.failures,
            retry_at=to_micros_or_none(progress.retry_at),
            updated_at=to_micros(now),
            waiting=_as_text(progress.waiting),
        )
    )


def _as_text(waiting: Sequence[WaitingPing]) -> str:
    rows = [[each.ping_id, each.attempts, to_micros(each.retry_at)] for each in waiting]
    return json.dumps(rows, separators=(",", ":")) if rows else ""


def followed_lists(
    conn: Connection, urls: Collection[str], forget_before: float
) -> list[FollowedList]:
    """See ``Store.followed_lists``."""
    _forget(conn, followed_list, followed_list.c.url, urls, forget_before)
    query = select(followed_list).where(followed_list.c.url.in_(urls))
    known = {row.url: row for row in conn.execute(query)}
    return [_followed(known[url]) if url in known else FollowedList(url) for url in urls]


def _followed(row: Row[Any]) -> FollowedList:
    return FollowedList(
        row.url,
        Validators(row.etag, row.last_modified),
        to_seconds_or_none(row.complete_until),
        row.missing_from,
        row.missing_to,
        row.failures,
        to_seconds_or_none(row.retry_at),
    )


def record_followed(conn: Connection, followed: FollowedList, now: float) -> None:
    """See ``Store.record_followed``."""
    values = {
        "etag": followed.validators.etag,
        "last_modified": followed.validators.last_modified,
        "complete_until": to_micros_or_none(followed.complete_until),
        "missing_from": followed.missing_from,
        "missing_to": followed.missing_to,
        "failures": followed.failures,
        "retry_at": to_micros_or_none(followed.retry_at),
        "updated_at": to_micros(now),
    }
    changed = conn.execute(
        update(followed_list).where(followed_list.c.url == followed.url).values(values)
    )
    if not changed.rowcount:
        conn.execute(insert(followed_list).values(url=followed.url, **values))


def followed_feed_position(conn: Connection, url: str) -> Position | None:
    """See ``Store.followed_feed_position``."""
    row = conn.execute(select(followed_feed).where(followed_feed.c.url == url)).first()
    return None if row is None else Position(row.entry, row.entry_updated, row.document)


def record_followed_feed(conn: Connection, url: str, position: Position, now: float) -> None:
    """See ``Store.record_followed_feed``."""
    values = {
        "entry": position.entry,
        "entry_updated": position.updated,
        "document": position.document,
        "updated_at": to_micros(now),
    }
    changed = conn.execute(update(followed_feed).where(followed_feed.c.url == url).values(values))
    if not changed.rowcount:
        conn.execute(insert(followed_feed).values(url=url, **values))


def forget_followed_feeds(conn: Connection, urls: Collection[str], forget_before: float) -> None:
    """See ``Store.forget_followed_feeds``."""
    _forget(conn, followed_feed, followed_feed.c.url, urls, forget_before)


def _forget(
    conn: Connection, table: Table, key: Any, used: Collection[str], forget_before: float
) -> None:
    """Delete the rows of what the configuration does not name any more, when they are old."""
    conn.execute(
        delete(table).where(key.not_in(used), table.c.updated_at < to_micros(forget_before))
    )
