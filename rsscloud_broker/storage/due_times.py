"""Moves stored due times back after the wall clock was set back.

Each function runs in a transaction that the caller has begun, and may run again after a
rollback.
"""

from __future__ import annotations

from sqlalchemy import Connection, update

from rsscloud_broker.storage.schema import (
    host_state,
    intent,
    pending,
    topic,
)
from rsscloud_broker.tables import (
    to_micros,
)

#: The columns with times at which work is due, or was requested.
_TIMES = (
    pending.c.due_at,
    topic.c.check_requested_at,
    topic.c.check_due_at,
    topic.c.next_poll_at,
    host_state.c.retry_at,
    intent.c.retry_at,
)


def set_back(conn: Connection, seconds: float, now: float) -> None:
    """See ``IStore.set_back``.  Times that are not after ``now`` stay as they are."""
    by = to_micros(seconds)
    for time in _TIMES:
        later = update(time.table).where(time > to_micros(now))
        conn.execute(later.values({time.name: time - by}))
