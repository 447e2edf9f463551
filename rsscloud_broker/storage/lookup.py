"""Finds topics by how their addresses begin, for a page that anybody may ask.

An index has the URLs in their order, so that what one search costs does not grow with the number of
topics.  Of each spelling of a beginning (with ``https``, with ``www.``) a search looks at
``LOOKED_AT`` topics.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from sqlalchemy import Connection, select, union_all

from rsscloud_broker.database import sqlite
from rsscloud_broker.model import Topic, TopicOverview, TopicStatus
from rsscloud_broker.storage.change_days import change_days
from rsscloud_broker.storage.schema import URL_BEGINS, topic
from rsscloud_broker.storage.topic_urls import HAS_PUBLIC

#: At how many topics a search looks for each spelling, also at those that only private followers
#: know of.
LOOKED_AT: Final = 500

#: No address has this character; it sorts behind all others.
_GREATEST_CHARACTER: Final = "\U0010ffff"

#: A search compares this many characters of an address at most.
_MAX_COMPARED: Final = 200


def topics_beginning(conn: Connection, begins: str, limit: int) -> list[TopicOverview]:
    """The topics with subscriptions that strangers may know of, in the order of their URLs.

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
