"""The processes that work on a database, and what each of them has claimed.

A *node* is a process.  It has a row from its start on, with an id that is never used again.
What it works on refers to that row: slices of walks, and notifications that wait.  When the row
of a node goes, all that it had claimed is free again, since the database sets such references to
null.

There is one node at a time: the lock on the data directory proves it.  So a node that registers
removes the rows of all others, and what a killed process was at is taken up again at once.
"""

from __future__ import annotations

import os
from socket import gethostname

from sqlalchemy import Connection, delete, insert, select

from rsscloud_broker.storage.schema import node


def registered(conn: Connection, key: int | None) -> int:
    """Register this process, unless its row is there.

    :param key: the id that it had before; None if it was not registered yet.
    :returns: its id.
    """
    if key is not None and conn.execute(select(node.c.id).where(node.c.id == key)).first():
        return key
    conn.execute(delete(node))
    name = f"{gethostname()} {os.getpid()}"
    made = conn.execute(insert(node).values(name=name)).inserted_primary_key
    assert made is not None  # a single insert always has one
    return int(made[0])
