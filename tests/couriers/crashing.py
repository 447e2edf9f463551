"""A courier that dies of some documents, as a fault in a C library would make it."""

from __future__ import annotations

import os
from threading import Event
from unittest import mock

from rsscloud_broker import courier_process
from rsscloud_broker.model import Content
from rsscloud_broker.outbound import topic_fetcher
from rsscloud_broker.wire.feed import xml_redirect
from rsscloud_broker.wire.feed_facts import FeedFacts
from rsscloud_broker.wire.feed_summary import facts_of

#: What is in a document that the courier dies of as it reads it, or as it parses the feed.
READING, PARSING = b"deadly to read", b"deadly to parse"

#: What is in a document whose parsing never ends.
HANGING = b"endless to parse"


def _redirect(body: bytes) -> str | None:
    if READING in body:
        os.abort()
    return xml_redirect(body)


def _facts(content: Content) -> FeedFacts | str:
    if PARSING in content.body:
        os.abort()
    if HANGING in content.body:
        Event().wait()
    return facts_of(content)


if __name__ == "__main__":
    with (
        mock.patch.object(topic_fetcher, "xml_redirect", _redirect),
        mock.patch.object(courier_process, "facts_of", _facts),
        mock.patch.object(courier_process, "PARSING", 1.0),
    ):
        courier_process.main()
