"""Moves a topic with its subscriptions to another URL: see ``topic_urls``.

A move to a URL of which the store knows nothing changes two rows.  If there is a topic at the new
URL, the two become one: the subscriptions of the one that has few go to the other.  If both have
many, the topic stays where it is, and the broker goes on to read it through the redirect: so no
server can make others wait by a redirect.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, case, delete, insert, select, update

from rsscloud_broker.database.columns import insert_row, lock_rows, to_micros
from rsscloud_broker.model.administration import Change
from rsscloud_broker.storage.changes import record_change_if_any
from rsscloud_broker.storage.checks import NO_CHECK, cause, cause_values
from rsscloud_broker.storage.polls import make_due, merge_change_days
from rsscloud_broker.storage.schema import content, fanout, pending, subscription, topic
from rsscloud_broker.storage.topic_urls import (
    ASKED_URL,
    HAS_SUBSCRIPTIONS,
    asked_among,
    key_of,
    named,
    same,
)
from rsscloud_broker.storage.topics import topic_row
from rsscloud_broker.storage.walks import read_slices, store_slice

#: For this long after a topic has left a URL, in microseconds, a move to that URL is a move to the
#: present URL of that topic.
SETTLED_AFTER = to_micros(7 * 86400)

#: By how many of its old URLs a topic is found, besides those that somebody subscribed to.
MAX_OLD_URLS = 20

#: How many subscriptions one transaction makes another topic's, so that others do not wait.
MAX_AT_ONCE = 250

#: Columns of ``_LEFT_BEHIND`` that the row of a topic keeps when another topic is merged into it.
_NOT_MERGED = ("check_node_id", "poll_node_id", "first_url")

#: The values in the row of a URL that its topic has left.
_LEFT_BEHIND: dict[str, Any] = {
    "digest": None,
    "public_digest": None,
    "size": None,
    "read_at": None,
    "changed_at": None,
    "change_days": "",
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
    "first_url": None,
}


def move_topic(
    conn: Connection, url: str, to: str, at: float, change: Change | None = None
) -> bool:
    """Move a topic with its subscriptions to another URL.

    The topic is still found by its old URL, and by the URLs before that.  If the store
    knows nothing of the new URL, the digest of the last content moves along.

    If the store knows another content at the new URL, it forgets that content: then the next
    fetch finds a change, and the subscribers that moved along are notified.

    :param change: what an administrator did, recorded together with the move; None if no
        administrator moved the topic.
    :returns: False if the topic stays: it or the topic at the other URL has ended, or it
        came from that URL less than a week ago, so that the two redirect to each other; or
        both have too many subscriptions to move in one transaction.
    """
    moved_at = to_micros(at)
    both = select(topic.c.id).where(topic.c.url.in_((url, to)))
    lock_rows(conn, topic.c.id, list(conn.execute(both).scalars()))
    here = conn.execute(select(topic).where(topic.c.id == key_of(url))).first()
    there = conn.execute(select(topic).where(topic.c.url == to)).first()
    if there is not None and there.moved_to_id and moved_at - there.moved_at < SETTLED_AFTER:
        # A topic has left that URL lately: its new row counts as the one at that URL.
        there = conn.execute(select(topic).where(topic.c.id == there.moved_to_id)).one()
    if url == to or (there is not None and there.ended):
        return False
    target = to if there is None else there.url
    if here is not None and (here.ended or here.url == target):
        return False
    old = topic_row(conn, url)
    key = _move_or_merge(conn, old, there, to, moved_at)
    if key is None:
        return False
    is_idle = conn.execute(select(~HAS_SUBSCRIPTIONS).where(topic.c.id == key)).scalar_one()
    conn.execute(
        update(topic)
        .where((topic.c.id == key) | (topic.c.url == old.url))
        .values(idle_at=moved_at if is_idle else None)
    )
    _forget_oldest_urls(conn, key)
    make_due(conn, [key], moved_at)
    record_change_if_any(conn, change)
    return True


def _move_or_merge(
    conn: Connection, old: Row[Any], there: Row[Any] | None, to: str, moved_at: int
) -> int | None:
    """Move a topic to a free URL, or merge it with the topic there.

    :returns: the id of the row of the topic from now on; None if the topic stays.
    :param there: the row of the new URL, or of the topic that it leads to; None if it has none.
    """
    if there is not None and there.moved_to_id:  # a topic has left the new URL
        if there.moved_to_id != old.id and not _restore_topic(conn, there):
            return None
        if there.moved_to_id == old.id:  # it was this topic, which comes back
            conn.execute(delete(topic).where(topic.c.id == there.id))
            there = None
        else:
            there = conn.execute(select(topic).where(topic.c.id == there.id)).one()
    if there is None:
        _change_url(conn, old, to, {"etag": "", "last_modified": ""}, moved_at)
        return int(old.id)
    # The subscriptions of the topic that has few are moved to the row of the other.
    values = _merged_values(old, there)
    if _has_few(conn, old.id):
        _absorb(conn, old, there)
        conn.execute(update(topic).where(topic.c.id == there.id).values(values))
        left = {"moved_to_id": there.id, "moved_at": moved_at, **_LEFT_BEHIND}
        conn.execute(update(topic).where(topic.c.id == old.id).values(left))
        return int(there.id)
    if _has_few(conn, there.id):
        _absorb(conn, there, old)
        conn.execute(delete(topic).where(topic.c.id == there.id))
        known = {name: there._mapping[name] for name in _LEFT_BEHIND if name not in _NOT_MERGED}
        _change_url(conn, old, there.url, known | values, moved_at)
        return int(old.id)
    return None


def _change_url(
    conn: Connection, row: Row[Any], to: str, values: Mapping[str, Any], moved_at: int
) -> None:
    """Give a topic another URL, which has no row, and keep a row for the URL that it has left.

    :param values: further values of the topic.
    """
    first_url = row.first_url or row.url
    conn.execute(
        update(topic).where(topic.c.id == row.id).values(url=to, first_url=first_url, **values)
    )
    left = {"url": row.url, "moved_to_id": row.id, "moved_at": moved_at}
    conn.execute(insert(topic).values(left))


def _forget_oldest_urls(conn: Connection, key: int) -> None:
    """Remove the rows of the URLs that a topic left first, if it has moved more than
    ``MAX_OLD_URLS`` times, except URLs that somebody subscribed to.
    """
    left = select(topic.c.id).where(topic.c.moved_to_id == key)
    latest_first = left.order_by(topic.c.moved_at.desc(), topic.c.id.desc())
    keys = list(conn.execute(latest_first).scalars())
    if len(keys) <= MAX_OLD_URLS:
        return
    asked = asked_among(conn, keys)
    gone = [each for each in keys if each not in asked][MAX_OLD_URLS:]
    if gone:
        conn.execute(delete(topic).where(topic.c.id.in_(gone)))


def _has_few(conn: Connection, key: int) -> bool:
    """Whether a topic has so few subscriptions that one transaction can make them another's."""
    return len(_some_ids(conn, subscription.c.topic_id == key)) <= MAX_AT_ONCE


def _some_ids(conn: Connection, which: ColumnElement[bool]) -> list[int]:
    """The ids of subscriptions: all of them, or more than ``MAX_AT_ONCE``."""
    some = select(subscription.c.id).where(which).limit(MAX_AT_ONCE + 1)
    return list(conn.execute(some).scalars())


def _restore_topic(conn: Connection, left: Row[Any]) -> bool:
    """Undo a move: make the old URL a topic again, with the subscriptions that asked for it.

    :param left: the row of the old URL, which refers to the topic that left it.
    :returns: False if these are too many to move in one transaction.
    """
    query = select(ASKED_URL).where(named.c.id == left.id, topic.c.id == named.c.moved_to_id)
    asked = conn.execute(query).scalar_one()
    of_topic = subscription.c.topic_id == left.moved_to_id
    ids = _some_ids(conn, of_topic & same(conn, subscription.c.asked_url, asked))
    if len(ids) > MAX_AT_ONCE:
        return False
    conn.execute(update(topic).where(topic.c.id == left.id).values(moved_to_id=None, moved_at=None))
    conn.execute(
        update(subscription)
        .where(subscription.c.id.in_(ids))
        .values(topic_id=left.id, asked_url="")
    )
    _point_pending_to(conn, ids, left.id)
    return True


def _absorb(conn: Connection, gone: Row[Any], kept: Row[Any]) -> None:
    """Make everything that refers to the row of a topic refer to that of another topic."""
    ids = _some_ids(conn, subscription.c.topic_id == gone.id)
    # The URL by which the subscriber asked; empty if that is the first URL of its topic.
    asked = subscription.c.asked_url
    first_of_gone, first_of_kept = gone.first_url or gone.url, kept.first_url or kept.url
    if first_of_gone == first_of_kept:  # as after ``_restore_topic``
        first_of_gone = ""
    conn.execute(
        update(subscription)
        .where(subscription.c.id.in_(ids))
        .values(
            topic_id=kept.id,
            asked_url=case((asked == "", first_of_gone), (asked == first_of_kept, ""), else_=asked),
        )
    )
    _merge_fanouts(conn, gone.id, kept.id)
    for table in (fanout, content):
        conn.execute(update(table).where(table.c.topic_id == gone.id).values(topic_id=kept.id))
    _point_pending_to(conn, ids, kept.id)
    conn.execute(update(topic).where(topic.c.moved_to_id == gone.id).values(moved_to_id=kept.id))


def _point_pending_to(conn: Connection, ids: Collection[int], key: int) -> None:
    """Make the pending notifications of subscriptions wait for the content of their new topic.

    :param ids: the ids of the subscriptions.
    :param key: the id of the topic.
    """
    wants_content = pending.c.content_topic_id.is_not(None)
    conn.execute(
        update(pending)
        .where(pending.c.subscription_id.in_(ids), wants_content)
        .values(content_topic_id=key)
    )


def _merge_fanouts(conn: Connection, old_key: int, new_key: int) -> None:
    """If both topics have a fan-out, replace them by one that starts at the smaller cursor.

    The newer fan-out would supersede the older one, and leave its remaining subscriptions out.
    The new one needs a row of its own, since a running walk would overwrite the cursor.  It
    carries a content if either of them does: the newer may have none because no subscription
    wanted content at that URL.
    """
    of_both = fanout.c.topic_id.in_((old_key, new_key)) & ~fanout.c.pushed
    walks = conn.execute(select(fanout).where(of_both)).all()
    # A part may have been split off an older fan-out after the newest one began.
    newest = {
        walk.topic_id: walk for walk in sorted(walks, key=lambda walk: (_whole_id(walk), walk.id))
    }
    if len(newest) < len((old_key, new_key)):
        return
    last = max(newest.values(), key=_whole_id)
    wholes = set(map(_whole_id, newest.values()))
    parts = [walk for walk in walks if _whole_id(walk) in wholes]
    outstanding = read_slices(conn, [walk.id for walk in parts])
    cursor = min(walk.cursor for walk in parts)
    conn.execute(delete(fanout).where(of_both))
    made = insert_row(
        conn,
        fanout,
        topic_id=new_key,
        cursor=cursor,
        begun_at=last.begun_at,
        **_merged_content(last, newest.values()),
    )
    ids = set().union(*outstanding.values())  # the new walk reaches those after its cursor anyway
    store_slice(conn, made, sorted(key for key in ids if key <= cursor), None)


def _merged_content(last: Row[Any], walks: Collection[Row[Any]]) -> dict[str, Any]:
    """The content of a merged fan-out: the newest one, or one that is still to be stored.

    :param last: that of the walks which began last.
    """
    if last.content_id is None and any(walk.later for walk in walks):
        return {"content_id": None, "content_size": 0, "later": True}
    sizes = {walk.content_id: walk.content_size for walk in walks if walk.content_id is not None}
    newest = max(sizes, default=None)
    return {"content_id": newest, "content_size": sizes.get(newest, 0), "later": False}


def _whole_id(walk: Row[Any]) -> int:
    """The id of the fan-out that a part belongs to."""
    return int(walk.part_of or walk.id)


def _merged_values(old: Row[Any], new: Row[Any]) -> dict[str, Any]:
    """The values of a topic at its new URL, about which the store may have known something."""
    values = {
        "check_requested_at": _later_or_none(old.check_requested_at, new.check_requested_at),
        "check_source": old.check_source or new.check_source,
        "check_host": old.check_host or new.check_host,
        "pinged_at": _later_or_none(old.pinged_at, new.pinged_at),
        "changed_at": _later_or_none(old.changed_at, new.changed_at),
        "feed": new.feed or old.feed,
        "change_days": merge_change_days(old.change_days, new.change_days),
        "public_digest": old.public_digest or new.public_digest,
        **cause_values(cause(old).joined(cause(new))),
    }
    names: tuple[str, ...] = ()
    if old.digest is not None and (old.digest, old.size) != (new.digest, new.size):
        # Validators are valid for one URL only.
        values |= {"etag": "", "last_modified": ""}
        names += ("digest", "size", "read_at")
    if new.asked_at is None:
        names += ("asked_at", "result", "failures", "fresh_seconds")
    if new.next_poll_at is None:
        names += ("next_poll_at", "poll_reason", "poll_interval", "planned_at")
    return values | {name: old._mapping[name] for name in names}


def _later_or_none(one: int | None, other: int | None) -> int | None:
    """The later of two times; None if both are missing."""
    return max((at for at in (one, other) if at is not None), default=None)
