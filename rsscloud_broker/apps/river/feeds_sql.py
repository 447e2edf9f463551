"""Stores feeds and who follows them.

Each function runs in a transaction that the caller has begun, and may run again after a rollback.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from attrs import asdict, fields
from sqlalchemy import Connection, Row, delete, exists, func, insert, select, union, update

from rsscloud_broker.apps.river.model import FeedRecord, Offer, new_keys
from rsscloud_broker.apps.river.schema import feed, follow, reader
from rsscloud_broker.database.columns import (
    insert_missing,
    record_of,
    to_micros,
    to_seconds,
    with_micros,
)

_decode_offers: Final = msgspec.json.Decoder(tuple[Offer, ...]).decode
_COLUMNS: Final = [feed.c[name.name] for name in fields(FeedRecord)]


def feed_of(conn: Connection, feed_id: int) -> FeedRecord | None:
    """A feed by its id."""
    return _select_feed(conn, feed.c.id == feed_id)


def feed_by_key(conn: Connection, key: str) -> FeedRecord | None:
    """A feed by the key in the paths of its callbacks."""
    return _select_feed(conn, feed.c.key == key)


def feed_by_url(conn: Connection, url: str) -> FeedRecord | None:
    """A feed by its URL in normal form."""
    return _select_feed(conn, feed.c.url == url)


def add_feed(conn: Connection, url: str, now: float, values: Mapping[str, Any]) -> FeedRecord:
    """Store a feed, which becomes due at once; or return the one that is stored with this URL.

    :param values: what is known of it, as for ``change_feed``.
    """
    found = feed_by_url(conn, url)
    if found is None:
        first = {"url": url, **new_keys(), "read_due_at": to_micros(now)}
        conn.execute(insert(feed).values(first | _columns(values)))
        found = feed_by_url(conn, url)
        assert found is not None
    return found


def change_feed(conn: Connection, feed_id: int, values: Mapping[str, Any]) -> FeedRecord | None:
    """Change a feed.

    :param values: by the names of ``FeedRecord``; times in seconds, offers as ``Offer``.
    :returns: the feed as it is now; None if nobody follows it any more.
    """
    conn.execute(update(feed).where(feed.c.id == feed_id).values(**_columns(values)))
    return feed_of(conn, feed_id)


def move_feed(
    conn: Connection, feed_id: int, url: str, values: Mapping[str, Any]
) -> FeedRecord | None:
    """Change a feed, and give it another URL.  If another feed has that URL, everybody who follows
    this one follows that one instead.

    :returns: the feed with that URL.
    """
    other = feed_by_url(conn, url)
    if other is None or other.id == feed_id:
        return change_feed(conn, feed_id, {**values, "url": url})
    also = select(follow.c.account_id).where(follow.c.feed_id == other.id)
    of_feed = (follow.c.feed_id == feed_id, follow.c.account_id.not_in(also))
    conn.execute(update(follow).where(*of_feed).values(feed_id=other.id))
    conn.execute(delete(feed).where(feed.c.id == feed_id))
    return other


def due_feeds(conn: Connection, now: float, furthest: float, limit: int) -> list[FeedRecord]:
    """Feeds for which something is to be done now: to read them, or to subscribe at a hub or cloud.

    :param furthest: nothing is planned later than this; feeds that seem so are due, since the clock
        was set back.
    """
    now, furthest = to_micros(now), to_micros(furthest)
    # Each by its own index: with one OR, SQLite reads through all feeds in the wanted order.
    due = union(
        *(
            select(select(feed.c.id).where(is_due).order_by(column).limit(limit).subquery())
            for column in (feed.c.read_due_at, feed.c.push_due_at)
            for is_due in (column <= now, column > furthest)
        )
    )
    found = select(*_COLUMNS).where(feed.c.id.in_(due)).order_by(feed.c.read_due_at).limit(limit)
    return [_record_of_row(row) for row in conn.execute(found)]


def abandoned_feeds(conn: Connection, limit: int) -> list[FeedRecord]:
    """Feeds that nobody follows, for instance because an account was deleted."""
    followed = exists().where(follow.c.feed_id == feed.c.id)
    rows = conn.execute(select(*_COLUMNS).where(~followed).order_by(feed.c.id).limit(limit))
    return [_record_of_row(row) for row in rows]


def remove_feed(conn: Connection, feed_id: int) -> bool:
    """Delete a feed with its items, unless somebody follows it.  Returns whether it was deleted."""
    followed = exists().where(follow.c.feed_id == feed_id)
    return conn.execute(delete(feed).where(feed.c.id == feed_id, ~followed)).rowcount > 0


def follow_feed(
    conn: Connection, account_id: int, feed_id: int, now: float, most: int
) -> bool | None:
    """Have an account follow a feed.

    :returns: whether it did not follow it before; None if it follows as many as it may.
    """
    mine = follow.c.account_id == account_id
    if conn.execute(select(follow.c.feed_id).where(mine, follow.c.feed_id == feed_id)).first():
        return False
    if number_of_feeds(conn, account_id) >= most:
        return None
    values = {"account_id": account_id, "feed_id": feed_id, "added_at": to_micros(now)}
    conn.execute(insert(follow).values(values | {"is_muted": False}))
    return True


def add_and_follow(
    conn: Connection, account_id: int, feeds: Mapping[str, str], now: float, most: int
) -> list[bool | None]:
    """Have an account follow several feeds, which are read later.

    :param feeds: the titles of the feeds by their URLs.
    :param most: how many feeds the account may follow.
    :returns: of each what ``follow_feed`` returns.
    """
    results: list[bool | None] = []
    for url, title in feeds.items():
        # An account that is full gets no new feed, since nobody would follow it.
        if number_of_feeds(conn, account_id) >= most and feed_by_url(conn, url) is None:
            results.append(None)
            continue
        added = add_feed(conn, url, now, {"title": title})
        results.append(follow_feed(conn, account_id, added.id, now, most))
    return results


def number_of_feeds(conn: Connection, account_id: int) -> int:
    """How many feeds an account follows."""
    mine = follow.c.account_id == account_id
    return conn.execute(select(func.count()).select_from(follow).where(mine)).scalar_one()


def unfollow_feed(conn: Connection, account_id: int, feed_id: int) -> bool:
    """Have an account follow a feed no more.  Returns whether it did."""
    mine = (follow.c.account_id == account_id, follow.c.feed_id == feed_id)
    return conn.execute(delete(follow).where(*mine)).rowcount > 0


def mute_feed(conn: Connection, account_id: int, feed_id: int, is_muted: bool) -> bool:
    """Have the river of an account leave the items of a feed out, or show them again.

    :returns: whether the account follows the feed.
    """
    mine = (follow.c.account_id == account_id, follow.c.feed_id == feed_id)
    return conn.execute(update(follow).where(*mine).values(is_muted=is_muted)).rowcount > 0


def is_followed(conn: Connection, feed_id: int) -> bool:
    """Whether anybody follows a feed."""
    found = select(follow.c.feed_id).where(follow.c.feed_id == feed_id).limit(1)
    return conn.execute(found).first() is not None


def followed_feeds(conn: Connection, account_id: int) -> list[tuple[FeedRecord, float, bool]]:
    """The feeds that an account follows, each with when that began and whether it is muted."""
    more = (follow.c.added_at, follow.c.is_muted)
    wanted = select(*_COLUMNS, *more).join(follow, follow.c.feed_id == feed.c.id)
    rows: Iterable[Row[Any]] = conn.execute(wanted.where(follow.c.account_id == account_id))
    return [(_record_of_row(row), to_seconds(row.added_at), row.is_muted) for row in rows]


def mark_seen(conn: Connection, account_id: int, item_id: int) -> None:
    """Store the newest item that an account has seen, unless it has seen a newer one."""
    _make_reader(conn, account_id)
    mine = (reader.c.account_id == account_id, reader.c.seen < item_id)
    conn.execute(update(reader).where(*mine).values(seen=item_id))


def last_seen(conn: Connection, account_id: int) -> int:
    """The newest item that an account has seen; 0 for none."""
    mine = select(reader.c.seen).where(reader.c.account_id == account_id)
    return conn.execute(mine).scalar() or 0


def stop_at(conn: Connection, account_id: int, item_id: int | None) -> None:
    """Store where somebody stopped: above an item; None to forget it."""
    _make_reader(conn, account_id)
    mine = reader.c.account_id == account_id
    conn.execute(update(reader).where(mine).values(stopped_at=item_id))


def stopped_at(conn: Connection, account_id: int) -> int | None:
    """The newest item that is below the line where somebody stopped; None without such a line."""
    mine = select(reader.c.stopped_at).where(reader.c.account_id == account_id)
    return conn.execute(mine).scalar()


def set_public(conn: Connection, account_id: int, name: str, public: bool) -> None:
    """Store whether everybody may read the river of an account.

    :param name: the name of the account.
    """
    _make_reader(conn, account_id)
    mine = reader.c.account_id == account_id
    conn.execute(update(reader).where(mine).values(is_public=public, name=name))


def public_account(conn: Connection, name: str) -> int | None:
    """The id of the account with a name, if everybody may read its river; else None."""
    wanted = (reader.c.name == name, reader.c.is_public)
    return conn.execute(select(reader.c.account_id).where(*wanted)).scalar()


def is_public(conn: Connection, account_id: int) -> bool:
    """Whether everybody may read the river of an account."""
    mine = select(reader.c.is_public).where(reader.c.account_id == account_id)
    return bool(conn.execute(mine).scalar())


def _make_reader(conn: Connection, account_id: int) -> None:
    """Store a row for an account in the table of readers, if it has none."""
    insert_missing(conn, reader, [{"account_id": account_id}], reader.c.account_id)


def _select_feed(conn: Connection, condition: Any) -> FeedRecord | None:
    row = conn.execute(select(*_COLUMNS).where(condition)).first()
    return None if row is None else _record_of_row(row)


def _record_of_row(row: Row[Any]) -> FeedRecord:
    """The feed in a row: times become seconds, and JSON becomes offers."""
    return record_of(FeedRecord, row, offers=_decode_offers(row.offers))


def _columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a feed as its columns have them: times in microseconds, offers as JSON."""
    columns = with_micros(values)
    if "offers" in columns:
        columns["offers"] = json.dumps([asdict(offer) for offer in columns["offers"]])
    return columns
