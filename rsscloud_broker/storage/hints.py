"""Tells other nodes on a PostgreSQL that there is work, by NOTIFY.

A hint is sent when the transaction commits that makes the work, and every node gets it at once: see
``pulse``.  Hints may be lost, so all nodes also look for work from time to time.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, func, select

from rsscloud_broker.database import sqlite

#: The channel on which nodes listen.
CHANNEL: Final = "rsscloud_broker"

#: The kinds of hints: a fan-out has begun; the claims of a node are free; a host does not answer,
#: or does so again; a document was stored; a topic was fetched, or could not be, for which other
#: nodes wait.
FANOUT, FREED, HOST, DOCUMENT, READ = "fanout", "freed", "host", "document", "read"

#: How kinds of hints begin that name a job whose node has something to do.
JOB: Final = "job."


def hint(conn: Connection, kind: str, key: int = 0) -> None:
    """Tell all nodes of new work.

    :param kind: one of the kinds above, or ``JOB`` with the name of a job.
    :param key: the id of its row.
    """
    if not sqlite.serves(conn):
        conn.execute(select(func.pg_notify(CHANNEL, f"{kind}:{key}")))
