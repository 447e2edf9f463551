"""Makes work suspect, as if processes had ended that were at it."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Connection, insert, select
from twisted.internet.defer import Deferred

from rsscloud_broker.model.shared import Work
from rsscloud_broker.storage.operating_schema import suspect
from rsscloud_broker.storage.topic_urls import key_of


def make_suspect(store: Any, work: Work, ends: int = 1) -> Deferred[Any]:
    """Make some work suspect, and let the process look what is.

    :param store: a ``Store`` in memory.
    :param ends: how many processes have ended.
    """

    def make(conn: Connection, node: int) -> None:
        key = conn.scalar(select(key_of(work.name))) if isinstance(work.name, str) else work.name
        now = time.time_ns() // 1000
        values = {"kind": work.kind, "key": key, "ends": ends, "ended_at": now}
        conn.execute(insert(suspect).values(values))

    made: Deferred[Any] = store._database.write(store._claiming(make))
    return made
