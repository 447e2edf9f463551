"""Stores topics: requested checks, pushed contents, and the ends of topics.

``recording`` stores what fetches have found.

Each function runs in a transaction that the caller has begun, and may run again after a
rollback.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import (
    BigInteger,
    Boolean,
    Connection,
    Row,
    Select,
    Text,
    bindparam,
    case,
    insert,
    or_,
    select,
    update,
)

from rsscloud_broker.admin_records import Change
from rsscloud_broker.model import Content, Topic
from rsscloud_broker.records import Bounds, Check
from rsscloud_broker.storage.changes import record_change_if_any
from rsscloud_broker.storage.contents import (
    keep_pushed,
    remove_unneeded,
)
from rsscloud_broker.storage.idle import evict_idle
from rsscloud_broker.storage.schema import fanout, subscription, topic
from rsscloud_broker.storage.topic_urls import (
    HAS_SUBSCRIPTIONS,
    TOPIC_ID,
    TOPICS_BY_URL,
    as_topic,
    key_of,
    named,
)
from rsscloud_broker.tables import to_micros

T = TypeVar("T")

#: The limits of a store for which no others are given.
DEFAULT_BOUNDS = Bounds()

#: The values of a topic of which no check is requested.
NO_CHECK = {"check_requested_at": None, "check_pinged": False}

_PLAIN = select(topic)

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
    )
)

#: Replaces the columns of a topic that are given when it is executed.  It is built once, since
#: to build it takes longer than to execute it.
UPDATE = update(topic).where(topic.c.id == bindparam("key"))

#: The validators that make the next fetch of a topic unconditional.
NO_VALIDATORS = {"etag": "", "last_modified": ""}


def get_topics(conn: Connection, urls: Sequence[str]) -> list[Topic | None]:
    """See ``IStore.topic``, for several topics."""
    rows = conn.execute(TOPICS_BY_URL.where(named.c.url.in_(urls)))
    found = {row.asked: as_topic(row) for row in rows}
    return [found.get(url) for url in urls]


def topic_key(conn: Connection, url: str) -> int:
    """The id of a topic.  Stores the topic if it is unknown."""
    key = conn.execute(select(TOPIC_ID).where(named.c.url == url)).scalar()
    if key is None:
        made = conn.execute(insert(topic).values(url=url)).inserted_primary_key
        assert made is not None  # a single insert always has one
        key = made[0]
    return int(key)


def topic_row(conn: Connection, url: str, query: Select[Any] = _PLAIN) -> Row[Any]:
    """The row of a topic.  Stores the topic if it is unknown.

    :param query: selects the columns.
    """
    wanted, given = _at_url(query), {"wanted_url": url}
    row = conn.execute(wanted, given).first()
    if row is None:
        topic_key(conn, url)
        row = conn.execute(wanted, given).one()
    return row


@cache
def _at_url(query: Select[Any]) -> Select[Any]:
    """A query for the topic at a URL.  It is built once: that takes longer than to execute it."""
    return query.where(topic.c.id == key_of(bindparam("wanted_url", type_=Text())))


def a_fanout(
    key: int,
    begun_at: int,
    content_key: int | None,
    carried: Content | None = None,
    *,
    pushed: bool = False,
    lacks_content: bool = False,
) -> dict[str, object]:
    """The values of a new fan-out of a topic, which has subscriptions."""
    return {
        "topic_id": key,
        "cursor": 0,
        "begun_at": begun_at,
        "content_id": content_key,
        "content_size": 0 if carried is None else len(carried.body),
        "pushed": pushed,
        "later": lacks_content,
    }


def _has_subscriptions(conn: Connection, key: int) -> bool:
    anybody = select(subscription.c.id).where(subscription.c.topic_id == key).limit(1)
    return conn.execute(anybody).first() is not None


def push_content(conn: Connection, url: str, new: Content, at: float) -> bool:
    """See ``IStore.push_content``.

    The content is stored even if no subscription wants content now, since one may by the time
    that the fan-out reaches it.  It is stored whatever the limits are, since it cannot be fetched
    again.
    """
    key = conn.execute(select(TOPIC_ID).where(named.c.url == url)).scalar()
    if key is None or not _has_subscriptions(conn, key):
        return False
    begun_at = to_micros(at)
    conn.execute(update(topic).where(topic.c.id == key).values(changed_at=begun_at))
    kept = keep_pushed(conn, key, new)
    conn.execute(insert(fanout), a_fanout(key, begun_at, kept, new, pushed=True))
    remove_unneeded(conn, [url])
    return True


def checks_due(conn: Connection, limit: int) -> list[Check]:
    """See ``IStore.checks_due``.  Pings request checks of ended topics too; they are left out."""
    query = (
        select(topic.c.url, topic.c.check_pinged)
        .where(topic.c.check_requested_at.is_not(None), topic.c.ended == "")
        .order_by(topic.c.check_requested_at, topic.c.id)
        .limit(limit)
    )
    return [Check(url, pinged) for url, pinged in conn.execute(query)]


class AskedCheck(NamedTuple):
    """A request for a check: see ``IStore.request_check``.

    :ivar at: the time of the request, in microseconds.
    """

    url: str
    at: int
    pinged: bool = False


def request_checks(
    conn: Connection, asked: Sequence[AskedCheck], bounds: Bounds = DEFAULT_BOUNDS
) -> list[bool]:
    """See ``IStore.request_check``, for several topics."""
    rows = conn.execute(_CHECKABLE.where(named.c.url.in_({request.url for request in asked})))
    known = {row.asked: row for row in rows}
    checks = [
        {"key": row.id, "at": request.at, "pinged": request.pinged}
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
        rows_made = [
            {"url": url, "idle_at": at, "check_requested_at": at, "check_pinged": True}
            for url, at in made.items()
        ]
        conn.execute(insert(topic), rows_made)
    return [
        _may_be_checked(request, row)
        if (row := known.get(request.url))
        else request.pinged and request.url in made
        for request in asked
    ]


def _may_be_checked(asked: AskedCheck, row: Row[Any]) -> bool:
    """Whether a check of a known topic may be requested."""
    return bool(row.is_active and (asked.pinged or row.is_watched))


def _make_known(conn: Connection, url: str, at: int, bounds: Bounds) -> bool:
    """Store a topic without subscriptions, if it is unknown.

    :returns: False if the topic does not fit.
    """
    if conn.execute(select(topic.c.id).where(topic.c.url == url)).first() is not None:
        return True
    if not evict_idle(conn, bounds.idle_topics, 1):
        return False
    conn.execute(insert(topic).values(url=url, idle_at=at))
    return True


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


def end_topic(
    conn: Connection,
    url: str,
    reason: str,
    at: float,
    bounds: Bounds = DEFAULT_BOUNDS,
    change: Change | None = None,
) -> bool:
    """See ``IStore.end_topic``."""
    ended_at = to_micros(at)
    if not _make_known(conn, url, ended_at, bounds):
        return False
    key = topic_key(conn, url)
    ended = conn.execute(
        update(topic)
        .where(topic.c.id == key, topic.c.ended == "")
        .values(ended=reason, changed_at=ended_at, next_poll_at=None, **NO_CHECK)
    )
    if not ended.rowcount:
        return False
    if _has_subscriptions(conn, key):
        conn.execute(insert(fanout), a_fanout(key, ended_at, None))
    record_change_if_any(conn, change)
    return True


def revive_topic(conn: Connection, url: str, change: Change | None = None) -> bool:
    """See ``IStore.revive_topic``.  Checks that were requested meanwhile are dropped."""
    revived = conn.execute(
        update(topic)
        .where(topic.c.id == key_of(url), topic.c.ended != "")
        .values(
            ended="",
            next_poll_at=case((HAS_SUBSCRIPTIONS, 0), else_=None),
            **NO_VALIDATORS,
            **NO_CHECK,
        )
    )
    if not revived.rowcount:
        return False
    record_change_if_any(conn, change)
    return True
