"""Stores the numbers of the statistics: how much of what happened in each minute and each hour; and
counts the rows of large tables for them, portion by portion: see ``portions``.
"""

from __future__ import annotations

from collections import Counter
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
    tuple_,
)

from rsscloud_broker.database.columns import MICROSECONDS, insert_into, put_rows, to_micros
from rsscloud_broker.database.portions import Run, end_of_portion, in_portions, within
from rsscloud_broker.model.work import MEASURED, PingedTopic
from rsscloud_broker.storage.schema import metadata, ping, subscription, topic
from rsscloud_broker.storage.topic_urls import HAS_PUBLIC, IS_PUBLIC
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
    # The number is part of the statement: see ``_HOUR_OF``.
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


# --- counting

#: In microseconds.
_HOUR = 3600 * MICROSECONDS

#: How many pings and subscriptions one statement counts.
_PINGS, _SUBSCRIPTIONS = 100_000, 20_000

# The number is part of the statement, not a parameter: PostgreSQL would take two parameters for
# different numbers, and refuse to group by the expression.
_HOUR_OF = ping.c.received_at // literal(_HOUR, BigInteger, literal_execute=True)

_PLACE = tuple_(ping.c.received_at, ping.c.id)


async def ping_hours(
    read: Run, since: float, until: float, portion: int = _PINGS
) -> dict[int, int]:
    """The number of pings in each hour that has any; the keys are hours since the epoch.

    This reads in several transactions, and takes as long as there are pings.

    :param portion: how many pings one statement counts.
    """
    end = to_micros(until)

    def count(conn: Connection, after: tuple[int, int]) -> tuple[Counter[int], Place | None]:
        """Count a portion behind a place: see ``_count_pings``."""
        return _count_pings(conn, after, end, portion)

    # No ping has the id 0.
    parts = await in_portions(read, count, (to_micros(since), 0))
    return dict(sum(parts, Counter()))


#: When a ping was received, and its id.
Place = tuple[int, int]


def _count_pings(
    conn: Connection, after: Place, end: int, portion: int
) -> tuple[Counter[int], Place | None]:
    """Count the pings of one portion by their hours.

    :param after: the portion begins behind this place.
    :param portion: how many pings it has.
    :returns: the counts, and the place of the last ping; None if no pings follow.
    """
    wanted = (after < _PLACE, ping.c.received_at < end)
    places = select(ping.c.received_at, ping.c.id).where(*wanted).order_by(*_PLACE.clauses)
    last = conn.execute(places.offset(portion - 1).limit(1)).tuples().first()
    counts = select(_HOUR_OF, func.count()).where(*wanted).group_by(_HOUR_OF)
    if last is not None:
        counts = counts.where(last >= _PLACE)
    return Counter(dict(conn.execute(counts).tuples().all())), last


async def measure(read: Run) -> dict[str, int]:
    """How many topics and subscriptions there are, by the names of the statistics of them.

    This reads in several transactions, and takes as long as there are topics and subscriptions.
    """
    numbers: Counter[str] = Counter({f"{MEASURED}topics": 0, f"{MEASURED}watched_topics": 0})
    for each in await in_portions(read, _count_topics, 0):
        numbers.update(each)
    for each in await in_portions(read, _count_subscriptions, 0):
        numbers.update(each)
    return dict(numbers)


def _count_topics(conn: Connection, after: int) -> tuple[dict[str, int], int | None]:
    """Count the topics of a portion (see ``in_portions``), and those that strangers may know of."""
    until = end_of_portion(conn, topic.c.id, after)
    some = select(func.count()).select_from(topic).where(within(topic.c.id, after, until))
    found = {
        f"{MEASURED}topics": conn.execute(some).scalar_one(),
        f"{MEASURED}watched_topics": conn.execute(some.where(HAS_PUBLIC)).scalar_one(),
    }
    return found, until


def _count_subscriptions(conn: Connection, after: int) -> tuple[dict[str, int], int | None]:
    """Count the public subscriptions of a portion by protocol: see ``in_portions``."""
    key, protocol = subscription.c.id, subscription.c.protocol
    until = end_of_portion(conn, key, after, _SUBSCRIPTIONS)
    some = select(protocol, func.count()).where(within(key, after, until), IS_PUBLIC)
    some = some.group_by(protocol)
    rows = conn.execute(some).tuples()
    return {f"{MEASURED}subscriptions.{name}": number for name, number in rows}, until
