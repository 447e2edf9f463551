"""Finding topics by their URLs: the ones where they are, and those they moved from.

A topic that moved leaves a row behind, which says where it is now and nothing else:
``moved_to_id``, which is always the row of a topic that is there, and never another
one that was left behind.  So whoever looks for a URL comes to the topic in one step,
and in the same query, whether it moved or not.

The subscriptions of a topic that moved are those of the topic where it is now.  Each
keeps the URL that it asked for in ``asked_url``, which is empty where the topic is
still there; the row of that URL is one that was left behind by the very topic.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BindParameter, Row, ScalarSelect, func, select

from rsscloud_broker.model import Topic, Validators
from rsscloud_broker.storage.schema import subscription, to_seconds_or_none, topic

#: Beyond so many, subscribers are not counted.
MOST_COUNTED = 10_000

#: A topic by whatever URL it was asked for; ``topic`` is the row where it is.
named = topic.alias("named")

#: The id of the topic that a row stands for.
PRESENT = func.coalesce(named.c.moved_to_id, named.c.id)

#: Whether a topic has subscriptions.
SOMEBODY = select(subscription.c.id).where(subscription.c.topic_id == topic.c.id).exists()

#: Whether somebody has subscribed to a topic by a URL that it has left.
ASKED = (
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
    .limit(MOST_COUNTED)
    .correlate(topic)
    .subquery()
)

#: Topics as ``as_topic`` takes them.
WHOLE = select(
    topic,
    select(func.count()).select_from(_COUNTED).correlate(topic).scalar_subquery().label("counted"),
)


#: Topics likewise, with the URL that each was ``asked`` for by.
ASKED_FOR = WHOLE.add_columns(named.c.url.label("asked")).join_from(
    named, topic, topic.c.id == PRESENT
)


def key_of(url: str | BindParameter[str]) -> ScalarSelect[Any]:
    """The id of the topic that is or was at a URL, as a part of a query; null if there
    is none.
    """
    return select(PRESENT).where(named.c.url == url).scalar_subquery()


def as_topic(row: Row[Any]) -> Topic:
    """A row that ``WHOLE`` selects."""
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
