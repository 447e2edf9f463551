"""Registers a process of the broker as a node of its database, so that it can claim work.

A *node* is a process.  Its row is made at its start, with an id that is never used again.  The
rows of the work that a node has claimed name its id: fan-outs, slices, pending notifications,
checks, polls, intents and jobs.  When the row of the node is removed, these are set to null, so the
work is free again.  Nothing else frees it.  So a node that is dead can record nothing any more:
whatever is recorded under a claim requires that the row of the work still names the node.  And a
transaction that claims something locks the row of its node, which so cannot be removed meanwhile.

Each node writes a heartbeat to its row, by the clock of the database, and removes the rows of nodes
that have had none for ``DEAD_AFTER`` seconds: see ``pulse``.  A process that stood still for
longer finds its row gone.  It registers as a new node, and has lost all its claims.

On SQLite there is one node at a time, as the lock on the data directory guarantees.  So a node that
registers removes the rows of all others, and takes up the work of a killed process at once.

Each function runs in a transaction that the caller has begun, and may run again after a rollback.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from socket import gethostname
from types import MappingProxyType
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    bindparam,
    delete,
    func,
    insert,
    inspect,
    literal_column,
    select,
    update,
)

from rsscloud_broker import __version__
from rsscloud_broker.storage import sqlite
from rsscloud_broker.storage.schema import CLAIMS, node, slice_
from rsscloud_broker.storage.shared_schema import job
from rsscloud_broker.tables import to_micros

#: A node is dead when its last heartbeat is so many seconds old, by the clock of the database.
DEAD_AFTER = 8.0


# Nearly every transaction that writes runs this: it is made once.
_THERE = (
    select(node.c.id)
    .where(node.c.id == bindparam("key"))
    .with_for_update(read=True, key_share=True)
)


def database_clock(conn: Connection) -> ColumnElement[int]:
    """What the clock of the database shows, in microseconds since the epoch.

    On PostgreSQL this is the first function named ``clock_timestamp`` in the ``search_path``.
    """
    if sqlite.serves(conn):
        days = "julianday('now') - 2440587.5"
        return literal_column(f"CAST(({days}) * 86400000000 AS INTEGER)", BigInteger)
    return literal_column("CAST(extract(epoch FROM clock_timestamp()) * 1e6 AS bigint)", BigInteger)


def registered(conn: Connection, key: int | None) -> int:
    """Register this process, unless its row exists.

    :param key: the id that the process got before; None if it was never registered.
    :returns: the id of the process.
    """
    if key is not None and conn.execute(_THERE, {"key": key}).first():
        return key
    if sqlite.serves(conn):
        _remove(conn, list(conn.execute(select(node.c.id)).scalars()))
    now = database_clock(conn)
    values = {"started_at": now, "beat_at": now, "version": __version__}
    name = f"{gethostname()} {os.getpid()}"
    made = conn.execute(insert(node).values(name=name, **values)).inserted_primary_key
    assert made is not None  # a single insert always has one
    return int(made[0])


def touch(conn: Connection, key: int, done: Mapping[str, float] = MappingProxyType({})) -> bool:
    """Write the heartbeat of a node, or learn that the database cannot be written.

    :param key: the id of the node.
    :param done: what it has done: values of columns of its row.
    :returns: False if its row is gone.
    """
    beat = update(node).where(node.c.id == key).values(beat_at=database_clock(conn), **done)
    return conn.execute(beat).rowcount > 0


def hand_back(conn: Connection, key: int | None) -> None:
    """Free what a node that stops has claimed and does not do any more, so that others do it.

    It keeps its row, and so its claims of the notifications that are still under way, and of jobs.
    """
    if key is None:
        return
    for claim in (*CLAIMS, slice_.c.node_id):
        conn.execute(update(claim.table).where(claim == key).values({claim.name: None}))


def leave(conn: Connection, key: int | None) -> None:
    """Remove the row of a node that stops, so that others take up its work at once."""
    if key is not None:
        _remove(conn, [key])


def remove_dead(conn: Connection) -> int:
    """Remove the nodes that are dead, and so free their claims.

    A node in the middle of a transaction that records something is left for the next time.

    :returns: how many there were.
    """
    latest = database_clock(conn) - to_micros(DEAD_AFTER)
    dead = select(node.c.id).where(node.c.beat_at < latest).with_for_update(skip_locked=True)
    keys = list(conn.execute(dead).scalars())
    _remove(conn, keys)
    return len(keys)


def living(conn: Connection) -> list[str]:
    """The names of the nodes that live.  On SQLite there are no heartbeats, so none is known to."""
    if sqlite.serves(conn) or not _has_heartbeats(conn):
        return []
    latest = database_clock(conn) - to_micros(DEAD_AFTER)
    alive = select(node.c.name).where(node.c.beat_at >= latest).order_by(node.c.id)
    return list(conn.execute(alive).scalars())


def _has_heartbeats(conn: Connection) -> bool:
    """Whether nodes write heartbeats; in a database of an old version they do not."""
    tables = inspect(conn)
    if not tables.has_table(node.name):
        return False
    return any(each["name"] == node.c.beat_at.name for each in tables.get_columns(node.name))


def _remove(conn: Connection, keys: Sequence[int]) -> None:
    """Remove the rows of nodes, and free their claims."""
    conn.execute(delete(node).where(node.c.id.in_(keys)))
    for claim in (*CLAIMS, job.c.node_id):
        conn.execute(update(claim.table).where(claim.in_(keys)).values({claim.name: None}))


def count(conn: Connection) -> tuple[int, int]:
    """How many nodes live, at least 1 since this process is one; and how many are dead."""
    latest: Any = database_clock(conn) - to_micros(DEAD_AFTER)
    is_dead = node.c.beat_at < latest
    numbers: dict[bool, int] = dict(
        conn.execute(select(is_dead, func.count()).group_by(is_dead)).tuples().all()
    )
    return max(1, numbers.get(False, 0)), numbers.get(True, 0)
