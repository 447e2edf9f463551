"""The parts of the test feed, and its options: ``[apps.test_feed]``."""

from __future__ import annotations

from math import gcd
from typing import Final

from attrs import field, frozen
from attrs.validators import and_, ge, le

from rsscloud_broker.apps.test_feed.document import About
from rsscloud_broker.apps.test_feed.door import FEED_PATH, PAGE_PATH, TestFeedDoor
from rsscloud_broker.apps.test_feed.feed import TestFeed
from rsscloud_broker.apps.test_feed.items import metadata
from rsscloud_broker.interfaces import App, AppParts, AppTables, ServedTopics
from rsscloud_broker.timing import EachPeriod
from rsscloud_broker.urls import normal_form
from rsscloud_broker.wire.cloud import from_url
from rsscloud_broker.wire.links import HUB_PATHS
from rsscloud_broker.wire.rsscloud import REST_PATHS

NAME: Final = "test_feed"

TABLES: Final = AppTables(metadata, "rsscloud_broker.apps.test_feed:migrations", "0001")

#: Seconds after which an item that could not be published is tried again, at most.
_AGAIN: Final = 60


@frozen
class TestFeedOptions:
    """``[apps.test_feed]``: the test feed.

    :ivar every: seconds between two items, which come at multiples of it since the epoch.
    """

    every: int = field(default=900, validator=and_(ge(1), le(86_400)))


def make_test_feed(options: TestFeedOptions, parts: AppParts) -> App:
    """Make the test feed."""
    address = parts.public_url
    about = About(
        url=normal_form(f"{address}{FEED_PATH}"),
        page=f"{address}{PAGE_PATH}",
        every=options.every,
        hub=f"{address}{HUB_PATHS[0]}" if parts.has_hub else "",
        cloud=from_url(f"{address}{REST_PATHS[0]}") if parts.has_cloud else None,
    )
    feed = TestFeed(about, parts)
    # It looks each minute at least, in case an item could not be published.
    looks = EachPeriod(
        parts.clock, gcd(options.every, _AGAIN), feed.make_due, name="test feed", at_start=True
    )
    return App(
        NAME,
        front_doors=[TestFeedDoor(feed, parts)],
        services=[looks],
        topics=[ServedTopics(about.url, feed.read)],
    )
