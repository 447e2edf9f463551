"""Counts the pings ever recorded, also those that have been removed since.

Their number is the sum of some counters: of one for all, and one for each node that lives.  Nodes
would wait for each other's commits if they all updated one row.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, or_, select, update

from rsscloud_broker.database.columns import insert_missing, to_micros
from rsscloud_broker.storage.schema import counter, ping

#: The name of the counter for all; that of a node has its id behind it.
_TOTAL = "pings"

_ADD = (
    update(counter)
    .where(counter.c.name == bindparam("counted"))
    .values(value=counter.c.value + bindparam("more"))
)


def add(conn: Connection, more: int, node: int | None) -> None:
    """Add to the counter of a node; to that for all if ``node`` is None."""
    name = _TOTAL if node is None else _counter_of(node)
    added = {"more": more, "counted": name}
    if conn.execute(_ADD, added).rowcount:
        return
    if not insert_missing(conn, counter, [{"name": name, "value": more}], counter.c.name):
        # Another transaction has inserted it meanwhile.
        conn.execute(_ADD, added)


def count_pings(conn: Connection, until: float | None = None) -> int:
    """The number of pings ever recorded, including those pruned since.

    :param until: those that were received at this time or later are not counted.
    """
    name = counter.c.name
    ours = or_(name == _TOTAL, name.startswith(f"{_TOTAL}/", autoescape=True))
    ever = select(func.sum(counter.c.value)).where(ours).scalar_subquery()
    number: ColumnElement[int] = func.coalesce(ever, 0)
    if until is not None:  # one statement, so that no ping is committed between the two sums
        later = select(func.count()).where(ping.c.received_at >= to_micros(until))
        number = number - later.scalar_subquery()
    return int(conn.execute(select(number)).scalar_one())


def add_to_total(conn: Connection, nodes: Iterable[int]) -> None:
    """Add the counters of nodes that have ended to the one for all, and remove them."""
    theirs = counter.c.name.in_(map(_counter_of, nodes))
    values = list(conn.execute(select(counter.c.value).where(theirs).with_for_update()).scalars())
    if values:
        conn.execute(delete(counter).where(theirs))
        add(conn, sum(values), None)


def _counter_of(node: int) -> str:
    return f"{_TOTAL}/{node}"
