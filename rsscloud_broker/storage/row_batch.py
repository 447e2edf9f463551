"""Reading a portion of rows in one step, where the database has to be asked for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Select

from rsscloud_broker.storage import sqlite


class RowBatch:
    """A query for so few rows that they may all be in memory.

    :param query: of columns with numbers and texts.  What is true or false may come as
        1 or 0.
    """

    def __init__(self, query: Select[Any]) -> None:
        self._query = query
        self._at_once = sqlite.at_once(query)

    def read(self, conn: Connection, parameters: Mapping[str, object]) -> list[Sequence[Any]]:
        """The rows, in whatever order the database gives them."""
        if not sqlite.serves(conn):
            return list(conn.execute(self._query, parameters))
        rows: list[Sequence[Any]] = msgspec.json.decode(
            conn.execute(self._at_once, parameters).scalar_one()
        )
        return rows
