"""What is in the test feed; ``wire.rss_feed`` writes it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import urlsplit

from attrs import frozen

from rsscloud_broker.apps.test_feed.items import TestItem
from rsscloud_broker.wire import rss_feed
from rsscloud_broker.wire.cloud import Cloud
from rsscloud_broker.wire.feed_document import FeedDocument, FeedEntry


@frozen
class FeedInfo:
    """What the test feed says about itself.

    :ivar url: the URL of the feed.
    :ivar page: the URL of the page about it.
    :ivar every: seconds between two items.
    :ivar hub: the URL of the WebSub hub; empty if the broker is none.
    :ivar cloud: where subscribers register by rssCloud; None if they cannot.
    """

    url: str
    page: str
    every: int
    hub: str = ""
    cloud: Cloud | None = None


def encode(about: FeedInfo, items: Sequence[TestItem]) -> bytes:
    """Write the feed as RSS 2.0, in UTF-8.  The same items always make the same bytes.

    :param items: the newest first; at least one.
    """
    feed = FeedDocument(
        id=about.url,
        title="Test feed of rsscloud-broker",
        description=f"A new item {in_words(about.every)}, to test subscribers with.",
        url=about.page,
        self_url=about.url,
        author="rsscloud-broker",
        service=urlsplit(about.url).netloc,
        updated=items[0].slot,
        hub=about.hub,
        cloud=about.cloud,
        entries=tuple(_entry_of(item, about.page) for item in items),
        ttl=max(1, about.every // 60),
    )
    return rss_feed.encode(feed)


def _entry_of(item: TestItem, page: str) -> FeedEntry:
    """An item as an entry; its text says when it was due."""
    text = f"This item was due at {clock_of(item.slot)} UTC. A subscriber sees it within a second."
    return FeedEntry(
        id=item.guid,
        url=page,
        link="",
        title=title_of(item),
        text=text,
        html=text,
        full_html=text,
        published=item.slot,
        updated=item.slot,
    )


def title_of(item: TestItem) -> str:
    """The title of an item, such as "12:15:00 UTC on 22 November 2026"."""
    day = datetime.fromtimestamp(item.slot, UTC)
    return f"{clock_of(item.slot)} UTC on {day.day} {day:%B %Y}"


def clock_of(slot: int) -> str:
    """The time of day of a slot, such as "12:15:00"."""
    return f"{datetime.fromtimestamp(slot, UTC):%H:%M:%S}"


def in_words(every: int) -> str:
    """How often there is an item: "every 15 minutes"."""
    for unit, name in ((3600, "hour"), (60, "minute"), (1, "second")):
        if every % unit == 0:
            number = every // unit
            return f"every {name}" if number == 1 else f"every {number} {name}s"
    raise AssertionError("every whole number of seconds is a multiple of one second")
