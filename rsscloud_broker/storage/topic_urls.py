"""Parts of queries that find a topic by its present URL, or by a URL that it has moved from.

When a topic moves, the row of its old URL stays, and its ``moved_to_id`` refers to the row of the
topic.  It never refers to another row of an old URL, so one step in the same query leads from any
URL to the topic.

The subscriptions of a topic that has moved refer to the row of the topic.  Each keeps the URL that
its subscriber asked for in ``asked_url``, if that is an old URL of the topic; else ``asked_url``
is empty.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BindParameter, Row, ScalarSelect, func, select

from rsscloud_broker.model import Topic, Validators
from rsscloud_broker.storage.schema import (
    subscription,
    topic,
)
from rsscloud_broker.tables import (
    to_seconds_or_none,
)

#: Up to so many subscriptions of a topic are counted.
MAX_COUNTED = 10_000

#: The row of a URL, old or present; ``topic`` is the row of the topic itself.
named = topic.alias("named")

#: The id of the topic to which the row of a URL leads.
TOPIC_ID = func.coalesce(named.c.moved_to_id, named.c.id)

#: Whether a topic has subscriptions.
HAS_SUBSCRIPTIONS = select(subscription.c.id).where(subscription.c.topic_id == topic.c.id).exists()

#: Whether a subscription has the URL of a row, which its topic has left, as its ``asked_url``.
IS_ASKED_URL = (
    select(subscription.c.id)
    .where(
        subscription.c.topic_id == topic.c.moved_to_id,
        subscription.c.asked_url == topic.c.url,
    )
    .exists()
)

_COUNTED = (
    select(subscription.c.id)
    .where(subscription.c.topic_id == topic.c.id)
    .limit(MAX_COUNTED)
    .correlate(topic)
    .subquery()
)

#: Selects topics in the form that ``as_topic`` takes.
TOPICS = select(
    topic,
    select(func.count()).select_from(_COUNTED).correlate(topic).scalar_subquery().label("counted"),
)


#: Selects topics by any of their URLs, with that URL in the column ``asked``.
TOPICS_BY_URL = TOPICS.add_columns(named.c.url.label("asked")).join_from(
    named, topic, topic.c.id == TOPIC_ID
)


def key_of(url: str | BindParameter[str]) -> ScalarSelect[Any]:
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
    )
