"""Makes the river from its parts."""

from __future__ import annotations

from functools import partial

from rsscloud_broker.apps.river.discovery import Discovery
from rsscloud_broker.apps.river.door import RiverDoor
from rsscloud_broker.apps.river.fetch_results import FetchResults
from rsscloud_broker.apps.river.intake import RiverIntake
from rsscloud_broker.apps.river.options import RiverOptions
from rsscloud_broker.apps.river.page import RiverPageDoor
from rsscloud_broker.apps.river.pushing import Pushing
from rsscloud_broker.apps.river.records import RiverBounds
from rsscloud_broker.apps.river.river import River
from rsscloud_broker.apps.river.store import RiverStore
from rsscloud_broker.apps.river.tending import JOB, Tending
from rsscloud_broker.apps.river.waking import Wake
from rsscloud_broker.client.outbound import GuardedWeb
from rsscloud_broker.interfaces import App, AppParts
from rsscloud_broker.util.cluster_jobs import RunOnOneNode

#: How many items of each feed are read and kept: feeds rarely have more, and each costs a row.
ITEMS_PER_FEED = 200


def make_river(options: RiverOptions, parts: AppParts) -> App:
    """Make the application."""
    bounds = RiverBounds(options.max_feeds, ITEMS_PER_FEED, options.days * 86_400.0)
    store = RiverStore(parts.database)
    intake = RiverIntake(store, parts.topics, parts.clock, bounds, parts.public_url, parts.parse)
    web = GuardedWeb(parts.outbound)
    pushing = Pushing(store, intake, parts.broker, web, parts.clock, parts.public_url)
    discovery = Discovery(parts.web, parts.parse)
    tending = Tending(
        store,
        intake,
        pushing,
        discovery,
        parts.broker,
        parts.topics,
        parts.clock,
        partial(parts.jobs.hint_at_job, JOB),
    )
    river = River(store, intake, tending, parts.clock, bounds, parts.parse)
    pages = RiverPageDoor(parts, river)
    intake.on_new = pages.hint
    return App(
        "river",
        front_doors=[RiverDoor(river, pushing, parts), pages],
        sinks=[FetchResults(store), Wake(tending)],
        notifiers=[intake],
        services=[RunOnOneNode(tending, parts.jobs, parts.clock, name=JOB)],
    )
