"""Measures how much space the database takes on the disk, for the metrics."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection, func, select

from rsscloud_broker.storage import sqlite


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
