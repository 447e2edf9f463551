"""Reading a portion of rows in one step.

SQLite gives rows one by one, and for each of them Python's driver lets other threads
run.  Beside a busy reactor the reader then waits for the interpreter's lock at every
row, and so does the reactor, which costs both more than what they do.  Asked for all
rows as one value, the database works without the lock, and it is taken once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select

from rsscloud_broker.storage import sqlite


class Portion:
    """A query for so few rows that they may all be in memory.

    :param query: of columns with numbers and texts.  What is true or false may come as
        1 or 0.
    """

    def __init__(self, query: Select[Any]) -> None:
        self._query = query
        self._at_once = sqlite.at_once(query)

    def read(self, conn: Connection, parameters: Mapping[str, object]) -> list[Sequence[Any]]:
        """The rows, in whatever order the database gives them."""
        if conn.dialect.name != sqlite.DIALECT:
            return list(conn.execute(self._query, parameters))
        rows: list[Sequence[Any]] = json.loads(conn.execute(self._at_once, parameters).scalar_one())
        return rows
