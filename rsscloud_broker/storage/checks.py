"""Stores which topics wait to be fetched: the checks that somebody has requested.

Each function runs in a transaction that the caller has begun, and may run again after a
rollback.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Boolean, Connection, Row, bindparam, case, or_, select, update

from rsscloud_broker.records import Bounds, Check
from rsscloud_broker.storage.conflicts import insert_missing
from rsscloud_broker.storage.idle import evict_idle
from rsscloud_broker.storage.schema import topic
from rsscloud_broker.storage.topic_urls import HAS_SUBSCRIPTIONS, TOPIC_ID, key_of, named
from rsscloud_broker.tables import to_micros

#: The limits of a store for which no others are given.
DEFAULT_BOUNDS = Bounds()

#: The values of a topic of which no check is requested.
NO_CHECK = {"check_requested_at": None, "check_pinged": False, "check_node_id": None}

#: Selects what decides whether a check of a topic may be requested, by any of its URLs.
_CHECKABLE = select(
    named.c.url.label("asked"),
    topic.c.id,
    (topic.c.ended == "").label("is_active"),
    HAS_SUBSCRIPTIONS.label("is_watched"),
).join_from(named, topic, topic.c.id == TOPIC_ID)

_EARLIER = topic.c.check_requested_at
_ASKED_AT = bindparam("at", type_=BigInteger())
_CHECK = (
    update(topic)
    .where(topic.c.id == bindparam("key"))
    .values(
        check_requested_at=case((_EARLIER > _ASKED_AT, _EARLIER), else_=_ASKED_AT),
        check_pinged=or_(topic.c.check_pinged, bindparam("pinged", type_=Boolean())),
        check_node_id=bindparam("node", type_=BigInteger()),
    )
)

#: The validators that make the next fetch of a topic unconditional.
NO_VALIDATORS = {"etag": "", "last_modified": ""}


#: Pings request checks of ended topics too; they are left out.
_DUE = (
    select(topic.c.id, topic.c.url, topic.c.check_pinged)
    .where(topic.c.check_requested_at.is_not(None), topic.c.ended == "")
    .order_by(topic.c.check_requested_at, topic.c.id)
)


def checks_due(conn: Connection, limit: int, node: int | None = None) -> list[Check]:
    """See ``IStore.checks_due``.

    :param node: the node id of this process; None if it is the only one.
    """
    query = _DUE.limit(limit)
    if node is not None:
        claim = topic.c.check_node_id
        query = query.where(or_(claim.is_(None), claim == node))
    return [Check(url, pinged) for _, url, pinged in conn.execute(query)]


def claim_checks(conn: Connection, limit: int, node: int) -> list[Check]:
    """See ``IStore.claim_checks``.

    :param node: the node id of this process.
    """
    free = _DUE.where(topic.c.check_node_id.is_(None)).limit(limit)
    found = conn.execute(free.with_for_update(skip_locked=True, key_share=True)).all()
    claimed = update(topic).where(topic.c.id.in_([row.id for row in found]))
    conn.execute(claimed.values(check_node_id=node))
    return [Check(row.url, row.check_pinged) for row in found]


class AskedCheck(NamedTuple):
    """A request for a check: see ``IStore.request_check``.

    :ivar at: the time of the request, in microseconds.
    """

    url: str
    at: int
    pinged: bool = False


def request_checks(
    conn: Connection,
    asked: Sequence[AskedCheck],
    bounds: Bounds = DEFAULT_BOUNDS,
    node: int | None = None,
) -> list[bool]:
    """See ``IStore.request_check``, for several topics.

    :param node: the node that claims the checks; None to leave them free.
    """
    rows = conn.execute(_CHECKABLE.where(named.c.url.in_({request.url for request in asked})))
    known = {row.asked: row for row in rows}
    checks = [
        {"key": row.id, "at": request.at, "pinged": request.pinged, "node": node}
        for request in asked
        if (row := known.get(request.url)) and _may_be_checked(request, row)
    ]
    if checks:  # first, so that ``evict_idle`` does not remove these topics
        conn.execute(_CHECK, sorted(checks, key=itemgetter("key", "at")))
    unknown: dict[str, int] = {}
    for request in asked:
        if request.pinged and request.url not in known:
            unknown[request.url] = max(request.at, unknown.get(request.url, request.at))
    allowed = evict_idle(conn, bounds.idle_topics, len(unknown)) if unknown else 0
    made = dict(islice(unknown.items(), allowed))
    if made:
        _make_and_check(conn, made, node)
    return [
        _may_be_checked(request, row)
        if (row := known.get(request.url))
        else request.pinged and request.url in made
        for request in asked
    ]


def _make_and_check(conn: Connection, asked: Mapping[str, int], node: int | None) -> None:
    """Store topics that somebody has pinged, and request a check of each.

    :param asked: when the checks were requested, in microseconds, by the URLs of the topics.
    """
    rows = [
        {
            "url": url,
            "idle_at": at,
            "check_requested_at": at,
            "check_pinged": True,
            "check_node_id": node,
        }
        for url, at in sorted(asked.items())
    ]
    made = insert_missing(conn, topic, rows, topic.c.url)
    if len(made) < len(rows):  # another node has just stored the others
        others = conn.execute(select(topic.c.id, topic.c.url).where(topic.c.url.in_(asked)))
        checks = [
            {"key": key, "at": asked[url], "pinged": True, "node": node}
            for key, url in others
            if url not in made
        ]
        conn.execute(_CHECK, sorted(checks, key=itemgetter("key")))


def _may_be_checked(asked: AskedCheck, row: Row[Any]) -> bool:
    """Whether a check of a known topic may be requested."""
    return bool(row.is_active and (asked.pinged or row.is_watched))


def request_content(conn: Connection, url: str, at: float) -> bool:
    """See ``IStore.request_content``."""
    if not request_checks(conn, [AskedCheck(url, to_micros(at))])[0]:
        return False
    conn.execute(update(topic).where(topic.c.id == key_of(url)).values(NO_VALIDATORS))
    return True


def drop_check(conn: Connection, url: str, asked_until: float) -> None:
    """See ``IStore.drop_check``."""
    conn.execute(
        update(topic)
        .where(topic.c.id == key_of(url), topic.c.check_requested_at <= to_micros(asked_until))
        .values(NO_CHECK)
    )
