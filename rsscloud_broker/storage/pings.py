"""Stores and counts pings, finds repeats, and requests checks of the topics that pings name."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    bindparam,
    delete,
    func,
    literal_column,
    or_,
    select,
    text,
    tuple_,
    update,
)

from rsscloud_broker.database import postgresql, sqlite
from rsscloud_broker.database.columns import MICROSECONDS, insert_missing, to_micros, to_seconds
from rsscloud_broker.database.many_values import OfMany, RowBatch, insert_at_once
from rsscloud_broker.database.visible_ids import announce, is_visible, visible_ids
from rsscloud_broker.model import Ping
from rsscloud_broker.model.ways import ChangeSource, Way
from rsscloud_broker.model.work import CheckState, PingRecord
from rsscloud_broker.storage.checks import CHECK_COLUMNS, AskedCheck, CheckRequests
from rsscloud_broker.storage.schema import PING_HOUR, counter, ping, topic
from rsscloud_broker.storage.topic_urls import HAS_SUBSCRIPTIONS, TOPIC_ID, named
from rsscloud_broker.util.urls import normal_form

#: In microseconds.
_HOUR = 3600 * MICROSECONDS

# The statements below are used most of all: they are made once, and run for many pings at once.

# The times are compared by the caller: a range of times would make PostgreSQL take their index, and
# read all pings of these times.
_SAME_FINGERPRINTS = select(ping.c.fingerprint, ping.c.received_at).where(
    literal_column(f"ping.{PING_HOUR}", BigInteger).in_(bindparam("hours", expanding=True)),
    ping.c.fingerprint.in_(bindparam("digests", expanding=True)),
)

# For more than some twenty fingerprints PostgreSQL would rather read all pings of the hours, which
# it takes for few while the hour is new.  OFFSET 0 has it look for each one.
_SAME_FINGERPRINTS_EACH = text(
    "SELECT same.fingerprint, same.received_at FROM unnest(CAST(:hours AS bigint[])) AS hour "  # noqa: S608 # our own table
    "CROSS JOIN unnest(CAST(:digests AS bytea[])) AS digest CROSS JOIN LATERAL "
    "(SELECT fingerprint, received_at FROM ping "
    f"WHERE {PING_HOUR} = hour AND fingerprint = digest OFFSET 0) AS same"
)

_WATCHED = OfMany(
    lambda among: (
        select(*CHECK_COLUMNS, named.c.url.label("asked"))
        .join_from(named, topic, topic.c.id == TOPIC_ID)
        .where(among(named.c.url, "urls"), topic.c.ended == "", HAS_SUBSCRIPTIONS)
        .order_by(topic.c.id)
        .with_for_update(of=topic, key_share=True)
    )
)


_COLUMNS = (
    ping.c.id,
    ping.c.received_at,
    ping.c.name,
    ping.c.url,
    ping.c.changes_url,
    ping.c.rss_url,
    ping.c.tags,
    ping.c.origin,
)

_IN_ORDER = (
    select(*_COLUMNS)
    .where(ping.c.id > bindparam("after"))
    .order_by(ping.c.id)
    .limit(bindparam("most"))
)
_AFTER = RowBatch(_IN_ORDER)
_SETTLED_AFTER = RowBatch(_IN_ORDER.where(ping.c.id <= bindparam("until")))


def fingerprint(record: Ping) -> bytes:
    """A hash of a ping's name, URL and feed, in 16 bytes.  Repeats have the same fingerprint.

    It keeps the index that finds repeats small, and the search short even if many different
    pings name the same page.
    """
    # The same text as ``json.dumps`` makes, which is slower since it looks at the types.
    name, url, rss_url = map(_quoted, (record.name, record.url, record.rss_url))
    return blake2b(f"[{name}, {url}, {rss_url}]".encode(), digest_size=16).digest()


class AskedPing(NamedTuple):
    """A ping to be recorded: see ``Store.add_ping``.

    :ivar window: seconds within which an equal ping makes this one a repeat.
    :ivar at: when the checks are requested; None for when the ping was made.
    """

    ping: Ping
    window: float
    source: str = ""
    claim: bool = False
    way: Way = Way.WEBLOG_UPDATES
    at: float | None = None


def add_pings(
    conn: Connection, wanted: Sequence[AskedPing], node: int | None = None
) -> list[PingRecord]:
    """Record some pings, and request a check of each topic that they name and that has a
    subscription.

    A repeat (the same name, URL and feed within ``repeat_window`` seconds) gets no
    record of its own, but requests the checks.

    The pings are recorded in this order, so that one may repeat another before it.  A repeat is
    returned with the id 0.

    :param source, claim: as for ``request_check``.
    :param way: how the ping came.
    """
    records = [asked.ping for asked in wanted]
    fingerprints = [fingerprint(record) for record in records]
    if not sqlite.serves(conn):
        postgresql.lock_out_others(conn, fingerprints)
    watched = _request_checks(conn, wanted, node)
    repeats = _find_repeats(conn, [(asked.ping, asked.window) for asked in wanted], fingerprints)
    new = [
        (record, digest)
        for record, digest, repeat in zip(records, fingerprints, repeats, strict=True)
        if not repeat
    ]
    stored = iter(_insert(conn, new, node))
    made = []
    for record, repeat in zip(records, repeats, strict=True):
        ping = record if repeat else next(stored)
        named_ones = _checks_of(record, watched) if watched else {}
        made.append(PingRecord(ping, repeat, tuple(named_ones), tuple(named_ones.values())))
    return made


def _checks_of(
    record: Ping, watched: Mapping[str, tuple[str, CheckState]]
) -> dict[str, CheckState]:
    """The checks of the topics with subscriptions that a ping names.

    :param watched: what ``_request_checks`` has returned.
    :returns: what became of each check, by the present URL of the topic, in the order of the URLs.
    """
    named_and_watched = _named_by(record) & watched.keys()
    return dict(sorted({watched[url] for url in named_and_watched}))


def _named_by(record: Ping) -> set[str]:
    """The URLs that a ping names, in normal form."""
    return set(map(normal_form, record.named_urls))


def _find_repeats(
    conn: Connection, wanted: Sequence[tuple[Ping, float]], fingerprints: Sequence[bytes]
) -> list[bool]:
    """Whether each ping repeats one that was recorded less than its window before or after.

    After counts too, since the wall clock may have been set back.

    :param wanted: the pings, each with its window in seconds.
    """
    pings = [
        (digest, to_micros(record.received_at), to_micros(window))
        for digest, (record, window) in zip(fingerprints, wanted, strict=True)
    ]
    recorded = _recorded_times(conn, pings)
    repeats = []
    for digest, received_at, window in pings:
        times = recorded[digest]
        repeat = any(abs(time - received_at) < window for time in times)
        if not repeat:
            times.append(received_at)
        repeats.append(repeat)
    return repeats


def _recorded_times(
    conn: Connection, pings: Sequence[tuple[bytes, int, int]]
) -> defaultdict[bytes, list[int]]:
    """When pings with some fingerprints were recorded, as far as their windows reach.

    :param pings: the fingerprint, the time and the window of each, in microseconds.
    """
    by_hours: defaultdict[tuple[int, int], set[bytes]] = defaultdict(set)
    for digest, received_at, window in pings:
        if window:
            hours = (received_at - window) // _HOUR, (received_at + window) // _HOUR
            by_hours[hours].add(digest)
    times: defaultdict[bytes, list[int]] = defaultdict(list)
    same = _SAME_FINGERPRINTS if sqlite.serves(conn) else _SAME_FINGERPRINTS_EACH
    for (first, last), digests in by_hours.items():
        parameters = {"hours": list(range(first, last + 1)), "digests": list(digests)}
        for digest, received_at in conn.execute(same, parameters):
            times[digest].append(received_at)
    return times


def known_pings(conn: Connection, wanted: Sequence[tuple[Ping, float]]) -> list[bool]:
    """Whether each ping would be a repeat for ``add_pings``.  Nothing is changed."""
    return _find_repeats(conn, wanted, [fingerprint(record) for record, _ in wanted])


def insert_pings(conn: Connection, records: Sequence[Ping], node: int | None = None) -> list[Ping]:
    """Record pings, and return them with their ids.

    :param node: the node id of this process; None if it is the only one.
    """
    return _insert(conn, [(record, fingerprint(record)) for record in records], node)


def _insert(conn: Connection, new: Sequence[tuple[Ping, bytes]], node: int | None) -> list[Ping]:
    """Record pings with their fingerprints, and return them with their ids."""
    if not new:
        return []
    rows: list[dict[str, Any]] = [
        {
            "received_at": to_micros(record.received_at),
            "name": record.name,
            "url": record.url,
            "changes_url": record.changes_url,
            "rss_url": record.rss_url,
            "tags": json.dumps(record.tags) if record.tags else "",
            "fingerprint": digest,
            "origin": record.origin,
        }
        for record, digest in new
    ]
    announce(conn, "ping")
    ids = insert_at_once(conn, ping, rows)
    count_new(conn, len(rows), node)
    return [
        Ping(
            name=record.name,
            url=record.url,
            received_at=to_seconds(row["received_at"]),
            changes_url=record.changes_url,
            rss_url=record.rss_url,
            tags=record.tags,
            id=key,
            origin=record.origin,
        )
        for (record, _), row, key in zip(new, rows, ids, strict=True)
    ]


def _request_checks(
    conn: Connection, wanted: Sequence[AskedPing], node: int | None
) -> dict[str, tuple[str, CheckState]]:
    """Request a check of each topic that the pings name and that has a subscription.

    :returns: the present URLs of these topics and what became of the requests, by the URLs in the
        pings.
    """
    asked: dict[str, AskedCheck] = {}
    for record, _, source, claim, way, at in wanted:
        requested_at = to_micros(record.received_at if at is None else at)
        for url in _named_by(record):
            earlier = asked.get(url)
            if earlier is None:
                asked[url] = AskedCheck(
                    url, requested_at, source=source, claim=claim, cause=ChangeSource(way)
                )
            elif requested_at > earlier.at:
                asked[url] = earlier._replace(at=requested_at)
    found = conn.execute(_WATCHED.on(conn), {"urls": list(asked)}).all()
    if not found:
        return {}
    requests = CheckRequests(node)
    for row in found:
        requests.add(row, asked[row.asked])
    requests.write(conn)
    return {row.asked: (row.url, requests.state(row.id)) for row in found}


def pings(
    conn: Connection, since: float, until: float, before: Ping | None, limit: int
) -> list[Ping]:
    """Pings with ``since <= received_at < until``, newest first.

    :param before: the last ping of the previous call, to go on after it; None at first.
    """
    query = (
        select(*_COLUMNS)
        .where(ping.c.received_at >= to_micros(since), ping.c.received_at < to_micros(until))
        .order_by(ping.c.received_at.desc(), ping.c.id.desc())
        .limit(limit)
    )
    if before is not None:
        position = tuple_(ping.c.received_at, ping.c.id)
        query = query.where(position < (to_micros(before.received_at), before.id))
    return [_ping(row) for row in conn.execute(query)]


def _ping(row: Sequence[Any]) -> Ping:
    """The ping in a row with ``_COLUMNS``."""
    key, at, name, url, changes_url, rss_url, tags, origin = row
    named_tags = tuple(json.loads(tags)) if tags else ()
    return Ping(name, url, to_seconds(at), changes_url, rss_url, named_tags, key, origin)


def pings_after(conn: Connection, after: int, limit: int) -> list[Ping]:
    """The pings with a greater id, in the order of their ids.

    Who goes on after the last one of one call misses no ping: a ping is returned only when
    no ping with a smaller id can appear any more.
    """
    wanted, given = _AFTER, {"after": after, "most": limit}
    until = visible_ids(conn, "ping")
    if until is not None:
        wanted, given = _SETTLED_AFTER, given | {"until": until}
    return [_ping(row) for row in sorted(map(tuple, wanted.read(conn, given)))]


def pings_by_id(conn: Connection, ids: Collection[int]) -> list[Ping]:
    """The pings with these ids, in any order.  Those that were deleted are left out."""
    return [_ping(row) for row in conn.execute(select(*_COLUMNS).where(ping.c.id.in_(ids)))]


def last_ping_id(conn: Connection) -> int:
    """The greatest id of a ping that ``pings_after`` returns; 0 if there is none."""
    query = select(func.max(ping.c.id)).where(is_visible(conn, ping.c.id, "ping"))
    return conn.execute(query).scalar() or 0


def prune_pings(conn: Connection, before: float, limit: int) -> int:
    """Remove the oldest of the pings received before a time.

    :param limit: how many are removed at most, so that nothing else waits long.
    :returns: how many were removed; if that is ``limit``, call again.
    """
    oldest = (
        select(ping.c.id)
        .where(ping.c.received_at < to_micros(before))
        .order_by(ping.c.received_at, ping.c.id)
        .limit(limit)
    )
    keys = list(conn.execute(oldest).scalars())
    return conn.execute(delete(ping).where(ping.c.id.in_(keys))).rowcount


# --- the number of pings ever recorded

# It is the sum of some counters: of one for all, and one for each node that lives.  Nodes would
# wait for each other's commits if they all updated one row.

#: The name of the counter for all; that of a node has its id behind it.
_TOTAL = "pings"

_ADD = (
    update(counter)
    .where(counter.c.name == bindparam("counted"))
    .values(value=counter.c.value + bindparam("more"))
)


def count_new(conn: Connection, more: int, node: int | None) -> None:
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
        count_new(conn, sum(values), None)


def _counter_of(node: int) -> str:
    return f"{_TOTAL}/{node}"
