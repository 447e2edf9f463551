"""Counts subscriptions by protocol, and lists topics with these counts, for pages; lists the topics
that have subscriptions; and finds topics by how their addresses begin.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, bindparam, func, or_, select, union_all

from rsscloud_broker.database import sqlite
from rsscloud_broker.database.portions import end_of_portion, within
from rsscloud_broker.model import Topic, TopicOverview, TopicStatus, TopicSummary
from rsscloud_broker.storage.polls import change_days
from rsscloud_broker.storage.schema import URL_BEGINS, subscription, topic
from rsscloud_broker.storage.topic_urls import (
    HAS_PUBLIC,
    HAS_SUBSCRIPTIONS,
    IS_PUBLIC,
    MAX_COUNTED,
    key_of,
)

#: The protocols of a topic's subscriptions, of ``MAX_COUNTED`` at most, without the private ones.
_PROTOCOLS = (
    select(subscription.c.protocol)
    .where(subscription.c.topic_id == bindparam("key"), IS_PUBLIC)
    .limit(MAX_COUNTED)
    .subquery()
)

#: Topics that have subscriptions and have not ended, and those of them that strangers may know of.
_WATCHED = and_(topic.c.ended == "", HAS_SUBSCRIPTIONS)
_LISTED = and_(topic.c.ended == "", HAS_PUBLIC)

#: Topics whose titles strangers may know: the present content was found while they were public.
_MAY_BE_KNOWN = or_(HAS_PUBLIC, topic.c.public_digest == topic.c.digest)

_COUNTS = select(_PROTOCOLS.c.protocol, func.count()).group_by(_PROTOCOLS.c.protocol)


def subscription_counts(conn: Connection, url: str) -> dict[str, int]:
    """How many subscriptions a topic has by protocol; at most 10,000 of them are counted."""
    return _count_by_protocol(conn, conn.execute(select(key_of(url))).scalar())


def topic_summaries(conn: Connection, after: int, limit: int) -> list[TopicSummary]:
    """The topics with public subscriptions that have not ended, in the order of their ids.

    Very many topics without subscriptions may stand between two with them, so it goes through the
    table in portions.

    :param after: only topics with a greater id.
    """
    query = select(topic.c.id, topic.c.url, topic.c.feed).where(_LISTED).order_by(topic.c.id)
    rows: list[Row[Any]] = []
    last: int | None = after
    while last is not None and len(rows) < limit:
        until = end_of_portion(conn, topic.c.id, last)
        some = query.where(within(topic.c.id, last, until)).limit(limit - len(rows))
        rows += conn.execute(some)
        last = until
    return [
        TopicSummary(row.id, row.url, _title(row.feed), _count_by_protocol(conn, row.id))
        for row in rows
    ]


def _count_by_protocol(conn: Connection, key: int | None) -> dict[str, int]:
    """The number of subscriptions by protocol of the topic with an id; none for no id."""
    return dict(conn.execute(_COUNTS, {"key": key}).tuples().all())


def _title(feed: str) -> str:
    """The title in what a feed says about itself, as it is stored."""
    title = json.loads(feed).get("title") if feed else ""
    return title if isinstance(title, str) else ""


def topic_titles(conn: Connection, urls: Collection[str]) -> dict[str, str]:
    """The titles of the topics with these URLs that strangers may know, by the URLs."""
    query = select(topic.c.url, topic.c.feed).where(topic.c.url.in_(urls), _MAY_BE_KNOWN)
    found = {row.url: _title(row.feed) for row in conn.execute(query)}
    return {url: title for url, title in found.items() if title}


def watched_topics(conn: Connection, after: int, limit: int) -> tuple[list[str], int | None]:
    """The URLs of those of some topics that have subscriptions and have not ended.

    :param after: the position at which the last call ended, to go on there; 0 at first.
    :param limit: how many topics are looked at.
    :returns: the URLs, and the position at which this call ended; None after the last topic.
    """
    until = end_of_portion(conn, topic.c.id, after, limit)
    some = select(topic.c.url).where(within(topic.c.id, after, until), _WATCHED)
    return list(conn.execute(some.order_by(topic.c.id)).scalars()), until


#: At how many topics a search looks for each spelling, also at those that only private followers
#: know of.
LOOKED_AT: Final = 500

#: No address has this character; it sorts behind all others.
_GREATEST_CHARACTER: Final = "\U0010ffff"

#: A search compares this many characters of an address at most.
_MAX_COMPARED: Final = 200


def topics_beginning(conn: Connection, begins: str, limit: int) -> list[TopicOverview]:
    """The topics with subscriptions that strangers may know of, in the order of their URLs.

    An index has the URLs in their order, so that what one search costs does not grow with the
    number of topics.  Of each spelling of a beginning it looks at ``LOOKED_AT`` topics.

    :param begins: how their addresses begin, with or without ``http://``, ``https://`` and
        ``www.``; in normal form as far as it goes.
    :returns: of each what its feed says and how often it changed, and nothing else.
    """
    url = topic.c.url if sqlite.serves(conn) else URL_BEGINS
    some = [
        select(topic.c.id)
        .where(url >= first, url < f"{first}{_GREATEST_CHARACTER}")
        .order_by(url)
        .limit(LOOKED_AT)
        .subquery()
        for first in _spellings(begins[:_MAX_COMPARED])
    ]
    ids = select(union_all(*(select(each.c.id) for each in some)).subquery().c.id)
    query = select(topic.c.url, topic.c.feed, topic.c.change_days)
    query = query.where(topic.c.id.in_(ids), HAS_PUBLIC)
    rows = conn.execute(query.order_by(topic.c.url).limit(limit))
    return [
        TopicOverview(
            TopicStatus(
                Topic(row.url),
                feed=json.loads(row.feed or "{}"),
                change_days=change_days(row.change_days),
            )
        )
        for row in rows
    ]


def _spellings(begins: str) -> Iterator[str]:
    """How URLs may begin if an address begins so: with each scheme, with and without ``www.``."""
    if begins.startswith(("http://", "https://")):
        yield begins
        return
    for scheme in ("http", "https"):
        yield f"{scheme}://{begins}"
        if not begins.startswith("www."):
            yield f"{scheme}://www.{begins}"
