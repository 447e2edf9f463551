"""Makes the river from its parts."""

from __future__ import annotations

from rsscloud_broker.apps.river.door import RiverDoor
from rsscloud_broker.apps.river.intake import RiverIntake
from rsscloud_broker.apps.river.options import RiverOptions
from rsscloud_broker.apps.river.page import RiverPageDoor
from rsscloud_broker.apps.river.pushing import Pushing
from rsscloud_broker.apps.river.river import River
from rsscloud_broker.apps.river.store import RiverStore
from rsscloud_broker.apps.river.tending import JOB, RiverSink, Tending
from rsscloud_broker.interfaces import App, AppParts
from rsscloud_broker.util.cluster_jobs import RunOnOneNode


def make_river(options: RiverOptions, parts: AppParts) -> App:
    """Make the application."""
    store = RiverStore(parts.database)
    intake = RiverIntake(parts, store, options)
    pushing = Pushing(parts, store, intake)
    tending = Tending(parts, store, intake, pushing)
    river = River(parts, store, intake, tending, options)
    pages = RiverPageDoor(parts, river)
    intake.on_new = pages.hint
    return App(
        "river",
        front_doors=[RiverDoor(river, pushing, parts), pages],
        sinks=[RiverSink(store, tending)],
        notifiers=[intake],
        account_files=[river.account_files],
        services=[RunOnOneNode(tending, parts.jobs, parts.clock, name=JOB)],
    )
