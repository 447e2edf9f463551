"""Removes expired and failing subscriptions, topics that nobody needs, and their contents.

There may be millions of each, and the broker must go on to store pings meanwhile.  So what is to be
removed is found by reading, which holds up nobody, and then removed in portions, each in a
transaction of its own.  Each portion looks once more whether its rows are still to be removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from attrs import evolve
from sqlalchemy import ColumnElement, Connection, and_, case, delete, func, select, true, update

from rsscloud_broker.database.columns import lock_rows, to_micros
from rsscloud_broker.database.engine import open_database
from rsscloud_broker.database.methods import Operation
from rsscloud_broker.database.portions import Run, end_of_portion, within
from rsscloud_broker.model import Callback
from rsscloud_broker.model.work import MARKED, MAX_NAMED, Bounds, Swept, SweptSubscription
from rsscloud_broker.storage.checks import DEFAULT_BOUNDS
from rsscloud_broker.storage.contents import correct_sums, find_unneeded, remove_found
from rsscloud_broker.storage.idle import evict_excess, remove_topics, too_many_idle
from rsscloud_broker.storage.schema import subscription, topic
from rsscloud_broker.storage.topic_urls import FIRST_URL, HAS_SUBSCRIPTIONS

T = TypeVar("T")

#: Seconds for which the store keeps an ended topic without subscriptions.
KEEP_ENDED = 90 * 86400

#: How many rows one transaction removes at most.  The pages that it changes are copied at the next
#: checkpoint of SQLite, which is why it is not more.
PORTION = 50

#: A sweep goes through the ids of topics, and then through those of contents, to which this is
#: added.
_CONTENTS = 2**62

# As in the condition of the partial index: see ``schema``.
_DROPPING = subscription.c.dropping == true()


def _has_expired(now: float) -> ColumnElement[bool]:
    return subscription.c.expires_at <= to_micros(now)


def find_subscriptions(conn: Connection, now: float) -> list[int]:
    """The ids of a portion of the subscriptions that are dropping or have expired."""
    found: list[int] = []
    # None is found twice, since a portion that is not full is taken for the last one.
    for which in (_DROPPING, and_(_has_expired(now), ~subscription.c.dropping)):
        wanted = select(subscription.c.id).where(which).limit(PORTION - len(found))
        found += conn.execute(wanted).scalars()
    return sorted(found)


def remove_subscriptions(conn: Connection, keys: Collection[int], now: float) -> Swept:
    """Remove those of some subscriptions that are dropping or have expired.

    One that is both counts as failing.
    """
    lock_rows(conn, subscription.c.id, keys)
    among = subscription.c.id.in_(keys)
    named_ones = [
        *_describe(conn, and_(among, _DROPPING)),
        *_describe(conn, and_(among, _has_expired(now), ~subscription.c.dropping)),
    ]
    dropping = conn.execute(delete(subscription).where(among, subscription.c.dropping)).rowcount
    expired = conn.execute(delete(subscription).where(among, _has_expired(now))).rowcount
    return Swept(expired=expired, failing=dropping, named=tuple(named_ones))


def _describe(conn: Connection, condition: ColumnElement[bool]) -> list[SweptSubscription]:
    """Topic, callback and last error of up to ``MAX_NAMED`` subscriptions, for the event log."""
    table = subscription.c
    asked = case((table.asked_url != "", table.asked_url), else_=FIRST_URL)
    query = (
        select(
            asked,
            table.callback_url,
            table.protocol,
            table.procedure,
            case(
                (table.dropping, func.coalesce(func.nullif(table.last_error, ""), MARKED)), else_=""
            ),
        )
        .join(topic, topic.c.id == table.topic_id)
        .where(condition)
        .order_by(table.id)
        .limit(MAX_NAMED)
    )
    return [
        SweptSubscription(url, Callback(callback_url, protocol, procedure), error)
        for url, callback_url, protocol, procedure, error in conn.execute(query)
    ]


# --- topics

#: Topics that have lost their last subscriptions, and are not marked as idle yet.
_IS_LOST = and_(topic.c.idle_at.is_(None), topic.c.moved_to_id.is_(None), ~HAS_SUBSCRIPTIONS)


#: Ids of rows to be removed, and the last id that was looked at; None if that was the last of all.
_Found: TypeAlias = tuple[list[int], int | None]


def find_lost(conn: Connection, after: int) -> _Found:
    """The ids of some topics that have lost their last subscriptions.

    :param after: the last id that was looked at in the portion before.
    """
    until = end_of_portion(conn, topic.c.id, after)
    lost = select(topic.c.id).where(within(topic.c.id, after, until), _IS_LOST).order_by(topic.c.id)
    keys = list(conn.execute(lost.limit(PORTION)).scalars())
    return keys, keys[-1] if len(keys) == PORTION else until


def mark_idle(conn: Connection, keys: Collection[int]) -> None:
    """Mark those of some topics as idle that have no subscriptions."""
    lock_rows(conn, topic.c.id, keys)
    conn.execute(
        update(topic)
        .where(topic.c.id.in_(keys), _IS_LOST)
        .values(idle_at=func.coalesce(topic.c.read_at, 0))
    )


def _is_removable(now: float, idle_topics_before: float) -> ColumnElement[bool]:
    """The condition that nobody needs a topic any more.

    An ended topic stays for ``KEEP_ENDED`` seconds, so that it is not fetched again when somebody
    pings it.
    """
    idle = and_(
        topic.c.ended == "",
        topic.c.check_requested_at.is_(None),
        topic.c.read_at.is_(None) | (topic.c.read_at < to_micros(idle_topics_before)),
    )
    ended = and_(
        topic.c.ended != "", func.coalesce(topic.c.changed_at, 0) < to_micros(now - KEEP_ENDED)
    )
    return and_(
        topic.c.idle_at.is_not(None),
        topic.c.moved_to_id.is_(None),
        idle | ended,
        ~HAS_SUBSCRIPTIONS,
    )


def find_topics(conn: Connection, now: float, idle_topics_before: float) -> list[int]:
    """The ids of a portion of the topics that nobody needs any more; they are marked as idle."""
    removable = select(topic.c.id).where(_is_removable(now, idle_topics_before))
    oldest = removable.order_by(topic.c.idle_at, topic.c.id).limit(PORTION)
    return list(conn.execute(oldest).scalars())


def sweep_topics(
    conn: Connection, keys: Sequence[int], now: float, idle_topics_before: float
) -> int:
    """Remove those of some topics that nobody needs, with their fan-outs, their contents and the
    rows of their old URLs.

    :returns: how many they were.
    """
    lock_rows(conn, topic.c.id, keys)
    still = select(topic.c.id).where(topic.c.id.in_(keys), _is_removable(now, idle_topics_before))
    removable = list(conn.execute(still).scalars())
    remove_topics(conn, removable)
    return len(removable)


# --- the whole sweep


async def sweep(
    read: Run, write: Run, now: float, idle_topics_before: float, bounds: Bounds, after: int
) -> Swept:
    """Remove the subscriptions that failed too often or have expired, and the topics
    without subscriptions that were last fetched before ``idle_topics_before``.

    This is done in several transactions, and a call removes a few hundred rows of each kind at
    most, so that nothing else waits long.

    :param after: the ``after`` of the last call, to go on after it; 0 at first.
    :param read, write: run operations that read and that write.
    :returns: what this call has removed; if its ``after`` is not None, call again.
    """
    keys = await read(lambda conn: find_subscriptions(conn, now))
    swept = Swept()
    if keys:
        swept = await write(lambda conn: remove_subscriptions(conn, keys, now))
    if len(keys) == PORTION:
        return evolve(swept, after=after)
    if after < _CONTENTS:
        lost, last = await _find_first(read, find_lost, after)
        if lost:
            await write(lambda conn: mark_idle(conn, lost))
        if last is not None:
            return evolve(swept, after=last)
        after = _CONTENTS
    topics, is_complete = await _sweep_idle(read, write, now, idle_topics_before, bounds)
    swept = evolve(swept, topics=topics)
    if not is_complete:
        return evolve(swept, after=after)
    find = partial(find_unneeded, limit=PORTION)
    unneeded, last = await _find_first(read, find, after - _CONTENTS)
    if unneeded:
        await write(lambda conn: remove_found(conn, unneeded))
    if last is not None:
        return evolve(swept, after=_CONTENTS + last)
    await correct_sums(read, write)
    return swept


async def _find_first(read: Run, find: Callable[[Connection, int], _Found], after: int) -> _Found:
    """Look through portions until ``find`` finds rows to remove, or no portion is left."""

    async def look(after: int) -> _Found:
        return await read(lambda conn: find(conn, after))

    keys, last = await look(after)
    while not keys and last is not None:
        keys, last = await look(last)
    return keys, last


async def _sweep_idle(
    read: Run, write: Run, now: float, idle_topics_before: float, bounds: Bounds
) -> tuple[int, bool]:
    """Remove a portion of the idle topics that are too many or too old.

    :returns: how many were too old, and whether no other is to be removed.
    """
    evicted = 0
    if await read(lambda conn: too_many_idle(conn, bounds.idle_topics)):
        evicted = await write(lambda conn: evict_excess(conn, bounds.idle_topics))
    if evicted:
        return 0, False
    topics = 0
    found = await read(lambda conn: find_topics(conn, now, idle_topics_before))
    if found:
        topics = await write(lambda conn: sweep_topics(conn, found, now, idle_topics_before))
    return topics, len(found) < PORTION


def sweep_database(url: str, now: float, idle_topics_before: float) -> Swept:
    """Sweep a database as the broker does each hour, for a command that runs beside a broker.

    :param url: the URL of a database for which ``migrate`` was called.
    :raises Unavailable: the database cannot be used.
    """

    async def read(operation: Operation[T], /) -> T:
        with open_database(url, writes=False) as conn:
            return operation(conn)

    async def write(operation: Operation[T], /) -> T:
        with open_database(url) as conn:
            return operation(conn)

    swept = Swept(after=0)
    while swept.after is not None:
        part = sweep(read, write, now, idle_topics_before, DEFAULT_BOUNDS, swept.after)
        try:
            part.send(None)
        except StopIteration as end:  # it has ended, since neither of these functions waits
            swept = swept.followed_by(end.value)
    return swept
