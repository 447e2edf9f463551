"""Moves stored due times back after the wall clock was set back.

There may be a million of them, and the broker must go on to store pings meanwhile.  So it goes
through the tables in portions, by their keys.  A time that is stored meanwhile, by the new clock,
in a row that it has not come to yet, is moved back too.  Then something is done too early, once,
which does no harm.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from sqlalchemy import Column, Connection, Table, select, update

from rsscloud_broker.database.columns import to_micros
from rsscloud_broker.database.portions import Run, in_portions
from rsscloud_broker.storage.schema import host_state, intent, pending, topic

#: The columns with times at which work is due, or was requested, by their tables.
_TIMES: dict[Table, tuple[Column[Any], ...]] = {
    pending: (pending.c.due_at,),
    topic: (topic.c.check_requested_at, topic.c.check_due_at, topic.c.next_poll_at),
    host_state: (host_state.c.retry_at,),
    intent: (intent.c.retry_at,),
}

#: How many rows one transaction changes at most.
PORTION = 1000


async def set_back(write: Run, seconds: float, now: float) -> None:
    """Move due times that lie in the future back, after the wall clock was set back.

    This takes several transactions.  If one fails, the times in the other rows stay.

    Times that are not after ``now`` stay as they are.

    :param seconds: by how much the clock was set back.
    :param now: what the clock shows since.
    """
    for table in _TIMES:
        (key,) = table.primary_key.columns
        first = "" if table is host_state else 0
        portion = partial(_set_back, key=key, by=to_micros(seconds), now=to_micros(now))
        await in_portions(write, portion, first)


def _set_back(
    conn: Connection, after: Any, key: Column[Any], by: int, now: int
) -> tuple[None, Any]:
    """Move the times in the rows back that follow a key; return the last key of this portion."""
    following = select(key).where(key > after).order_by(key).limit(PORTION)
    keys = list(conn.execute(following).scalars())
    if keys:
        some = key.between(keys[0], keys[-1])
        for time in _TIMES[key.table]:
            conn.execute(update(key.table).where(some, time > now).values({time.name: time - by}))
    return None, keys[-1] if len(keys) == PORTION else None
