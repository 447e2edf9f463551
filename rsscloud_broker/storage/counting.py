"""Counts the rows of large tables, portion by portion: see ``portions``."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import BigInteger, Connection, func, literal, select, tuple_

from rsscloud_broker.database.columns import MICROSECONDS, to_micros
from rsscloud_broker.database.portions import Run, end_of_portion, in_portions, within
from rsscloud_broker.model.work import MEASURED
from rsscloud_broker.storage.schema import ping, subscription, topic
from rsscloud_broker.storage.topic_urls import HAS_PUBLIC, IS_PUBLIC

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
