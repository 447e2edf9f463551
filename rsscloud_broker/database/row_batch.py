"""Reads many rows from SQLite in one step, for queries that run for each notification.

``sqlite`` says why this is quicker beside a busy reactor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Select

from rsscloud_broker.database import sqlite


class RowBatch:
    """A query whose rows are read together; they must fit into memory.

    :param query: selects columns with numbers and texts.  Truth values may come as 1 or 0.
    """

    def __init__(self, query: Select[Any]) -> None:
        self._query = query
        self._at_once = sqlite.at_once(query)

    def read(self, conn: Connection, parameters: Mapping[str, object]) -> list[Sequence[Any]]:
        """Run the query, and return the rows in any order."""
        if not sqlite.serves(conn):
            return list(conn.execute(self._query, parameters))
        rows: list[Sequence[Any]] = msgspec.json.decode(
            conn.execute(self._at_once, parameters).scalar_one()
        )
        return rows
