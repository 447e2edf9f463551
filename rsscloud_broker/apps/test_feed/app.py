"""Makes the test feed from its parts."""

from __future__ import annotations

from math import gcd

from rsscloud_broker.apps.test_feed.document import FeedInfo
from rsscloud_broker.apps.test_feed.door import FEED_PATH, PAGE_PATH, TestFeedDoor
from rsscloud_broker.apps.test_feed.feed import TestFeed
from rsscloud_broker.apps.test_feed.options import TestFeedOptions
from rsscloud_broker.interfaces import App, AppParts, ServedTopics
from rsscloud_broker.util.cluster_jobs import PeriodicClusterJob
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.wire.cloud import from_url
from rsscloud_broker.wire.links import HUB_PATHS
from rsscloud_broker.wire.rsscloud import REST_PATHS


def make_test_feed(options: TestFeedOptions, parts: AppParts) -> App:
    """Make the application: its front door, the job that makes the items, and its topic."""
    address = parts.public_url
    about = FeedInfo(
        url=normal_form(f"{address}{FEED_PATH}"),
        page=f"{address}{PAGE_PATH}",
        every=options.every,
        hub=f"{address}{HUB_PATHS[0]}" if parts.has_hub else "",
        cloud=from_url(f"{address}{REST_PATHS[0]}") if parts.has_cloud else None,
    )
    feed = TestFeed(about, parts)
    # It looks each minute at least, in case an item could not be published.
    making = PeriodicClusterJob(
        parts.clock,
        # Seconds after which an item that could not be published is tried again, at most.
        gcd(options.every, 60),
        feed.make_due,
        parts.jobs,
        name="test feed",
        at_start=True,
    )
    return App(
        "test_feed",
        front_doors=[TestFeedDoor(feed, parts)],
        services=[making],
        topics=[ServedTopics(about.url, feed.read)],
    )
