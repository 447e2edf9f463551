"""Claims topics that wait to be fetched, some at a time, fairly by source and by host; and releases
them, when a fetch has failed or this process does not handle them any more.

Hundreds of thousands of checks may wait, requested by one source, or of topics at one host.  So
the sources take turns, and within a source its hosts; of each host come those that wait longest.
An index has the waiting checks in this order.  So a claim costs as much as it claims, however many
checks wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from sqlalchemy import Connection, and_, bindparam, case, func, or_, select, update

from rsscloud_broker.database.columns import to_micros, to_seconds_or_none
from rsscloud_broker.model.ways import Way
from rsscloud_broker.model.work import Check, ClaimedChecks, WantedChecks
from rsscloud_broker.storage.checks import SOONEST, cause
from rsscloud_broker.storage.schema import CHECK_WAITS, topic
from rsscloud_broker.storage.topic_urls import HAS_PUBLIC, key_of

#: How many sources have a turn in one claim, and how many sources or hosts are passed over at most
#: because they are busy.
_SOURCES, _PASSED_OVER = 10, 200

# These are built once, since to build them takes longer than to execute them.

_FIRST_SOURCE = (
    select(topic.c.check_source).where(CHECK_WAITS).order_by(topic.c.check_source).limit(1)
)
_NEXT_SOURCE = _FIRST_SOURCE.where(topic.c.check_source > bindparam("after"))

#: Selects a host, and which of its topics waits longest.
_FIRST_HOST = (
    select(topic.c.check_host, topic.c.id)
    .where(CHECK_WAITS, topic.c.check_source == bindparam("source"))
    .order_by(topic.c.check_host, topic.c.check_requested_at)
    .limit(1)
)
_NEXT_HOST = _FIRST_HOST.where(topic.c.check_host > bindparam("after"))

_OF_HOST = (
    select(topic.c.id)
    .where(
        CHECK_WAITS,
        topic.c.check_source == bindparam("source"),
        topic.c.check_host == bindparam("host"),
    )
    .order_by(topic.c.check_requested_at)
    .limit(bindparam("most"))
)

# Written so that PostgreSQL does not use the index of what waits, in which it expects few rows
# until it has counted them.
_WAITS = and_(
    func.coalesce(topic.c.check_requested_at, 0) > 0,
    func.coalesce(topic.c.check_node_id, 0) == 0,
    func.coalesce(topic.c.check_due_at, 0) == 0,
)
_LOCK_FREE = (
    select(
        topic.c.id,
        topic.c.url,
        topic.c.check_pinged,
        topic.c.check_source,
        topic.c.check_failures,
        topic.c.check_way,
        topic.c.check_origin,
    )
    .where(topic.c.id.in_(bindparam("keys", expanding=True)), _WAITS)
    .order_by(topic.c.id)
    .with_for_update(skip_locked=True, key_share=True)
)


def claim_checks(conn: Connection, wanted: WantedChecks, node: int) -> ClaimedChecks:
    """Claim topics that wait to be fetched and that no node has claimed.

    The limit is divided evenly between some sources, and each source's share between the hosts
    whose topics it has requested.

    :returns: the claimed checks, and where the next claim goes on: see ``ClaimedChecks``.
    """
    next_at = _make_ready(conn, to_micros(wanted.now))
    sources = _next_in_circle(
        lambda after: _next_source(conn, after),
        wanted.after_source,
        wanted.busy_sources,
        min(_SOURCES, wanted.limit),
    )
    after_hosts: dict[str, str] = {}
    keys: list[int] = []
    for number, source in enumerate(sources):
        share = (wanted.limit - len(keys)) // (len(sources) - number)
        hosts = _hosts_in_turn(conn, wanted, source, share)
        for host, first in hosts.items():
            most = min(share // len(hosts), wanted.of_host)
            asked = {"source": source, "host": host, "most": most}
            # ``_hosts_in_turn`` has found the first topic: for one alone, no query is needed.
            keys += conn.scalars(_OF_HOST, asked) if most > 1 else (first,)
            after_hosts[source] = host
    return ClaimedChecks(
        _claim(conn, keys, to_micros(wanted.now), node),
        more=bool(keys),
        next_at=to_seconds_or_none(next_at),
        after_source=sources[-1] if sources else None,
        after_hosts=after_hosts,
    )


def put_off_check(
    conn: Connection, node: int | None, url: str, failures: int, until: float, asked_until: float
) -> float | None:
    """Release a claimed check whose fetch has failed, and let it wait until a time.

    If somebody requests it again, it waits a second at most.

    :param failures: how many attempts have failed.
    :param asked_until: when it was requested the last time before that fetch, or later.
    :param node: the node id of this process; a check that another has claimed stays with it.
    :returns: until when it waits; None if this process has not claimed it.
    """
    is_asked_again = topic.c.check_requested_at > to_micros(asked_until)
    soonest = topic.c.check_requested_at + SOONEST
    is_soon = and_(is_asked_again, soonest < to_micros(until))
    # Strangers may be those who requested it again, and what they ask for is fetched once.
    keeps_way = or_(is_asked_again, HAS_PUBLIC, topic.c.check_way == Way.FOLLOWED)
    due_at: int | None = conn.scalar(
        update(topic)
        .where(topic.c.id == key_of(url), topic.c.check_node_id == node)
        .values(
            check_node_id=None,
            check_due_at=case((is_soon, soonest), else_=to_micros(until)),
            check_failures=case((is_asked_again, 0), else_=failures),
            # What strangers ask for is not tried again without public subscriptions.
            check_way=case((keeps_way, topic.c.check_way), else_=""),
        )
        .returning(topic.c.check_due_at)
    )
    return to_seconds_or_none(due_at)


def release_checks(conn: Connection, held: Collection[str], node: int) -> int:
    """Release the claims of this process, so that any node may claim these checks.

    :param held: the URLs of topics whose checks it still handles.
    :returns: how many were released.
    """
    claimed = select(topic.c.id, topic.c.url).where(topic.c.check_node_id == node)
    lost = [key for key, url in conn.execute(claimed) if url not in held]
    released = update(topic).where(topic.c.id.in_(lost), topic.c.check_node_id == node)
    return conn.execute(released.values(check_node_id=None)).rowcount


def _claim(conn: Connection, keys: Sequence[int], now: int, node: int) -> list[Check]:
    """Claim those of some checks that no other node has claimed meanwhile.

    A time of a request that is ahead is that of a clock which was wrong: the request came before
    now, so a fetch that begins from now on answers it.
    """
    if not keys:
        return []
    found = {row.id: row for row in conn.execute(_LOCK_FREE, {"keys": keys})}
    claimed = update(topic).where(topic.c.id.in_(found))
    asked_at = topic.c.check_requested_at
    requested_at = case((asked_at > now, now), else_=asked_at)
    conn.execute(claimed.values(check_node_id=node, check_requested_at=requested_at))
    return [
        Check(row.url, row.check_source, row.check_failures, cause(row))
        for key in keys
        if (row := found.get(key))
    ]


def _make_ready(conn: Connection, now: int) -> int | None:
    """Let checks that were put off until now wait to be claimed.

    :returns: when the next of the others is ready; None if there is none.
    """
    due = topic.c.check_due_at
    # How many checks that were put off become ready in one claim.
    ready = select(topic.c.id).where(due <= now).order_by(due).limit(500)
    keys = list(conn.scalars(ready.with_for_update(skip_locked=True, key_share=True)))
    if keys:
        conn.execute(update(topic).where(topic.c.id.in_(keys)).values(check_due_at=None))
    later: int | None = conn.scalar(select(func.min(due)).where(due.is_not(None)))
    return later


def _next_source(conn: Connection, after: str | None) -> str | None:
    """The next source of which checks wait; None if there is none.

    :param after: the one before it; None for the first.
    """
    query = _FIRST_SOURCE if after is None else _NEXT_SOURCE
    found: str | None = conn.scalar(query, {} if after is None else {"after": after})
    return found


def _hosts_in_turn(
    conn: Connection, wanted: WantedChecks, source: str, most: int
) -> dict[str, int]:
    """The hosts whose turn it is among those with checks that a source has requested.

    :param most: how many hosts are wanted.
    :returns: each host with the id of the topic that waits there longest.
    """
    found: dict[str, int] = {}

    def next_after(after: str | None) -> str | None:
        """The next host of the source; ``found`` gets the topic that waits there longest."""
        query = _FIRST_HOST if after is None else _NEXT_HOST
        parameters = {"source": source} | ({} if after is None else {"after": after})
        row = conn.execute(query, parameters).first()
        if row is None:
            return None
        found[row.check_host] = row.id
        return str(row.check_host)

    busy = {host for of, host in wanted.busy_hosts if of == source}
    hosts = _next_in_circle(next_after, wanted.after_hosts.get(source), busy, most)
    return {host: found[host] for host in hosts}


def _next_in_circle(
    next_after: Callable[[str | None], str | None],
    after: str | None,
    busy: Collection[str],
    most: int,
) -> list[str]:
    """The next values in a circle (after the greatest comes the least), without the busy ones.

    :param next_after: finds the least value that is greater than the given one; for None the least
        of all.  Returns None if there is none.
    :param after: the value after which the circle is entered; None for the least value.
    """
    chosen: list[str] = []
    seen: set[str] = set()
    value = next_after(after)
    if value is None and after is not None:
        value = next_after(None)
    while value is not None and value not in seen and len(chosen) < most:
        seen.add(value)
        if value not in busy:
            chosen.append(value)
        elif len(seen) - len(chosen) > _PASSED_OVER:
            break
        if len(chosen) < most:
            value = next_after(value) or next_after(None)
    return chosen
