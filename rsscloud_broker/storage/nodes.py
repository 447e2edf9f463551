"""Registers a process of the broker as a node of its database, so that it can claim work.

A *node* is a process.  Its row is made at its start, with an id that is never used again.  Slices
and pending notifications that the node works on refer to its row: these are its claims.  When the
row of a node is removed, the database sets these references to null, so its claims are free again.

There is one node at a time, as the lock on the data directory guarantees.  So a node that registers
removes the rows of all others, and takes up the work of a killed process at once.
"""

from __future__ import annotations

import os
from socket import gethostname

from sqlalchemy import Connection, delete, insert, select, update

from rsscloud_broker.storage.schema import node


def registered(conn: Connection, key: int | None) -> int:
    """Register this process, unless its row exists.

    :param key: the id that the process got before; None if it was never registered.
    :returns: the id of the process.
    """
    if key is not None and conn.execute(select(node.c.id).where(node.c.id == key)).first():
        return key
    conn.execute(delete(node))
    name = f"{gethostname()} {os.getpid()}"
    made = conn.execute(insert(node).values(name=name)).inserted_primary_key
    assert made is not None  # a single insert always has one
    return int(made[0])


def touch(conn: Connection, key: int) -> None:
    """Write the row of a node again, unchanged, to learn whether the database can be written.

    :param key: the id of the node.
    """
    conn.execute(update(node).where(node.c.id == key).values(name=node.c.name))
