"""Goes through large tables some rows at a time, so that no statement takes long for many rows.

PostgreSQL ends a statement that takes too long, and on SQLite nobody else can write meanwhile.  So
whatever may concern very many rows is done in portions, each in a transaction of its own.  What
others have asked for meanwhile runs between two portions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from sqlalchemy import CTE, ColumnElement, Connection, Integer, bindparam, func, literal, select

from rsscloud_broker.database.methods import Operation

P = TypeVar("P")
T = TypeVar("T")

#: How many rows of a table are looked at by one statement, if a look at each may need another row.
LOOKED_AT = 10_000


class Run(Protocol):
    """Runs an operation in a transaction of its own."""

    def __call__(self, operation: Operation[T], /) -> Awaitable[T]: ...


async def in_portions(
    run: Run, portion: Callable[[Connection, P], tuple[T, P | None]], first: P
) -> list[T]:
    """Do something portion by portion.

    :param portion: takes a position in a table, and does the portion behind it.  Returns its
        result, and the position of the next portion; None after the last one.
    """
    results = []
    position: P | None = first

    def do_next(conn: Connection) -> tuple[T, P | None]:
        """Do the portion at the present position."""
        assert position is not None  # it was not the last one
        return portion(conn, position)

    while position is not None:
        result, position = await run(do_next)
        results.append(result)
    return results


def end_of_portion(
    conn: Connection, key: ColumnElement[P], after: P, size: int = LOOKED_AT
) -> P | None:
    """The last key of a portion of a table; None if that is the rest of the table.

    :param key: the primary key.
    :param after: the portion begins behind this key.
    :param size: how many rows the portion has.
    """
    last = select(key).where(key > after).order_by(key).offset(size - 1).limit(1)
    return conn.execute(last).scalar()


def within(key: ColumnElement[P], after: P, until: P | None) -> ColumnElement[bool]:
    """The condition for the rows of a portion, as ``end_of_portion`` has found it."""
    return key > after if until is None else (key > after) & (key <= until)


def different_values(column: ColumnElement[Any], *conditions: ColumnElement[bool]) -> CTE:
    """Selects the different values of a column with an index, in their order.

    It goes from each value to the next one by the index, so that those of a million rows cost no
    more than those of one.  The result has a column ``value``, which is null at the end, and a
    column ``number``.  Parameters of the query are ``after``, a value before the first one, and
    ``most``, how many there are at most.

    :param conditions: of the rows, as those of the index.
    """
    one = literal(1, Integer, literal_execute=True)
    first = select(func.min(column)).where(
        *conditions, column > bindparam("after", type_=column.type)
    )
    values = select(first.scalar_subquery().label("value"), one.label("number")).cte(recursive=True)
    following = (
        select(func.min(column))
        .where(*conditions, column > values.c.value)
        .correlate(values)
        .scalar_subquery()
    )
    return values.union_all(
        select(following, values.c.number + one).where(
            values.c.value.is_not(None), values.c.number < bindparam("most", type_=Integer)
        )
    )
