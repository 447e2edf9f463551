"""Makes the river from its parts."""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import and_, ge, le

from rsscloud_broker.apps.river.discovery import Discovery
from rsscloud_broker.apps.river.door import RiverDoor
from rsscloud_broker.apps.river.intake import Intake
from rsscloud_broker.apps.river.page import RiverPageDoor, StreamLimits
from rsscloud_broker.apps.river.pushing import Pushing
from rsscloud_broker.apps.river.records import Bounds
from rsscloud_broker.apps.river.river import River
from rsscloud_broker.apps.river.store import RiverStore
from rsscloud_broker.apps.river.tending import Tending
from rsscloud_broker.apps.river.threads import OneAtATime
from rsscloud_broker.client.outbound import GuardedWeb
from rsscloud_broker.interfaces import App, AppParts

_DAY = 86_400.0


@frozen
class RiverOptions:
    """Options of the river.

    :ivar max_feeds: how many feeds an account may follow.
    :ivar items_per_feed: how many items of each feed are read and kept.
    :ivar days: after how many days an item is deleted that is not in its feed any more.
    :ivar streams: how many browsers may show new items as they arrive, at the same time; never more
        than half of the connections that the broker accepts.
    :ivar streams_per_account: how many of them one account may have.
    :ivar streams_per_address: how many of them may be at one address.
    """

    max_feeds: int = field(default=500, validator=and_(ge(1), le(10_000)))
    items_per_feed: int = field(default=200, validator=and_(ge(1), le(500)))
    days: int = field(default=90, validator=ge(1))
    streams: int = field(default=1000, validator=ge(0))
    streams_per_account: int = field(default=10, validator=ge(1))
    streams_per_address: int = field(default=50, validator=ge(1))


def make_river(options: RiverOptions, parts: AppParts) -> App:
    """Make the application."""
    bounds = Bounds(options.max_feeds, options.items_per_feed, options.days * _DAY)
    store = RiverStore(parts.database)
    in_thread = OneAtATime(parts.in_thread)
    intake = Intake(store, parts.topics, parts.clock, bounds, parts.public_url, in_thread)
    web = GuardedWeb(parts.outbound)
    pushing = Pushing(store, intake, parts.broker, web, parts.clock, parts.public_url)
    discovery = Discovery(parts.web, in_thread)
    tending = Tending(store, intake, pushing, discovery, parts.broker, parts.topics, parts.clock)
    river = River(store, intake, tending, parts.clock, bounds, in_thread)
    limits = StreamLimits(options.streams, options.streams_per_account, options.streams_per_address)
    return App(
        "river",
        front_doors=[RiverDoor(river, pushing, parts), RiverPageDoor(parts, river, limits)],
        notifiers=[intake],
        services=[tending],
    )
