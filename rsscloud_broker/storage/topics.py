"""What the store does with topics: readings of them, checks asked for, their ends.

Each function is one step of a transaction that the caller has begun; run again
after a rollback, it does the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

import attrs
from sqlalchemy import (
    BigInteger,
    Boolean,
    Connection,
    Row,
    Select,
    bindparam,
    case,
    false,
    insert,
    or_,
    select,
    update,
)

from rsscloud_broker.model import Content, FetchResult, Ping, Topic
from rsscloud_broker.records import Bounds, Check, FetchRecord
from rsscloud_broker.storage.contents import (
    insert_content,
    is_kept,
    is_waited_for,
    is_wanted,
    keep_pushed,
    remove_outdated,
    remove_unneeded,
)
from rsscloud_broker.storage.idle import make_room
from rsscloud_broker.storage.pings import insert_pings
from rsscloud_broker.storage.schema import (
    fanout,
    pending,
    subscription,
    to_micros,
    to_micros_or_none,
    to_seconds_or_none,
    topic,
)
from rsscloud_broker.storage.topic_urls import (
    ASKED_FOR,
    PRESENT,
    SOMEBODY,
    WHOLE,
    as_topic,
    key_of,
    named,
)

#: Those of a store that is given no others.
DEFAULT_BOUNDS = Bounds()

#: What a topic has of which no check is asked for, or not any more.
_NO_CHECK = {"check_requested_at": None, "check_pinged": False}

_PLAIN = select(topic)

#: Topics of which checks are asked for, by whatever URL.
_CHECKABLE = select(
    named.c.url.label("asked"),
    topic.c.id,
    (topic.c.ended == "").label("is_there"),
    SOMEBODY.label("is_watched"),
).join_from(named, topic, topic.c.id == PRESENT)

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

#: What a topic has of which the content is to be sent, whatever was read before.
NO_VALIDATORS = {"etag": "", "last_modified": ""}


def get_topics(conn: Connection, urls: Sequence[str]) -> list[Topic | None]:
    """See ``IStore.topic``, for several."""
    rows = conn.execute(ASKED_FOR.where(named.c.url.in_(urls)))
    found = {row.asked: as_topic(row) for row in rows}
    return [found.get(url) for url in urls]


def topic_key(conn: Connection, url: str) -> int:
    """The id of a topic, which is made if it is not known yet."""
    key = conn.execute(select(PRESENT).where(named.c.url == url)).scalar()
    if key is None:
        made = conn.execute(insert(topic).values(url=url)).inserted_primary_key
        assert made is not None  # a single insert always has one
        key = made[0]
    return int(key)


def topic_row(conn: Connection, url: str, query: Select[Any] = _PLAIN) -> Row[Any]:
    """A topic, which is made if it is not known yet.

    :param query: what is wanted of topics.
    """
    wanted = query.where(topic.c.id == key_of(url))
    row = conn.execute(wanted).first()
    if row is None:
        topic_key(conn, url)
        row = conn.execute(wanted).one()
    return row


def record_fetch(
    conn: Connection, reading: FetchResult, ping: Ping | None, bounds: Bounds = DEFAULT_BOUNDS
) -> FetchRecord:
    """See ``IStore.record_fetch``."""
    row = topic_row(conn, reading.url, WHOLE)
    key: int = row.id
    read_at = to_micros(reading.started_at)
    is_idle = not row.counted
    if is_idle and row.idle_at is None:
        make_room(conn, bounds.idle_topics - 1)
    changed = (row.digest, row.size) != (reading.digest, reading.size)
    values: dict[str, object] = {
        "read_at": read_at,
        "etag": reading.validators.etag,
        "last_modified": reading.validators.last_modified,
        "fresh_seconds": to_micros_or_none(reading.fresh_seconds),
        "asked_at": read_at,
        "result": reading.result,
        "failures": 0,
        "idle_at": read_at if is_idle else None,
    }
    if reading.pinged:
        values["pinged_at"] = read_at
    if changed:
        values |= {"digest": reading.digest, "size": reading.size, "changed_at": read_at}
    if row.check_requested_at is not None and row.check_requested_at <= read_at:
        values |= _NO_CHECK
    conn.execute(update(topic).where(topic.c.id == key).values(values))
    wanted, content_key = _keep_content(conn, key, reading, changed, bounds)
    recorded = None
    if changed:
        asked_at = reading.started_at if reading.asked_at is None else reading.asked_at
        later = wanted and content_key is None
        carried = None if content_key is None else reading.content
        _begin_fanout(conn, key, to_micros(asked_at), content_key, carried, later=later)
        (recorded,) = (None,) if ping is None else insert_pings(conn, [ping])
    brought = not changed and content_key is not None
    if brought:
        _bring(conn, key, content_key, reading)
    if content_key is not None:
        remove_unneeded(conn, [reading.url])
    now_known = attrs.evolve(
        as_topic(row),
        digest=reading.digest,
        size=reading.size,
        read_at=to_seconds_or_none(read_at),
        changed_at=to_seconds_or_none(read_at if changed else row.changed_at),
        validators=reading.validators,
    )
    return FetchRecord(
        topic=now_known,
        changed=changed,
        ping=recorded,
        brought=brought,
        stored=content_key is not None,
    )


def _keep_content(
    conn: Connection, key: int, reading: FetchResult, changed: bool, bounds: Bounds
) -> tuple[bool, int | None]:
    """Whether somebody wants what was read; the key under which it is kept then, if it is."""
    if changed:
        wanted = is_wanted(conn, key)
    else:
        # Notifications may wait for what nobody wanted when it changed, or had no room.
        waited_for = is_waited_for(conn, key) or _is_brought_later(conn, key)
        wanted = waited_for and not is_kept(conn, key)
    content_key = None
    if wanted and reading.content is not None:
        content_key = insert_content(conn, key, reading.url, reading.content, bounds)
    if changed and content_key is None:
        remove_outdated(conn, key)
    return wanted, content_key


def _is_brought_later(conn: Connection, key: int) -> bool:
    """Whether there is a walk over a topic whose content had no room."""
    walk = select(fanout.c.id).where(fanout.c.topic_id == key, fanout.c.later)
    return conn.execute(walk.limit(1)).first() is not None


def _bring(conn: Connection, key: int, content_key: int | None, reading: FetchResult) -> None:
    """Let a content be carried by the walks that had none, and those notifications be due
    that wait for it and were not tried yet.
    """
    at = to_micros(reading.started_at)
    conn.execute(
        update(fanout)
        .where(fanout.c.topic_id == key, fanout.c.later)
        .values(content_id=content_key, content_size=reading.size, later=false())
    )
    conn.execute(
        update(pending)
        .where(
            pending.c.content_topic_id == key,
            pending.c.attempts == 0,
            pending.c.due_at > at,
        )
        .values(due_at=at)
    )


def _begin_fanout(
    conn: Connection,
    key: int,
    begun_at: int,
    content_key: int | None,
    carried: Content | None = None,
    *,
    pushed: bool = False,
    later: bool = False,
) -> None:
    """Begin a walk over the subscriptions of a topic, if it has any."""
    if _has_subscriptions(conn, key):
        conn.execute(
            insert(fanout).values(
                topic_id=key,
                cursor=0,
                begun_at=begun_at,
                content_id=content_key,
                content_size=0 if carried is None else len(carried.body),
                pushed=pushed,
                later=later,
            )
        )


def _has_subscriptions(conn: Connection, key: int) -> bool:
    anybody = select(subscription.c.id).where(subscription.c.topic_id == key).limit(1)
    return conn.execute(anybody).first() is not None


def push_content(conn: Connection, url: str, new: Content, at: float) -> bool:
    """See ``IStore.push_content``.

    It is carried though nobody may want content now: they may once it gets to them.  It is
    kept whatever the budgets are, since it cannot be had again.
    """
    key = conn.execute(select(PRESENT).where(named.c.url == url)).scalar()
    if key is None or not _has_subscriptions(conn, key):
        return False
    begun_at = to_micros(at)
    conn.execute(update(topic).where(topic.c.id == key).values(changed_at=begun_at))
    _begin_fanout(conn, key, begun_at, keep_pushed(conn, key, new), new, pushed=True)
    remove_unneeded(conn, [url])
    return True


def checks_due(conn: Connection, limit: int) -> list[Check]:
    """See ``IStore.checks_due``.  A ping asks for checks of topics that ended, too."""
    query = (
        select(topic.c.url, topic.c.check_pinged)
        .where(topic.c.check_requested_at.is_not(None), topic.c.ended == "")
        .order_by(topic.c.check_requested_at, topic.c.id)
        .limit(limit)
    )
    return [Check(url, pinged) for url, pinged in conn.execute(query)]


class AskedCheck(NamedTuple):
    """A check that is asked for: see ``IStore.request_check``.

    :ivar at: microseconds.
    """

    url: str
    at: int
    pinged: bool = False


def request_checks(
    conn: Connection, asked: Sequence[AskedCheck], bounds: Bounds = DEFAULT_BOUNDS
) -> list[bool]:
    """See ``IStore.request_check``, for several.  False of topics that have ended."""
    rows = conn.execute(_CHECKABLE.where(named.c.url.in_({one.url for one in asked})))
    known = {row.asked: row for row in rows}
    checks = [
        {"key": row.id, "at": one.at, "pinged": one.pinged}
        for one in asked
        if (row := known.get(one.url)) and _may_be_checked(one, row)
    ]
    if checks:  # before room is made, for which what nobody asks for is removed
        conn.execute(_CHECK, sorted(checks, key=itemgetter("key", "at")))
    unknown: dict[str, int] = {}
    for one in asked:
        if one.pinged and one.url not in known:
            unknown[one.url] = max(one.at, unknown.get(one.url, one.at))
    room = make_room(conn, bounds.idle_topics, len(unknown)) if unknown else 0
    made = dict(islice(unknown.items(), room))
    if made:
        rows_made = [
            {"url": url, "idle_at": at, "check_requested_at": at, "check_pinged": True}
            for url, at in made.items()
        ]
        conn.execute(insert(topic), rows_made)
    return [
        _may_be_checked(one, row) if (row := known.get(one.url)) else one.pinged and one.url in made
        for one in asked
    ]


def _may_be_checked(asked: AskedCheck, row: Row[Any]) -> bool:
    """Whether a check of a known topic may be asked for."""
    return bool(row.is_there and (asked.pinged or row.is_watched))


def _make_known(conn: Connection, url: str, at: int, bounds: Bounds) -> bool:
    """Have a topic, which nobody has subscribed to if it is not known yet.

    :returns: False if there is no room for it.
    """
    if conn.execute(select(topic.c.id).where(topic.c.url == url)).first() is not None:
        return True
    if not make_room(conn, bounds.idle_topics, 1):
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
        .values(_NO_CHECK)
    )


def end_topic(
    conn: Connection, url: str, reason: str, at: float, bounds: Bounds = DEFAULT_BOUNDS
) -> bool:
    """See ``IStore.end_topic``."""
    ended_at = to_micros(at)
    if not _make_known(conn, url, ended_at, bounds):
        return False
    key = topic_key(conn, url)
    ended = conn.execute(
        update(topic)
        .where(topic.c.id == key, topic.c.ended == "")
        .values(ended=reason, changed_at=ended_at, next_poll_at=None, **_NO_CHECK)
    )
    if not ended.rowcount:
        return False
    _begin_fanout(conn, key, ended_at, None)
    return True


def revive_topic(conn: Connection, url: str) -> bool:
    """See ``IStore.revive_topic``.  Checks that were asked for meanwhile are dropped."""
    revived = conn.execute(
        update(topic)
        .where(topic.c.id == key_of(url), topic.c.ended != "")
        .values(
            ended="",
            next_poll_at=case((SOMEBODY, 0), else_=None),
            **NO_VALIDATORS,
            **_NO_CHECK,
        )
    )
    return revived.rowcount > 0


def watched_topics(conn: Connection, after: str, limit: int) -> list[str]:
    """See ``IStore.watched_topics``."""
    query = (
        select(topic.c.url)
        .where(topic.c.url > after, topic.c.ended == "", SOMEBODY)
        .order_by(topic.c.url)
        .limit(limit)
    )
    return list(conn.execute(query).scalars())
