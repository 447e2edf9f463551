"""Stores what administrators have blocked and what they announce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve
from sqlalchemy import Connection, Select, delete, func, select, tuple_

from rsscloud_broker.database.columns import columns_of, insert_row, put_rows, record_of
from rsscloud_broker.model.administration import Announcement, Block, Change
from rsscloud_broker.storage.changes import record_change, record_if_done
from rsscloud_broker.storage.operating_schema import announcement, block

_ALL_BY_KEY: Select[Any] = select(block).order_by(block.c.kind, block.c.object)


def all_blocks(conn: Connection) -> list[Block]:
    """All blocks, by kind and object."""
    return [record_of(Block, row) for row in conn.execute(_ALL_BY_KEY)]


def blocks(conn: Connection, kind: str, after: tuple[str, str], limit: int) -> list[Block]:
    """At most ``limit`` blocks behind ``after``, a kind and an object, in the order of these two.

    :param kind: the only kind that is wanted; empty for all.
    """
    query = _ALL_BY_KEY.where(tuple_(block.c.kind, block.c.object) > after).limit(limit)
    if kind:
        query = query.where(block.c.kind == kind)
    return [record_of(Block, row) for row in conn.execute(query)]


def put_block(conn: Connection, new: Block, limit: int, change: Change) -> bool:
    """Store a block, in place of one with the same kind and object.

    :returns: False if it would be a further block, and there are ``limit`` blocks.
    """
    same = select(block.c.kind).where(block.c.kind == new.kind, block.c.object == new.object)
    if conn.execute(same).first() is None and count_blocks(conn) >= limit:
        return False
    put_rows(conn, block, [columns_of(new, block)])
    record_change(conn, change)
    return True


def count_blocks(conn: Connection) -> int:
    """How many blocks are stored."""
    return conn.execute(select(func.count()).select_from(block)).scalar_one()


def count_new_blocks(conn: Connection, imported: Sequence[Block]) -> int:
    """How many blocks would be added by an import, and not replaced."""
    keys = {(one.kind, one.object) for one in imported}
    return len(keys - {(row.kind, row.object) for row in conn.execute(_ALL_BY_KEY)})


def import_blocks(conn: Connection, imported: Sequence[Block], now: float) -> None:
    """Store blocks of another database, in place of those with the same kind and object.

    It is stored as one change by ``(import)``, so that running brokers take notice.  The caller
    checks that there will be no more blocks than there may be.
    """
    put_rows(conn, block, [columns_of(each, block) for each in imported])
    record_change(conn, Change("(import)", "block", f"{len(imported)} imported", "", now))


def remove_block(conn: Connection, kind: str, what: str, change: Change) -> bool:
    """Remove a block, and return whether there was one.

    If it was the block of a host, the process that learns of the ``Change`` calls ``make_due``.
    """
    removed = delete(block).where(block.c.kind == kind, block.c.object == what)
    return record_if_done(conn, removed, change)


def announcements(conn: Connection, after: int, limit: int) -> list[Announcement]:
    """Announcements with an id above ``after``, by id."""
    query = select(announcement).where(announcement.c.id > after).order_by(announcement.c.id)
    return [record_of(Announcement, row) for row in conn.execute(query.limit(limit))]


def add_announcement(conn: Connection, new: Announcement, change: Change) -> Announcement:
    """Store an announcement, and return it with its id."""
    made = insert_row(conn, announcement, **columns_of(new, announcement))
    record_change(conn, change)
    return evolve(new, id=made)


def remove_announcement(conn: Connection, key: int, change: Change) -> bool:
    """Remove an announcement, and return whether there was one."""
    return record_if_done(conn, delete(announcement).where(announcement.c.id == key), change)
