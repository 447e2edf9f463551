"""Claims the pending notifications that are due, and says when the next ones are.

A million may wait for one host that is slow, and is called four times at a time.  So the index of
due times is not enough to find the others: see ``find_due``.

Each function runs in a transaction that the caller has begun, and may run again after a
rollback.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from attrs import evolve, frozen
from sqlalchemy import (
    BigInteger,
    Connection,
    Integer,
    Text,
    bindparam,
    func,
    literal,
    select,
    update,
)
from twisted.internet.defer import Deferred

from rsscloud_broker.model import Callback, Subscription
from rsscloud_broker.storage.deliveries import DUE, UPDATE_PENDING, later
from rsscloud_broker.storage.schema import pending, subscription
from rsscloud_broker.storage.subscriptions import by_ids
from rsscloud_broker.storage.threads import Threads
from rsscloud_broker.tables import to_micros, to_seconds_or_none

#: How many notifications one answer of a host can make due at once.
MAX_MADE_DUE = 10_000

#: So many notifications of busy hosts are passed over before the hosts are looked at instead.
_PASSED_OVER = 1000

#: How many hosts are looked at then: so many at a time, and so many times at most.
_HOSTS, _TIMES = 200, 25

_NOW = bindparam("now", type_=BigInteger)
_MOST = bindparam("most", type_=Integer)
_FREE = pending.c.node_id.is_(None)

_FIRST = (
    select(pending.c.subscription_id, pending.c.host)
    .where(_FREE, pending.c.due_at <= _NOW)
    .order_by(pending.c.due_at, pending.c.subscription_id)
    .limit(_MOST)
)

OF_HOST = (
    select(pending.c.due_at, pending.c.subscription_id)
    .where(_FREE, pending.c.host == bindparam("of_host"), pending.c.due_at <= _NOW)
    .order_by(pending.c.due_at, pending.c.subscription_id)
    .limit(_MOST)
)

# Goes from each host that notifications wait for to the next one, by the index of hosts, so that
# those with a million cost no more than those with one.
_hosts = select(
    select(func.min(pending.c.host))
    .where(_FREE, pending.c.host > bindparam("after", type_=Text))
    .scalar_subquery()
    .label("host"),
    literal(1, Integer, literal_execute=True).label("number"),
).cte("hosts", recursive=True)
_hosts = _hosts.union_all(
    select(
        select(func.min(pending.c.host))
        .where(_FREE, pending.c.host > _hosts.c.host)
        .correlate(_hosts)
        .scalar_subquery(),
        _hosts.c.number + literal(1, Integer, literal_execute=True),
    ).where(_hosts.c.host.is_not(None), _hosts.c.number < _MOST)
)
_EARLIEST = (
    select(func.min(pending.c.due_at))
    .where(_FREE, pending.c.host == _hosts.c.host)
    .correlate(_hosts)
    .scalar_subquery()
)
WAITED_FOR = select(_hosts.c.host, _EARLIEST <= _NOW).where(_hosts.c.host.is_not(None))


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

    :param after: the ``after`` of the last time.
    """
    given = {"now": to_micros(now), "most": limit + (_PASSED_OVER if busy else 0)}
    found = conn.execute(_FIRST, given).all()
    keys = [key for key, host in found if host not in busy][:limit]
    if len(keys) == limit or len(found) < given["most"]:
        return Due(keys)
    known = set(keys)
    for _ in range(_TIMES):
        hosts = conn.execute(WAITED_FOR, given | {"after": after, "most": _HOSTS}).all()
        for host, is_due in hosts:
            if is_due and host not in busy:
                due = conn.execute(OF_HOST, given | {"of_host": host, "most": limit - len(keys)})
                keys += [key for _, key in due if key not in known]
            if len(keys) == limit:
                return Due(keys, host)
        if len(hosts) < _HOSTS:
            return Due(keys)
        after = hosts[-1][0]
    return Due(keys, after)


class Claims:
    """Claims for this process what is due.

    :param registered: returns the node id of this process.
    """

    def __init__(self, threads: Threads, registered: Callable[[Connection], int]) -> None:
        self._threads = threads
        self._registered = registered
        self._after = ""

    def claim_due(
        self, now: float, limit: int, busy: Collection[str]
    ) -> Deferred[list[Subscription]]:
        """See ``IStore.claim_due``."""
        if busy:  # to find the others may take a while, and is done by reading
            return Deferred.fromCoroutine(self._claim_others(now, limit, busy))
        return self._threads.write(
            lambda conn: claim_found(
                conn, find_due(conn, now, limit, ()).keys, self._registered(conn)
            )
        )

    async def _claim_others(
        self, now: float, limit: int, busy: Collection[str]
    ) -> list[Subscription]:
        after = self._after
        due = await self._threads.read(lambda conn: find_due(conn, now, limit, busy, after))
        self._after = due.after
        if not due.keys:
            return []
        return await self._threads.write(
            lambda conn: claim_found(conn, due.keys, self._registered(conn))
        )


def claim_found(conn: Connection, keys: Sequence[int], node: int) -> list[Subscription]:
    """Claim those of some pending notifications that are free.

    :param keys: the ids of their subscriptions.
    :param node: the node id of this process.
    """
    free = (
        select(pending.c.subscription_id)
        .where(pending.c.subscription_id.in_(keys), _FREE)
        .order_by(pending.c.subscription_id)
    )
    held = set(conn.execute(free.with_for_update(skip_locked=True)).scalars()) if keys else set()
    if not held:
        return []
    claimed = update(pending).where(pending.c.subscription_id.in_(held))
    conn.execute(claimed.values(node_id=node))
    return [evolve(one, claim=node) for one in by_ids(conn, [key for key in keys if key in held])]


def next_due(conn: Connection) -> float | None:
    """See ``IStore.next_due``."""
    free = select(func.min(pending.c.due_at)).where(pending.c.node_id.is_(None))
    return to_seconds_or_none(conn.execute(free).scalar())


def make_due(conn: Connection, host: str, origin: str, now: float) -> bool:
    """See ``IStore.make_due``.

    :param host: the name of a host; or ``*.`` and a name for all hosts below that name.
    """
    at = to_micros(now)
    name = pending.c.host
    is_below = host.startswith("*.")
    some = (
        select(pending.c.subscription_id)
        .where(
            name.endswith(host[1:], autoescape=True) if is_below else name == host,
            pending.c.due_at > at,
            pending.c.node_id.is_(None),
        )
        .limit(MAX_MADE_DUE)
        .subquery()
    )
    found = conn.execute(
        select(subscription.c.id, subscription.c.callback_url, subscription.c.protocol)
        .join_from(some, subscription, subscription.c.id == some.c.subscription_id)
        .order_by(subscription.c.id)
    )
    due = [
        {"key": key, "due": at}
        for key, url, protocol in found
        if not origin or Callback(url, protocol).origin == origin
    ]
    if due:
        asked = func.coalesce(pending.c.not_before, 0)
        conn.execute(UPDATE_PENDING.values(due_at=later(asked, DUE)), due)
    return bool(due)
