"""Stores what administrators did: each change in the transaction that makes it.

Every process on the database reads the newest changes every few seconds, and so learns what the
others did.  The first one that claims a change publishes it as an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import evolve
from sqlalchemy import Connection, Row, Select, delete, false, func, or_, select, true, update
from sqlalchemy.sql.dml import UpdateBase

from rsscloud_broker.database.columns import columns_of, insert_row, record_of, to_micros
from rsscloud_broker.model.administration import Change
from rsscloud_broker.storage.operating_schema import admin_change

#: How many changes are kept.
KEPT: Final = 1000

_CHANGES: Final[Select[Any]] = select(admin_change)


def record_change(conn: Connection, change: Change) -> Change:
    """Store a ``Change`` whose effect was stored before, delete all but the newest ``KEPT``, and
    return it with its id.

    The title of what was taken down stands after its URL, in which there is no space.
    """
    what = f"{change.object} {change.title}".rstrip()
    made = insert_row(conn, admin_change, **columns_of(change, admin_change, object=what))
    conn.execute(delete(admin_change).where(admin_change.c.id <= made - KEPT))
    return evolve(change, id=made)


def record_change_if_any(conn: Connection, change: Change | None) -> None:
    """Record what an administrator did, unless somebody else caused it (None)."""
    if change is not None:
        record_change(conn, change)


def record_if_done(conn: Connection, statement: UpdateBase, change: Change | None) -> bool:
    """Execute what an administrator did, and record it if it has changed any row.

    :param change: None if somebody else caused it.
    :returns: whether it has changed any.
    """
    is_done = conn.execute(statement).rowcount > 0
    if is_done:
        record_change_if_any(conn, change)
    return is_done


def changes(conn: Connection, before: int | None, limit: int) -> list[Change]:
    """The newest changes, newest first, with ids below ``before`` (None for any)."""
    query = _CHANGES.order_by(admin_change.c.id.desc()).limit(limit)
    if before is not None:
        query = query.where(admin_change.c.id < before)
    return list(map(_change, conn.execute(query)))


def changes_after(conn: Connection, after: int, limit: int) -> list[Change]:
    """The changes with an id above ``after``, by id."""
    query = _CHANGES.where(admin_change.c.id > after)
    return list(map(_change, conn.execute(query.order_by(admin_change.c.id).limit(limit))))


def taken_down(conn: Connection, prefixes: Sequence[str], since: float) -> list[Change]:
    """The changes that took down something at a URL with one of these beginnings, newest first, at
    most 50.

    :param since: only what was taken down later.
    """
    columns = admin_change.c
    is_below = or_(
        false(), *(columns.object.startswith(each, autoescape=True) for each in prefixes)
    )
    wanted = columns.verb == "take down", columns.at >= to_micros(since), is_below
    newest = _CHANGES.where(*wanted).order_by(columns.id.desc()).limit(50)
    return list(map(_change, conn.execute(newest)))


def last_change(conn: Connection) -> int:
    """The id of the newest change; 0 if there is none."""
    return conn.execute(select(func.max(admin_change.c.id))).scalar() or 0


def claim_unpublished(conn: Connection) -> list[Change]:
    """The changes that no process has published as an event yet, oldest first.

    From now on they count as published, so that one process publishes each, once.

    A second process waits for their rows, and finds none that it may claim.
    """
    unpublished = _CHANGES.where(admin_change.c.published == false()).order_by(admin_change.c.id)
    found = conn.execute(unpublished.with_for_update()).all()
    claimed = update(admin_change).where(admin_change.c.id.in_([row.id for row in found]))
    conn.execute(claimed.values(published=true()))
    return list(map(_change, found))


def _change(row: Row[Any]) -> Change:
    """The change in a row, with the title apart from the URL: see ``record_change``."""
    what, title = row.object, ""
    if row.verb == "take down":
        what, _, title = what.partition(" ")
    return record_of(Change, row, object=what, title=title)
