"""Parts of queries that find a topic by its present URL, or by a URL that it has moved from.

When a topic moves, its row gets the new URL and keeps its id, so that a move costs the same however
many subscriptions refer to the row.  A further row keeps the old URL; its ``moved_to_id`` refers to
the row of the topic.  It never refers to another row of an old URL, so one step in the same query
leads from any URL to the topic.

Each subscription keeps the URL that its subscriber asked for in ``asked_url``.  It is empty if that
is the first URL of the topic: its ``first_url``, which is null as long as that is its present URL.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, ScalarSelect, case, func, select

from rsscloud_broker.database import sqlite
from rsscloud_broker.database.columns import to_seconds_or_none
from rsscloud_broker.model import Need, Topic, Validators
from rsscloud_broker.model.ways import PRIVATE_PROTOCOLS
from rsscloud_broker.storage.schema import content, fanout, pending, subscription, topic

#: Up to how many subscriptions of a topic are counted.
MAX_COUNTED = 10_000

#: The row of a URL, old or present; ``topic`` is the row of the topic itself.
named = topic.alias("named")

#: The id of the topic to which the row of a URL leads.
TOPIC_ID = func.coalesce(named.c.moved_to_id, named.c.id)

#: Whether a topic has subscriptions.
HAS_SUBSCRIPTIONS = select(subscription.c.id).where(subscription.c.topic_id == topic.c.id).exists()

#: Whether a subscription is one that strangers may know of, and whether a topic has such ones.
IS_PUBLIC = subscription.c.protocol.not_in(PRIVATE_PROTOCOLS)
HAS_PUBLIC = (
    select(subscription.c.id).where(subscription.c.topic_id == topic.c.id, IS_PUBLIC).exists()
)

#: The URL of a topic that an empty ``asked_url`` stands for.
FIRST_URL = func.coalesce(topic.c.first_url, topic.c.url)

#: What subscriptions to the URL of a row have in ``asked_url``.
ASKED_URL = case((named.c.url == FIRST_URL, ""), else_=named.c.url)


def same(conn: Connection, column: ColumnElement[str], value: str) -> ColumnElement[bool]:
    """The condition that a column has a value, by the hash of it that is in an index.

    Unique indexes over URLs use hashes on PostgreSQL: see ``schema``.
    """
    if sqlite.serves(conn):
        return column == value
    return (func.md5(column) == func.md5(value)) & (column == value)


def asked_among(conn: Connection, keys: Collection[int]) -> set[int]:
    """Those of some rows of URLs that topics have left which some subscriber may have asked for.

    If the topic has subscriptions, the first one of its URLs counts as asked for in any case, since
    to find out might take long.  Each row has a query of its own: together PostgreSQL would rather
    read through all subscriptions.

    :param keys: the ids of the rows.
    """
    left = (
        select(named.c.id, named.c.url, topic.c.id, topic.c.first_url)
        .join_from(named, topic, topic.c.id == named.c.moved_to_id)
        .where(named.c.id.in_(keys))
    )
    asked = set()
    for key, url, topic_key, first_url in conn.execute(left).all() if keys else ():
        some = select(subscription.c.id).where(subscription.c.topic_id == topic_key)
        if url != first_url:
            asked_url = subscription.c.asked_url
            some = some.where(asked_url != "", same(conn, asked_url, url))
        if conn.execute(some.limit(1)).first() is not None:
            asked.add(key)
    return asked


_COUNTED = (
    select(subscription.c.id)
    .where(subscription.c.topic_id == topic.c.id)
    .limit(MAX_COUNTED)
    .correlate(topic)
    .subquery()
)

#: Whether a subscription of a topic wants its content, and whether the store lacks a content that
#: notifications wait for.
_WANTS = (
    select(subscription.c.id)
    .where(subscription.c.topic_id == topic.c.id, subscription.c.wants_content)
    .correlate(topic)
    .exists()
)
_WAITS = select(pending.c.subscription_id).where(pending.c.content_topic_id == topic.c.id)
_LATER = select(fanout.c.id).where(fanout.c.topic_id == topic.c.id, fanout.c.later)
_KEPT = select(content.c.id).where(content.c.topic_id == topic.c.id)
_IS_AWAITED = _WAITS.correlate(topic).exists() | _LATER.correlate(topic).exists()
_LACKS = _IS_AWAITED & ~_KEPT.correlate(topic).exists()
_NEED = case((_WANTS & _LACKS, Need.CONTENT), else_=Need.CHANGES)

#: Selects topics in the form that ``as_topic`` takes.
TOPICS = select(
    topic,
    select(func.count()).select_from(_COUNTED).correlate(topic).scalar_subquery().label("counted"),
    _NEED.label("need"),
    HAS_PUBLIC.label("is_public"),
)


#: Selects topics by any of their URLs, with that URL in the column ``asked``.
TOPICS_BY_URL = TOPICS.add_columns(named.c.url.label("asked")).join_from(
    named, topic, topic.c.id == TOPIC_ID
)


def key_of(url: str | ColumnElement[str]) -> ScalarSelect[Any]:
    """A subquery for the id of the topic that is or was at a URL; null if there is none."""
    return select(TOPIC_ID).where(named.c.url == url).scalar_subquery()


def as_topic(row: Row[Any]) -> Topic:
    """The topic in a row that ``TOPICS`` selects."""
    return Topic(
        url=row.url,
        digest=row.digest,
        size=row.size,
        read_at=to_seconds_or_none(row.read_at),
        changed_at=to_seconds_or_none(row.changed_at),
        ended=row.ended,
        validators=Validators(row.etag, row.last_modified),
        subscribers=row.counted,
        need=Need(row.need),
        is_public=bool(row.is_public),
        public_digest=row.public_digest,
    )
