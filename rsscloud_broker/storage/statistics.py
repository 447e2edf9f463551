"""Stores the numbers of the statistics: how much of what happened in each minute and each hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Insert,
    Integer,
    Select,
    Table,
    Text,
    delete,
    func,
    literal,
    select,
)

from rsscloud_broker.database.columns import insert_into, put_rows, to_micros
from rsscloud_broker.database.portions import Run, in_portions
from rsscloud_broker.model.work import MEASURED, PingedTopic
from rsscloud_broker.storage.schema import metadata, ping
from rsscloud_broker.wire.units import HOUR, MINUTE

#: Statistics: how often something happened, or how many there were, in a minute or an hour.
statistic = Table(
    "statistic",
    metadata,
    # Seconds: 60 or 3600; and when the minute or hour began, in seconds since the epoch.
    Column("width", Integer, primary_key=True, autoincrement=False),
    Column("begin", BigInteger, primary_key=True, autoincrement=False),
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

#: The topics that were pinged most in an hour; ``hour`` counts hours since the epoch.
busy_topic = Table(
    "busy_topic",
    metadata,
    Column("hour", BigInteger, primary_key=True, autoincrement=False),
    Column("rank", Integer, primary_key=True, autoincrement=False),
    Column("url", Text, nullable=False),
    Column("pings", BigInteger, nullable=False),
)

#: Seconds for which the numbers of single minutes are kept; those of hours are kept longer.
MINUTES_KEPT: Final = 25 * HOUR

#: Of how many minutes or hours one transaction removes the numbers.
_PRUNED: Final = 60


def add_statistics(
    conn: Connection, at: float, counted: Mapping[str, int], measured: Mapping[str, int]
) -> None:
    """Store numbers of the minute and the hour of a time.

    All nodes write the rows in one order, by width and name, first the counted and then the
    measured.  Otherwise two nodes could each hold a row that the other waits for.

    :param counted: how often something happened, by name; added to what is stored.
    :param measured: how many of something there are, by name, replacing what is stored.  The
        names begin with ``number_of_``.
    """
    for numbers, adds in ((counted, True), (measured, False)):
        values = [
            {"width": width, "begin": int(at // width) * width, "name": name, "value": value}
            for width in (MINUTE, HOUR)
            for name, value in sorted(numbers.items())
        ]
        if values:
            conn.execute(_upsert(conn, adds), values)


def _upsert(conn: Connection, adds: bool) -> Insert:
    """A statement that stores a number: it ``adds`` to a number stored before, or replaces that."""
    new = insert_into(conn, statistic)
    value = new.excluded.value + statistic.c.value if adds else new.excluded.value
    statement: Insert = new.on_conflict_do_update(
        index_elements=list(statistic.primary_key), set_={"value": value}
    )
    return statement


def statistics(
    conn: Connection, since: float, until: float, step: int
) -> dict[str, dict[int, int]]:
    """The stored numbers of a time by name and step: see ``IStatistics.statistics``."""
    width = MINUTE if step < HOUR else HOUR
    # The number is part of the statement: see ``counting``.
    begin = statistic.c.begin // literal(step, BigInteger, literal_execute=True)
    query = (
        select(statistic.c.name, begin, func.sum(statistic.c.value), func.max(statistic.c.value))
        .where(statistic.c.width == width, statistic.c.begin >= since, statistic.c.begin < until)
        .group_by(statistic.c.name, begin)
    )
    found: dict[str, dict[int, int]] = {}
    for name, number, total, highest in conn.execute(query):
        value = highest if name.startswith(MEASURED) else total
        found.setdefault(name, {})[int(number) * step] = int(value)
    return found


async def prune(write: Run, now: float, hours: int) -> None:
    """Remove the numbers of minutes more than 25 hours ago, and those of hours and the busy topics
    more than ``hours`` ago, in several transactions.
    """
    for width, kept in ((MINUTE, MINUTES_KEPT), (HOUR, hours * HOUR)):
        of_width = statistic.c.width == width
        await _remove_before(write, statistic.c.begin, now - kept, _PRUNED * width, of_width)
    await _remove_before(write, busy_topic.c.hour, now // HOUR - hours, _PRUNED)


async def _remove_before(
    write: Run, time: Column[int], before: float, step: int, *which: ColumnElement[bool]
) -> None:
    """Remove the rows from before a time, the oldest first.

    :param time: the column with the times.
    :param step: how much time one transaction removes the rows of.
    :param which: conditions for the rows.
    """

    def remove_portion(conn: Connection, after: float) -> tuple[None, float | None]:
        """Remove the rows of the oldest ``step``; return its end, or None after the last."""
        oldest = conn.execute(select(func.min(time)).where(*which, time >= after)).scalar()
        if oldest is None or oldest >= before:
            return None, None
        end = min(oldest + step, before)
        conn.execute(delete(time.table).where(*which, time < end))
        return None, end

    await in_portions(write, remove_portion, 0.0)


def put_busy_topics(conn: Connection, hour: int, busiest: Sequence[PingedTopic]) -> None:
    """Store which topics were pinged most in an hour, in place of what is stored for it.

    Several nodes may do this at the same time, for the same hour: the last one wins.

    :param hour: whole hours since the epoch.
    """
    rows = [
        {"hour": hour, "rank": rank, "url": each.url, "pings": each.pings}
        for rank, each in enumerate(busiest)
    ]
    if rows:
        put_rows(conn, busy_topic, rows)
    beyond = busy_topic.c.rank >= len(busiest)
    conn.execute(delete(busy_topic).where(busy_topic.c.hour == hour, beyond))


def pinged_topics(conn: Connection, since: float, until: float, limit: int) -> list[PingedTopic]:
    """The URLs that the pings of a time name most often, with how often; most often first.

    Of many pings the newest 500,000 count.
    """
    url = func.coalesce(func.nullif(ping.c.rss_url, ""), ping.c.url).label("named")
    latest = (
        select(url)
        .where(ping.c.received_at >= to_micros(since), ping.c.received_at < to_micros(until))
        .order_by(ping.c.received_at.desc(), ping.c.id.desc())
        .limit(500_000)
        .subquery()
    )
    return _most_pinged(conn, select(latest.c.named, func.count().label("number")), limit)


def busy_topics(conn: Connection, since: float, until: float, limit: int) -> list[PingedTopic]:
    """The URLs that were pinged most in some hours, most often first, with how often.

    Unlike ``pinged_topics``, it counts no pings: it adds up what ``put_busy_topics`` has stored for
    each hour.  That lacks the URLs that were not among the most pinged ones of an hour.
    """
    number = func.sum(busy_topic.c.pings).label("number")
    of_hours = busy_topic.c.hour >= since // HOUR, busy_topic.c.hour < until / HOUR
    return _most_pinged(conn, select(busy_topic.c.url, number).where(*of_hours), limit)


def _most_pinged(conn: Connection, numbers: Select[Any], limit: int) -> list[PingedTopic]:
    """The URLs with the most pings, most often first.

    :param numbers: selects URLs, and what adds up the pings of each.
    """
    url, number = numbers.selected_columns
    query = numbers.group_by(url).order_by(number.desc(), url).limit(limit)
    return [PingedTopic(named, int(pings)) for named, pings in conn.execute(query).tuples()]
