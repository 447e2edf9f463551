"""Stores topics by the normal form of their URLs, and the URLs that subscribers wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from rsscloud_broker.util.urls import normal_form

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

#: When the check of a merged topic was requested: long ago, so it is fetched at the start.
_SOON = 1

#: How many rows are read or changed by one statement.
_STEP = 1000

_WRITTEN = (("subscription", "written_url"), ("intent", "written_topic"))


def _table(name: str, *columns: str) -> sa.TableClause:
    return sa.table(name, *map(sa.column, columns))


_topic = _table(
    "topic", "id", "url", "moved_to_id", "ended", "digest", "size", "read_at", "etag",
    "last_modified", "check_requested_at", "next_poll_at", "idle_at",
)  # fmt: skip
_subscription = _table(
    "subscription", "id", "topic_id", "asked_url", "written_url", "callback_url", "protocol",
    "procedure", "expires_at",
)  # fmt: skip
_intent = _table("intent", "id", "topic", "written_topic", "callback_url", "protocol", "procedure")
_waiting = _table("waiting", "subscription_id", "content_topic_id", "content_id")
_queued = _table("queued", "subscription_id", "content_id")
_fanout = _table("fanout", "id", "topic_id")
_content = _table("content", "id", "topic_id")

_CALLBACK = ("callback_url", "protocol", "procedure")


def upgrade() -> None:
    """Bring the URLs of all topics into normal form.  Merge topics whose URLs become equal."""
    for table, column in _WRITTEN:
        op.add_column(table, sa.Column(column, sa.Text(), nullable=False, server_default=""))
    conn = op.get_bind()
    for row in _written_otherwise(conn, _topic, _topic.c.url):
        _bring_topic(conn, row.id, normal_form(row.url))
    for row in _written_otherwise(conn, _intent, _intent.c.topic):
        _bring_intent(conn, row, normal_form(row.topic))


def downgrade() -> None:
    """Drop the URLs as subscribers wrote them.  Topics stay merged."""
    for table, column in _WRITTEN:
        op.drop_column(table, column)


def _written_otherwise(
    conn: sa.Connection, table: sa.TableClause, url: sa.ColumnClause[Any]
) -> Iterator[sa.Row[Any]]:
    """The rows whose URL is not in normal form, in the order of their ids."""
    after = -1
    while True:
        query = sa.select(table).where(table.c.id > after).order_by(table.c.id).limit(_STEP)
        rows = conn.execute(query).all()
        if not rows:
            return
        after = rows[-1].id
        yield from (row for row in rows if normal_form(getattr(row, url.name)) != row._mapping[url])


def _row(conn: sa.Connection, condition: sa.ColumnElement[bool]) -> sa.Row[Any] | None:
    return conn.execute(sa.select(_topic).where(condition)).first()


def _bring_topic(conn: sa.Connection, key: int, url: str) -> None:
    """Store a topic under the normal form of its URL, or merge it into the one that has it."""
    old = _row(conn, _topic.c.id == key)
    if old is None:  # it was merged
        return
    there = _row(conn, _topic.c.url == url)
    if there is not None and there.moved_to_id != old.id:
        _merge(conn, old, there)
        return
    asked = "" if old.moved_to_id is None else url
    _move_subscriptions(conn, old, old.moved_to_id or old.id, asked, written=old.url)
    if there is not None:  # from where it had moved to its other spelling
        _move_subscriptions(conn, there, old.id, "", written="")
        conn.execute(sa.delete(_topic).where(_topic.c.id == there.id))
    conn.execute(sa.update(_topic).where(_topic.c.id == old.id).values(url=url))


def _move_subscriptions(
    conn: sa.Connection, old: sa.Row[Any], topic_id: int, asked_url: str, *, written: str
) -> None:
    """Move the subscriptions of a topic to another topic.

    If two subscriptions become equal, the one whose lease ends later stays.
    """
    mine = _subscription.alias("mine")
    of_old = sa.and_(
        mine.c.topic_id == (old.moved_to_id or old.id),
        mine.c.asked_url == ("" if old.moved_to_id is None else old.url),
    )
    other = _subscription.alias("other")
    same = sa.and_(
        other.c.topic_id == topic_id,
        other.c.asked_url == asked_url,
        other.c.id != mine.c.id,
        *(mine.c[name] == other.c[name] for name in _CALLBACK),
    )
    left = set(conn.execute(sa.select(mine.c.id).where(of_old)).scalars())
    twins = sa.select(
        mine.c.id, other.c.id, (mine.c.expires_at >= other.c.expires_at).label("mine_stays")
    ).join_from(mine, other, same)
    for my_id, other_id, mine_stays in conn.execute(twins.where(of_old)).all():
        gone, stays = (other_id, my_id) if mine_stays else (my_id, other_id)
        _hand_over(conn, gone, stays)
        conn.execute(sa.delete(_subscription).where(_subscription.c.id == gone))
        left.discard(gone)
    keys = sorted(left)
    for start in range(0, len(keys), _STEP):
        some = keys[start : start + _STEP]
        conn.execute(
            sa.update(_subscription)
            .where(_subscription.c.id.in_(some))
            .values(topic_id=topic_id, asked_url=asked_url)
        )
        conn.execute(
            sa.update(_subscription)
            .where(_subscription.c.id.in_(some), _subscription.c.written_url == "")
            .values(written_url=written)
        )
        conn.execute(
            sa.update(_waiting)
            .where(_waiting.c.subscription_id.in_(some), _waiting.c.content_topic_id.is_not(None))
            .values(content_topic_id=topic_id)
        )


def _hand_over(conn: sa.Connection, gone: int, stays: int) -> None:
    """Move pending notifications to the subscription that stays, pushed contents included."""
    ids = sa.union(
        sa.select(_queued.c.content_id).where(_queued.c.subscription_id.in_((gone, stays))),
        sa.select(_waiting.c.content_id).where(
            _waiting.c.subscription_id.in_((gone, stays)), _waiting.c.content_id.is_not(None)
        ),
    )
    pushed = sorted(conn.execute(ids).scalars())
    waits = sa.select(_waiting.c.subscription_id).where(_waiting.c.subscription_id == stays)
    if conn.execute(waits).first() is None:
        conn.execute(
            sa.update(_waiting)
            .where(_waiting.c.subscription_id == gone)
            .values(subscription_id=stays)
        )
    if not pushed:
        return
    conn.execute(
        sa.update(_waiting).where(_waiting.c.subscription_id == stays).values(content_id=pushed[0])
    )
    conn.execute(sa.delete(_queued).where(_queued.c.subscription_id.in_((gone, stays))))
    for key in pushed[1:]:
        conn.execute(sa.insert(_queued).values(subscription_id=stays, content_id=key))


def _merge(conn: sa.Connection, old: sa.Row[Any], there: sa.Row[Any]) -> None:
    """Merge a topic into another one.

    The subscribers of the two may have been notified of different contents.  So the merged topic
    has no known content: the broker fetches it at the start, and notifies all subscribers.
    """
    present = there.moved_to_id or there.id
    asked = "" if there.moved_to_id is None else there.url
    _move_subscriptions(conn, old, present, asked, written=old.url)
    if old.moved_to_id is None:  # those who come by way of it, too
        of_old = _topic.c.moved_to_id == old.id
        for left in conn.execute(sa.select(_topic).where(of_old)).all():
            _move_subscriptions(conn, left, present, left.url, written="")
        conn.execute(sa.update(_topic).where(of_old).values(moved_to_id=present))
    into = _row(conn, _topic.c.id == present)
    assert into is not None  # there or what it moved to
    conn.execute(
        sa.update(_topic)
        .where(_topic.c.id == present)
        .values(
            digest=None,
            size=None,
            etag="",
            last_modified="",
            ended=into.ended and old.ended,
            check_requested_at=into.check_requested_at or old.check_requested_at or _SOON,
            next_poll_at=old.next_poll_at if into.next_poll_at is None else into.next_poll_at,
            idle_at=None if old.idle_at is None else into.idle_at,
        )
    )
    for table in (_fanout, _content):
        conn.execute(sa.update(table).where(table.c.topic_id == old.id).values(topic_id=present))
    conn.execute(sa.delete(_topic).where(_topic.c.id == old.id))


def _bring_intent(conn: sa.Connection, row: sa.Row[Any], topic: str) -> None:
    """Have an intent be about the normal form; of two that become the same the later stays."""
    alike = sa.and_(
        _intent.c.topic == topic,
        *(_intent.c[name] == row._mapping[name] for name in _CALLBACK),
    )
    if conn.execute(sa.select(_intent.c.id).where(alike, _intent.c.id > row.id)).first():
        conn.execute(sa.delete(_intent).where(_intent.c.id == row.id))
        return
    conn.execute(sa.delete(_intent).where(alike))
    conn.execute(
        sa.update(_intent)
        .where(_intent.c.id == row.id)
        .values(topic=topic, written_topic=row.topic)
    )
