"""Stores items.

Each function runs in a transaction that the caller has begun, and may run again after a rollback.

Items that are in the present document of their feed are never deleted, however old: they would be
taken for new ones when the feed changes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec
from attrs import asdict, frozen
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from rsscloud_broker.apps.river.feeds_sql import change_feed, feed_of
from rsscloud_broker.apps.river.model import (
    Arrival,
    FeedRecord,
    Item,
    ItemEnclosure,
    ReadDocument,
    SubItem,
    Way,
)
from rsscloud_broker.apps.river.schema import feed, follow, item
from rsscloud_broker.database.columns import columns_of, record_of, to_micros
from rsscloud_broker.database.visible_ids import announce, visible_ids

#: How many items of each feed are read and kept: feeds rarely have more, and each costs a row.
ITEMS_PER_FEED: Final = 200


@frozen
class StoredItems:
    """What was stored of a document.

    :ivar feed: the feed as it is now.
    :ivar new: how many items are new.
    """

    feed: FeedRecord
    new: int


def store_document(
    conn: Connection,
    feed_id: int,
    document: ReadDocument,
    way: Way,
    whole: bool,
    now: float,
    seconds: float,
    values: Mapping[str, Any],
) -> StoredItems | None:
    """Store the items of a document: new ones are added, edited ones replaced.

    :param way: how the document reached the river.
    :param whole: whether it is the feed as its server sends it.  Hubs may push new items only.
    :param seconds: for how long items are kept that are not in the feed any more.
    :param values: what else has changed of the feed; see ``change_feed``.
    :returns: None if nobody follows the feed any more.
    """
    before = feed_of(conn, feed_id)
    if before is None:
        return None
    # Whole documents are counted.  Items of the present one get its number, and all others have
    # a smaller one: these may be deleted.
    turn = before.turn + whole
    entries = document.entries[:ITEMS_PER_FEED]
    # Oldest first, so that newer items get greater ids.  What is only pushed is not known to be
    # in the feed, and may be deleted.
    last = turn if whole else turn - 1
    rows = [_columns_of(feed_id, entry, way, last, now) for entry in reversed(entries)]
    known = _find_known(conn, feed_id, [row["guid_digest"] for row in rows])
    fresh = [row for row in rows if row["guid_digest"] not in known]
    if before.turn and len(entries) == ITEMS_PER_FEED:
        fresh = _without_older(fresh, [row for row in rows if row["guid_digest"] in known])
    if fresh:
        announce(conn, "river_item")
        conn.execute(insert(item), fresh)
    for row in rows:
        number, digest = known.get(row["guid_digest"], (0, row["digest"]))
        if digest != row["digest"]:
            edited = {name: row[name] for name in _EDITED}
            conn.execute(update(item).where(item.c.id == number).values(edited))
    if whole:
        same = [number for number, _ in known.values()]
        conn.execute(update(item).where(item.c.id.in_(same)).values(turn=turn))
    _remove_old(conn, feed_id, turn, now - seconds)
    changed = change_feed(
        conn, feed_id, {"turn": turn, **values, **_changed_counters(before, len(fresh), way, now)}
    )
    assert changed is not None
    return StoredItems(changed, len(fresh))


def _without_older(
    fresh: Sequence[dict[str, Any]], known: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The new items of a document, without those that are older than all that are known.

    In a document with more items than are kept, these had no place before, and get one if the
    author removes a newer item.
    """
    dates = [row["published_at"] for row in known if row["published_at"] is not None]
    oldest = min(dates, default=None)
    return [
        row
        for row in fresh
        if oldest is None or row["published_at"] is None or row["published_at"] >= oldest
    ]


#: The columns that are replaced when the author edits an item.
_EDITED = ("digest", "title", "text_html", "link", "more", "published_at")


def _changed_counters(before: FeedRecord, new: int, way: Way, now: float) -> dict[str, int]:
    """The counters of a feed that change.  Items in the first document are not counted."""
    if way == "pushed":
        return {"missed": 0, "pushed": before.pushed + (new if before.turn else 0)}
    if new and before.turn and before.is_pushed(now):
        return {"missed": before.missed + 1, "found_by_poll": before.found_by_poll + new}
    return {}


def _find_known(
    conn: Connection, feed_id: int, digests: Sequence[bytes]
) -> dict[bytes, tuple[int, bytes]]:
    """The ids and digests of the items that are stored already, by the digests of their guids."""
    wanted = (item.c.feed_id == feed_id, item.c.guid_digest.in_(digests))
    rows = conn.execute(select(item.c.guid_digest, item.c.id, item.c.digest).where(*wanted))
    return {bytes(row.guid_digest): (row.id, bytes(row.digest)) for row in rows}


def _remove_old(conn: Connection, feed_id: int, turn: int, before: float) -> None:
    """Delete items that are no longer in the feed, and are too many or arrived before a time."""
    newest = select(item.c.id).where(item.c.feed_id == feed_id).order_by(item.c.id.desc())
    surplus = conn.execute(newest.offset(ITEMS_PER_FEED).limit(1)).scalar() or 0
    old = or_(item.c.id <= surplus, item.c.arrived_at < to_micros(before))
    conn.execute(delete(item).where(item.c.feed_id == feed_id, item.c.turn < turn, old))


def items_before(conn: Connection, account_id: int, before: int | None, limit: int) -> list[Item]:
    """The newest items of the feeds that an account follows and has not muted, newest first.

    :param before: only items with a smaller id; None at first.
    """
    edge = _LAST if before is None else before
    rows = conn.execute(_next_items(account_id, edge, limit, forwards=False))
    return list(map(_item_of_row, rows))


def items_after(conn: Connection, account_id: int, after: int, limit: int) -> list[Item]:
    """The oldest items with a greater id, oldest first."""
    rows = conn.execute(_next_items(account_id, after, limit, forwards=True))
    return list(map(_item_of_row, rows))


#: No item has an id as large as this.
_LAST: Final = 2**63 - 1


def _next_items(account_id: int, edge: int, limit: int, *, forwards: bool) -> Select[Any]:
    """Selects the next items after or before an id, of all feeds that an account follows.

    They are found by the index of feeds and ids alone, however a database plans: in each feed, the
    first id tells which feeds can have any of these items; and ``limit`` ids of such a feed are
    enough.  So it does not matter how many items there are.
    """

    def in_order(keys: Select[Any], key: ColumnElement[int], most: int) -> Select[Any]:
        return keys.order_by(key.asc() if forwards else key.desc()).limit(most)

    def id_at(place: int, feed_id: ColumnElement[int]) -> ColumnElement[int]:
        """The id of an item of a feed, by its place behind the edge; the last id if none."""
        one = item.alias()
        key = one.c.id
        behind = key > edge if forwards else key < edge
        keys = select(key).where(one.c.feed_id == feed_id, behind)
        found = in_order(keys, key, 1).offset(place).scalar_subquery()
        return func.coalesce(found, _LAST if forwards else 0)

    first = id_at(0, follow.c.feed_id).label("first")
    is_shown = (follow.c.account_id == account_id, ~follow.c.is_muted)
    mine = select(follow.c.feed_id, first).where(*is_shown)
    feeds = in_order(mine, first, limit).subquery()
    last = id_at(limit - 1, feeds.c.feed_id)
    one = item.alias()
    key = one.c.id
    near = (key > edge, key <= last) if forwards else (key < edge, key >= last)
    keys = select(key).join_from(feeds, one, and_(one.c.feed_id == feeds.c.feed_id, *near))
    wanted = select(item).where(item.c.id.in_(in_order(keys, key, limit)))
    return in_order(wanted, item.c.id, limit)


def arrivals(
    conn: Connection, after: int, until: int, limit: int, account_id: int | None
) -> list[Arrival]:
    """The oldest items with a greater id than the first, and up to the second one.

    :param account_id: only items of the feeds that an account follows; None for all.
    """
    wanted = select(item).where(item.c.id > after, item.c.id <= until).order_by(item.c.id)
    if account_id is not None:
        wanted = _next_items(account_id, after, limit, forwards=True)
    rows = conn.execute(wanted.limit(limit))
    found = [each for each in map(_item_of_row, rows) if each.id <= until]
    feeds = {each.feed_id for each in found}
    titles = {
        row.id: (row.title or row.url, row.link)
        for row in conn.execute(select(feed).where(feed.c.id.in_(feeds)))
    }
    accounts = defaultdict(set)
    is_shown = (follow.c.feed_id.in_(feeds), ~follow.c.is_muted)
    for row in conn.execute(select(follow).where(*is_shown)):
        accounts[row.feed_id].add(row.account_id)
    followers = {key: frozenset(some) for key, some in accounts.items()}
    return [
        # A feed that was removed a moment ago has no title any more, and no followers.
        Arrival(each, *titles.get(each.feed_id, ("", "")), followers.get(each.feed_id, frozenset()))
        for each in found
    ]


def newest_id(conn: Connection) -> int:
    """The id of the newest item before which no other can appear; 0 if there is none."""
    until = visible_ids(conn, "river_item")
    newest = conn.execute(select(func.max(item.c.id))).scalar() or 0
    return newest if until is None else min(newest, until)


@frozen
class _More:
    """What the column ``more`` has, as JSON."""

    enclosures: tuple[ItemEnclosure, ...]
    items: tuple[SubItem, ...]


_decode_more: Final = msgspec.json.Decoder(_More).decode


def _columns_of(feed_id: int, entry: Item, way: Way, turn: int, now: float) -> dict[str, Any]:
    """The columns of an item as it is in a document.  ``digest`` changes if the item is edited."""
    more = json.dumps(asdict(_More(entry.enclosures, entry.items)))
    edited = (entry.title, entry.text_html, entry.link, more, entry.published_at)
    return columns_of(
        entry,
        item,
        feed_id=feed_id,
        guid_digest=sha256(entry.guid.encode()).digest(),
        digest=sha256(repr(edited).encode()).digest(),
        more=more,
        arrived_at=to_micros(now),
        how=way,
        turn=turn,
    )


def _item_of_row(row: Row[Any]) -> Item:
    """The item in a row: times become seconds, and the JSON in ``more`` enclosures and items."""
    more = _decode_more(row.more)
    return record_of(Item, row, enclosures=more.enclosures, items=more.items)
