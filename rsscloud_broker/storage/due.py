"""Claims the pending notifications that are due, and says when the next ones are.

A million may wait for one host that is slow, and is called four times at a time.  So the index of
due times is not enough to find the others: see ``find_due``.

Those functions that are coroutines run several transactions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from attrs import evolve, frozen
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Integer,
    Table,
    bindparam,
    func,
    literal,
    select,
    tuple_,
    update,
)

from rsscloud_broker.database import sqlite
from rsscloud_broker.database.columns import lock_rows, to_micros, to_seconds_or_none
from rsscloud_broker.database.portions import LOOKED_AT, Run, different_values, in_portions
from rsscloud_broker.model import Callback, Subscription
from rsscloud_broker.storage.deliveries import later
from rsscloud_broker.storage.schema import host_state, intent, pending, subscription, topic
from rsscloud_broker.storage.subscriptions import by_ids
from rsscloud_broker.storage.topic_urls import key_of

#: How many notifications one answer of a host can make due, and how many of them one transaction.
MAX_MADE_DUE, _MADE_DUE_AT_ONCE = 10_000, 500

#: How many hosts are searched then at a time, and how many times at most.
_HOSTS, _TIMES = 200, 25

_NOW = bindparam("now", type_=BigInteger)
_MOST = bindparam("most", type_=Integer)
_FREE = pending.c.node_id.is_(None)

#: The same for SQLite, which else looks for the nulls in the index of node ids, even if nearly all
#: rows have null there.
_LIKELY_FREE = func.likely(_FREE, type_=Integer)

_DUE = (
    select(pending.c.subscription_id, pending.c.host)
    .where(pending.c.due_at <= _NOW)
    .order_by(pending.c.due_at, pending.c.subscription_id)
    .limit(_MOST)
)
_FIRST, _FIRST_ON_SQLITE = _DUE.where(_FREE), _DUE.where(_LIKELY_FREE)

OF_HOST = (
    select(pending.c.due_at, pending.c.subscription_id)
    .where(_FREE, pending.c.host == bindparam("of_host"), pending.c.due_at <= _NOW)
    .order_by(pending.c.due_at, pending.c.subscription_id)
    .limit(_MOST)
)

_hosts = different_values(pending.c.host, _FREE)
_EARLIEST = (
    select(func.min(pending.c.due_at))
    .where(_FREE, pending.c.host == _hosts.c.value)
    .correlate(_hosts)
    .scalar_subquery()
)
#: Goes from each host that notifications wait for to the next one.
WAITED_FOR = select(_hosts.c.value, _EARLIEST <= _NOW).where(_hosts.c.value.is_not(None))


@frozen
class Due:
    """Pending notifications that are due.

    :ivar keys: the ids of their subscriptions, longest due first.
    :ivar after: the host after which the next look goes on; empty if this one looked at all.
    """

    keys: Sequence[int]
    after: str = ""


def find_due(
    conn: Connection, now: float, limit: int, busy: Collection[str], after: str = ""
) -> Due:
    """Find free pending notifications that are due, for hosts that are not busy.

    The first ones are found by the index of due times.  If very many of those are for busy hosts,
    this goes on from host to host, and takes the first ones of each that is not busy.

    :param limit: how many are wanted.
    :param after: the ``after`` of the last time, to go on with the hosts behind it.
    """
    # How many notifications of busy hosts are passed over before the hosts are searched instead.
    most, at = limit + (1000 if busy else 0), to_micros(now)
    first = _FIRST_ON_SQLITE if sqlite.serves(conn) else _FIRST
    found = conn.execute(first, {"now": at, "most": most}).all()
    keys = [key for key, host in found if host not in busy][:limit]
    if len(keys) == limit or len(found) < most:
        return Due(keys)
    known = set(keys)
    for _ in range(_TIMES):
        hosts = conn.execute(WAITED_FOR, {"now": at, "after": after, "most": _HOSTS}).all()
        for host, is_due in hosts:
            if is_due and host not in busy:
                rest = {"now": at, "of_host": host, "most": limit - len(keys)}
                keys += [key for _, key in conn.execute(OF_HOST, rest) if key not in known]
            if len(keys) == limit:
                return Due(keys, host)
        if len(hosts) < _HOSTS:
            return Due(keys)
        after = hosts[-1][0]
    return Due(keys, after)


def claim_found(conn: Connection, keys: Sequence[int], node: int, now: float) -> list[Subscription]:
    """Claim those of some pending notifications that are free, and still due.

    :param keys: the ids of their subscriptions.
    """
    free = (
        select(pending.c.subscription_id)
        .where(pending.c.subscription_id.in_(keys), _FREE, pending.c.due_at <= to_micros(now))
        .order_by(pending.c.subscription_id)
    )
    held = set(conn.execute(free.with_for_update(skip_locked=True)).scalars()) if keys else set()
    if not held:
        return []
    claimed = update(pending).where(pending.c.subscription_id.in_(held))
    conn.execute(claimed.values(node_id=node))
    return [evolve(one, claim=node) for one in by_ids(conn, [key for key in keys if key in held])]


def next_due(conn: Connection) -> float | None:
    """When the first unclaimed pending notification is due; None if there is none."""
    free = _LIKELY_FREE if sqlite.serves(conn) else _FREE
    first = select(func.min(pending.c.due_at)).where(free)
    return to_seconds_or_none(conn.execute(first).scalar())


async def make_due(read: Run, write: Run, host: str, origin: str, now: float) -> bool:
    """Make pending notifications for a host due now, since the host answers again.

    It makes at most some thousands due, in several transactions.  If a subscriber has asked not to
    be called before a later time, its notification becomes due at that time.

    :param read: runs what only reads, so that it delays no writes.
    :param origin: the host and the port, as ``host:port``, if only that port is meant;
        empty for all ports of the host.
    :param host: the name of a host; or ``*.`` and a name for all hosts below that name.
    :returns: whether any became due.
    """
    at = to_micros(now)
    found = False
    for name in await _hosts_named(read, host):
        left = MAX_MADE_DUE
        # The due time and the id behind which it reads: 2**62 is greater than all ids, so it begins
        # behind all that are due now.
        position: tuple[int, int] | None = (at, 2**62)
        while position is not None and left > 0:
            keys, position = await read(partial(_find_put_off, name, origin, position))
            if keys:
                found = await write(partial(_make_due, keys, at)) or found
            left -= _MADE_DUE_AT_ONCE
    return found


async def make_due_for_content(read: Run, write: Run, url: str, at: float) -> bool:
    """Make those pending notifications of a topic due that wait for its content, which is
    stored now, and have had no attempt.  They may be a million, in several transactions.

    :param at: when they become due, unless they are due earlier.
    :returns: whether there are such notifications.
    """
    due_at = to_micros(at)

    def find(conn: Connection, after: int) -> tuple[list[int], int | None]:
        """The waiting ones among the next subscriptions of the topic, and the id of the last of
        these subscriptions; None if no others follow.
        """
        key, of_topic = subscription.c.id, subscription.c.topic_id == key_of(url)
        some = select(key).where(of_topic, key > after).order_by(key).limit(LOOKED_AT)
        keys = list(conn.execute(some).scalars())
        if not keys:
            return [], None
        waiting = (
            select(pending.c.subscription_id)
            .join(subscription, key == pending.c.subscription_id)
            .where(of_topic, key.between(keys[0], keys[-1]), *_waits_for_content(due_at))
        )
        found = list(conn.execute(waiting).scalars())
        return found, keys[-1] if len(keys) == LOOKED_AT else None

    def make_portion_due(keys: Collection[int], conn: Connection) -> None:
        """Make those of some notifications due that still wait for the content."""
        lock_rows(conn, pending.c.subscription_id, keys)
        among = pending.c.subscription_id.in_(keys)
        conn.execute(
            update(pending).where(among, *_waits_for_content(due_at)).values(due_at=due_at)
        )

    found = False
    last: int | None = 0
    while last is not None:
        waiting, last = await read(partial(find, after=last))
        for begin in range(0, len(waiting), _MADE_DUE_AT_ONCE):
            await write(partial(make_portion_due, waiting[begin : begin + _MADE_DUE_AT_ONCE]))
            found = True
    return found


def _waits_for_content(at: int) -> tuple[ColumnElement[bool], ...]:
    """The conditions of pending notifications that wait for a content until after a time."""
    columns = pending.c
    return columns.content_topic_id.is_not(None), columns.attempts == 0, columns.due_at > at


async def _hosts_named(read: Run, host: str) -> list[str]:
    """The hosts that a name stands for and that notifications wait for."""
    if not host.startswith("*."):
        return [host]

    def find_below(conn: Connection, after: str) -> tuple[list[str], str | None]:
        """The hosts below the name in a portion: see ``in_portions``."""
        given = {"after": after, "most": _HOSTS, "now": 0}  # no matter what is due
        hosts = [name for name, _ in conn.execute(WAITED_FOR, given)]
        found = [name for name in hosts if name.endswith(host[1:])]
        return found, hosts[-1] if len(hosts) == _HOSTS else None

    return [name for some in await in_portions(read, find_below, "") for name in some]


def _find_put_off(
    host: str, origin: str, after: tuple[int, int], conn: Connection
) -> tuple[list[int], tuple[int, int] | None]:
    """Some free pending notifications for a host that are due behind a position.

    :param after: the position: a due time, and the id of a subscription.
    :returns: the ids of their subscriptions, and the position of the last one; None if it is the
        last of all.
    """
    position = tuple_(pending.c.due_at, pending.c.subscription_id)
    some = (
        select(pending.c.due_at, pending.c.subscription_id)
        .where(_FREE, pending.c.host == host, position > after)
        .order_by(pending.c.due_at, pending.c.subscription_id)
        .limit(_MADE_DUE_AT_ONCE)
        .subquery()
    )
    rows = conn.execute(
        select(some.c.due_at, some.c.subscription_id, subscription.c.callback_url)
        .add_columns(subscription.c.protocol)
        .join_from(some, subscription, subscription.c.id == some.c.subscription_id)
        .order_by(some.c.due_at, some.c.subscription_id)
    ).all()
    keys = [
        key
        for _, key, url, protocol in rows
        if not origin or Callback(url, protocol).origin == origin
    ]
    return keys, (rows[-1][0], rows[-1][1]) if len(rows) == _MADE_DUE_AT_ONCE else None


def _make_due(keys: Collection[int], at: int, conn: Connection) -> bool:
    """Make those of some pending notifications due that are free, and due later.

    :returns: whether there are any.
    """
    lock_rows(conn, pending.c.subscription_id, keys)
    due_at = later(func.coalesce(pending.c.not_before, 0), literal(at, BigInteger))
    among = pending.c.subscription_id.in_(keys)
    made = update(pending).where(among, _FREE, pending.c.due_at > due_at).values(due_at=due_at)
    return conn.execute(made).rowcount > 0


#: The columns with times at which work is due, or was requested, and with those by which topics are
#: forgotten, by their tables.
_COLUMNS_OF_TIMES: dict[Table, tuple[Column[Any], ...]] = {
    pending: (pending.c.due_at,),
    topic: (
        topic.c.check_requested_at,
        topic.c.check_due_at,
        topic.c.next_poll_at,
        topic.c.idle_at,
    ),
    host_state: (host_state.c.retry_at,),
    intent: (intent.c.retry_at,),
}

#: How many rows one transaction changes at most.
_SET_BACK_AT_ONCE = 1000


async def set_back(write: Run, seconds: float, now: float) -> None:
    """Move due times that lie in the future back, after the wall clock was set back.

    There may be a million of them, so this takes several transactions; if one fails, the times in
    the other rows stay.  A time that is stored meanwhile, by the new clock, in a row that this has
    not come to yet, is moved back too.  Then something is done too early, once, which does no harm.

    Times that are not after ``now`` stay as they are.

    :param seconds: by how much the clock was set back.
    :param now: what the clock shows since.
    """
    for table in _COLUMNS_OF_TIMES:
        (key,) = table.primary_key.columns
        first = "" if table is host_state else 0
        portion = partial(_set_back, key=key, by=to_micros(seconds), now=to_micros(now))
        await in_portions(write, portion, first)


def _set_back(
    conn: Connection, after: Any, key: Column[Any], by: int, now: int
) -> tuple[None, Any]:
    """Move the times in the rows back that follow a key; return the last key of this portion."""
    following = select(key).where(key > after).order_by(key).limit(_SET_BACK_AT_ONCE)
    keys = list(conn.execute(following).scalars())
    if keys:
        some = key.between(keys[0], keys[-1])
        for time in _COLUMNS_OF_TIMES[key.table]:
            conn.execute(update(key.table).where(some, time > now).values({time.name: time - by}))
    return None, keys[-1] if len(keys) == _SET_BACK_AT_ONCE else None
