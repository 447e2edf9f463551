"""The items of the test feed, and how they are stored.

An item belongs to a slot of the wall clock, and is identified by a guid that never changes.  The
items are in the order in which they were made.  That is not always the order of their slots: if
somebody sets the clock back, the same times of day come once more, with new items.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen
from sqlalchemy import BigInteger, Column, Connection, Table, Text, delete, insert, select

from rsscloud_broker.interfaces import AppTables
from rsscloud_broker.tables import Key, new_metadata

metadata = new_metadata()

item_table = Table(
    "test_feed_item",
    metadata,
    Column("id", Key, primary_key=True),
    # Whole seconds since the epoch.
    Column("slot", BigInteger, nullable=False),
    Column("guid", Text, nullable=False),
    sqlite_autoincrement=True,
)

TABLES: Final = AppTables(metadata, "rsscloud_broker.apps.test_feed:migrations", "0001")


@frozen
class Item:
    """An item of the test feed.

    :ivar slot: when it was due, in whole seconds since the epoch.
    :ivar guid: what identifies it, for ever.
    """

    slot: int
    guid: str


def newest_items(conn: Connection, limit: int) -> tuple[Item, ...]:
    """The items that were made last, the newest first."""
    newest = select(item_table).order_by(item_table.c.id.desc()).limit(limit)
    return tuple(Item(row.slot, row.guid) for row in conn.execute(newest))


def add_item(conn: Connection, item: Item, limit: int) -> None:
    """Store a new item, and delete all but the ``limit`` newest."""
    conn.execute(insert(item_table).values(slot=item.slot, guid=item.guid))
    kept = select(item_table.c.id).order_by(item_table.c.id.desc()).limit(limit)
    conn.execute(delete(item_table).where(item_table.c.id.not_in(kept.scalar_subquery())))
