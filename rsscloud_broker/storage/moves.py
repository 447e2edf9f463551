"""Moves a topic with its subscriptions to another URL: see ``topic_urls``.

Each function runs in a transaction that the caller has begun, and may run again after a
rollback.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Row, and_, case, delete, insert, select, update

from rsscloud_broker.admin_records import Change
from rsscloud_broker.storage.changes import record_change_if_any
from rsscloud_broker.storage.checks import NO_CHECK
from rsscloud_broker.storage.conflicts import lock_rows
from rsscloud_broker.storage.polls import make_due
from rsscloud_broker.storage.schema import (
    content,
    fanout,
    pending,
    subscription,
    topic,
)
from rsscloud_broker.storage.topic_urls import HAS_SUBSCRIPTIONS, IS_ASKED_URL, key_of
from rsscloud_broker.storage.topics import topic_row
from rsscloud_broker.storage.walks import read_slices, store_slice
from rsscloud_broker.tables import (
    to_micros,
)

#: For so long after a topic has left a URL, a move to that URL is a move to the topic's present
#: URL.
SETTLED_AFTER = to_micros(7 * 86400)

#: By so many of its old URLs a topic is found, besides those that somebody subscribed to.
MAX_OLD_URLS = 20

#: The values in the row of a URL that its topic has left.
_EMPTY: dict[str, Any] = {
    "digest": None,
    "size": None,
    "read_at": None,
    "changed_at": None,
    **NO_CHECK,
    "poll_node_id": None,
    "etag": "",
    "last_modified": "",
    "fresh_seconds": None,
    "asked_at": None,
    "result": "",
    "failures": 0,
    "pinged_at": None,
    "next_poll_at": None,
    "poll_reason": "",
    "poll_interval": None,
    "planned_at": None,
    "feed": "",
}


def move_topic(
    conn: Connection, url: str, to: str, at: float, change: Change | None = None
) -> bool:
    """See ``IStore.move_topic``.

    If the store knows another content at the new URL, it forgets that content: then the next
    fetch finds a change, and the subscribers that moved along are notified.
    """
    moved_at = to_micros(at)
    both = select(topic.c.id).where(topic.c.url.in_((url, to)))
    lock_rows(conn, topic.c.id, list(conn.execute(both).scalars()))
    here = conn.execute(select(topic).where(topic.c.id == key_of(url))).first()
    there = conn.execute(select(topic).where(topic.c.url == to)).first()
    if there is not None and there.moved_to_id and moved_at - there.moved_at < SETTLED_AFTER:
        there = conn.execute(select(topic).where(topic.c.id == there.moved_to_id)).one()
    if url == to or (there is not None and there.ended):
        return False
    if here is not None and (here.ended or here.url == (to if there is None else there.url)):
        return False
    old = topic_row(conn, url)
    if there is not None and there.moved_to_id:
        _restore_topic(conn, there)
    new = topic_row(conn, to if there is None else there.url)
    _repoint(conn, old, new)
    conn.execute(update(topic).where(topic.c.id == new.id).values(_merged_values(old, new)))
    conn.execute(
        update(topic)
        .where(topic.c.id == old.id)
        .values(moved_to_id=new.id, moved_at=moved_at, **_EMPTY)
    )
    is_idle = conn.execute(select(~HAS_SUBSCRIPTIONS).where(topic.c.id == new.id)).scalar_one()
    conn.execute(
        update(topic)
        .where(topic.c.id.in_((old.id, new.id)))
        .values(idle_at=moved_at if is_idle else None)
    )
    _forget_oldest_urls(conn, new.id)
    make_due(conn, [new.id], moved_at)
    record_change_if_any(conn, change)
    return True


def _forget_oldest_urls(conn: Connection, key: int) -> None:
    """Remove the rows of the URLs that a topic left first, if it has moved more than
    ``MAX_OLD_URLS`` times, except URLs that somebody subscribed to.
    """
    first = (
        select(topic.c.id)
        .where(topic.c.moved_to_id == key, ~IS_ASKED_URL)
        .order_by(topic.c.moved_at.desc(), topic.c.id.desc())
        .offset(MAX_OLD_URLS)
    )
    gone = list(conn.execute(first).scalars())
    if gone:
        conn.execute(delete(topic).where(topic.c.id.in_(gone)))


def _restore_topic(conn: Connection, left: Row[Any]) -> None:
    """Make a topic again of a URL that its topic has left, with the subscriptions whose
    subscribers asked for that URL.
    """
    conn.execute(update(topic).where(topic.c.id == left.id).values(moved_to_id=None, moved_at=None))
    conn.execute(
        update(subscription)
        .where(subscription.c.topic_id == left.moved_to_id, subscription.c.asked_url == left.url)
        .values(topic_id=left.id, asked_url="")
    )


def _repoint(conn: Connection, old: Row[Any], new: Row[Any]) -> None:
    """Make everything that refers to the old row of a topic refer to its new row."""
    asked = subscription.c.asked_url
    conn.execute(
        update(subscription)
        .where(subscription.c.topic_id == old.id)
        .values(topic_id=new.id, asked_url=case((asked == "", old.url), else_=asked))
    )
    _merge_fanouts(conn, old.id, new.id)
    for table in (fanout, content):
        conn.execute(update(table).where(table.c.topic_id == old.id).values(topic_id=new.id))
    conn.execute(
        update(pending)
        .where(
            pending.c.content_topic_id.is_not(None),
            pending.c.content_topic_id != new.id,
            pending.c.subscription_id.in_(
                select(subscription.c.id).where(subscription.c.topic_id == new.id)
            ),
        )
        .values(content_topic_id=new.id)
    )
    conn.execute(update(topic).where(topic.c.moved_to_id == old.id).values(moved_to_id=new.id))


def _merge_fanouts(conn: Connection, old_key: int, new_key: int) -> None:
    """If both topics have a fan-out, replace them by one that starts at the smaller cursor.

    The newer fan-out would supersede the older one, and leave its remaining subscriptions out.
    The new one needs a row of its own, since a running walk would overwrite the cursor.  It
    carries a content if either of them does: the newer may have none because no subscription
    wanted content at that URL.
    """
    of_both = and_(fanout.c.topic_id.in_((old_key, new_key)), ~fanout.c.pushed)
    walks = conn.execute(select(fanout).where(of_both).order_by(fanout.c.id)).all()
    newest = {walk.topic_id: walk for walk in walks}
    if len(newest) < len((old_key, new_key)):
        return
    last = max(newest.values(), key=attrgetter("id"))
    lacks_content = last.content_id is None and any(walk.later for walk in newest.values())
    contents = {
        walk.content_id: walk.content_size
        for walk in newest.values()
        if walk.content_id is not None and not lacks_content
    }
    content_key = max(contents, default=None)
    wholes = {walk.part_of or walk.id for walk in newest.values()}
    parts = [walk for walk in walks if (walk.part_of or walk.id) in wholes]
    outstanding = read_slices(conn, [walk.id for walk in parts])
    cursor = min(walk.cursor for walk in parts)
    conn.execute(delete(fanout).where(of_both))
    made = conn.execute(
        insert(fanout).values(
            topic_id=new_key,
            cursor=cursor,
            begun_at=last.begun_at,
            content_id=content_key,
            content_size=0 if content_key is None else contents[content_key],
            later=lacks_content,
        )
    ).inserted_primary_key
    assert made is not None  # a single insert always has one
    ids = set().union(*outstanding.values())  # the new walk reaches those after its cursor anyway
    store_slice(conn, made[0], sorted(key for key in ids if key <= cursor), None)


def _merged_values(old: Row[Any], new: Row[Any]) -> dict[str, Any]:
    """The values of a topic at its new URL, about which the store may have known something."""
    values = {
        "check_requested_at": _later(old.check_requested_at, new.check_requested_at),
        "check_pinged": old.check_pinged or new.check_pinged,
        "check_source": old.check_source or new.check_source,
        "check_host": old.check_host or new.check_host,
        "pinged_at": _later(old.pinged_at, new.pinged_at),
        "feed": new.feed or old.feed,
    }
    names: tuple[str, ...] = ()
    if old.digest is not None and (old.digest, old.size) != (new.digest, new.size):
        # Validators are valid for one URL only.
        values |= {"etag": "", "last_modified": ""}
        names += ("digest", "size", "read_at", "changed_at")
    if new.asked_at is None:
        names += ("asked_at", "result", "failures", "fresh_seconds")
    if new.next_poll_at is None:
        names += ("next_poll_at", "poll_reason", "poll_interval", "planned_at")
    return values | {name: old._mapping[name] for name in names}


def _later(one: int | None, other: int | None) -> int | None:
    return max((at for at in (one, other) if at is not None), default=None)
