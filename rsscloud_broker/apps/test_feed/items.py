"""The items of the test feed, and how they are stored.

An item belongs to a slot of the wall clock, and is identified by a guid that never changes.  The
items are in the order in which they were made.  That is not always the order of their slots: if
somebody sets the clock back, the same times of day come once more, with new items.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen
from sqlalchemy import BigInteger, Column, Connection, Table, Text, delete, func, insert, select

from rsscloud_broker.database.columns import FIRST_RELEASE, Key, new_metadata
from rsscloud_broker.interfaces import AppTables

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

TABLES: Final = AppTables(metadata, FIRST_RELEASE, "0001")


@frozen
class TestItem:
    """An item of the test feed.

    :ivar slot: when it was due, in whole seconds since the epoch.
    :ivar guid: what identifies it, forever.
    """

    slot: int
    guid: str


#: How much later the slot of a row is than its id.  The row for which that is largest stays: after
#: the clock was set back, Last-Modified goes on from there, a second for each item.
_LEAD: Final = item_table.c.slot - item_table.c.id


def newest_items(conn: Connection, limit: int) -> tuple[tuple[TestItem, ...], float]:
    """The items that were made last, the newest first; and when that was, for Last-Modified.

    That time is later for each further item, even if the clock was set back.
    """
    newest = select(item_table).order_by(item_table.c.id.desc()).limit(limit)
    rows = conn.execute(newest).all()
    if not rows:
        return (), 0.0
    lead = conn.execute(select(func.max(_LEAD))).scalar_one()
    return tuple(TestItem(row.slot, row.guid) for row in rows), float(lead + rows[0].id)


def add_item(conn: Connection, item: TestItem, limit: int) -> None:
    """Store a new item, and delete older ones than the ``limit`` newest."""
    conn.execute(insert(item_table).values(slot=item.slot, guid=item.guid))
    kept = select(item_table.c.id).order_by(item_table.c.id.desc()).limit(limit)
    # Besides the newest, the row stays from which the time for Last-Modified is computed.
    first = select(item_table.c.id).order_by(_LEAD.desc(), item_table.c.id.desc()).limit(1)
    keys = {*conn.scalars(kept), *conn.scalars(first)}
    conn.execute(delete(item_table).where(item_table.c.id.not_in(keys)))
