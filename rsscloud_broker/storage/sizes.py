"""Measures how much space the database takes on the disk, and what waits in it, for the metrics."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection, func, select

from rsscloud_broker.database import sqlite
from rsscloud_broker.storage.schema import CHECK_WAITS, topic


def sizes(conn: Connection) -> Mapping[str, int]:
    """The bytes of each part of the database.

    :returns: ``main``, the database; and for an SQLite file ``wal``, its write-ahead log.
    """
    if not sqlite.serves(conn):
        size = func.pg_database_size(func.current_database())
        return {"main": conn.execute(select(size)).scalar_one()}
    pages = conn.exec_driver_sql("PRAGMA page_count").scalar_one()
    found = {"main": pages * conn.exec_driver_sql("PRAGMA page_size").scalar_one()}
    path = sqlite.path_of(conn.engine.url)
    if path is not None:
        found["wal"] = 0
        with suppress(FileNotFoundError):  # SQLite removes the log when the broker stops
            found["wal"] = Path(f"{path}-wal").stat().st_size
    return found


def waiting_checks(conn: Connection) -> Mapping[str, int]:
    """How many topics wait in the database to be fetched, and no process has them in memory.

    Counted to ten thousand each.

    An index has only the rows that are counted, and PostgreSQL reads an index alone, as nothing
    uses the ids.

    :returns: ``ready``, which any process may claim; and ``put_off``, which are fetched again
        later, as a fetch has failed.
    """
    states = {"ready": CHECK_WAITS, "put_off": topic.c.check_due_at.is_not(None)}
    found = {}
    for state, is_in_it in states.items():
        # Up to how many topics that wait are counted, so that this takes some milliseconds at most.
        some = select(topic.c.id).where(is_in_it).limit(10_000).subquery()
        found[state] = conn.execute(select(func.count()).select_from(some)).scalar_one()
    return found
