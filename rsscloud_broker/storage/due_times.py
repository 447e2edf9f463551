"""What the store does when the wall clock was set back.

Each function is one step of a transaction that the caller has begun; run again
after a rollback, it does the same.
"""

from __future__ import annotations

from sqlalchemy import Connection, update

from rsscloud_broker.storage.schema import host_state, intent, pending, to_micros, topic

#: The times at which something is to be done, or was asked for.
_TIMES = (
    pending.c.due_at,
    topic.c.check_requested_at,
    topic.c.next_poll_at,
    host_state.c.retry_at,
    intent.c.retry_at,
)


def set_back(conn: Connection, seconds: float, now: float) -> None:
    """See ``IStore.set_back``.  What is due already, by the new time too, stays due."""
    by = to_micros(seconds)
    for time in _TIMES:
        later = update(time.table).where(time > to_micros(now))
        conn.execute(later.values({time.name: time - by}))
