"""Handles the events of fetches, and the hints of other nodes.

The broker fetches the feeds, and the river gets only what is new.  So that readers see why nothing
new comes, this sink keeps the reason of the last failed fetch with the feed until one succeeds.  If
another node has stored something for the node that tends the feeds, the sink wakes it.
"""

from __future__ import annotations

from typing import Final

from zope.interface import implementer

from rsscloud_broker.apps.river.store import RiverStore
from rsscloud_broker.apps.river.tending import JOB, Tending
from rsscloud_broker.events import Event, TopicFetched, TopicFetchFailed, WorkHinted
from rsscloud_broker.interfaces import IEventSink
from rsscloud_broker.wire.text import clean

#: How the problem of a feed begins that is only a failed fetch.
_FAILED: Final = "the last fetch failed: "


@implementer(IEventSink)
class RiverSink:
    """The sink of the river: it handles the results of fetches, and hints of other nodes."""

    name = "river"
    handles = (TopicFetched, TopicFetchFailed, WorkHinted)

    def __init__(self, store: RiverStore, tending: Tending) -> None:
        self._store = store
        self._tending = tending

    async def handle(self, event: Event) -> None:
        """Keep or forget why the last fetch of a feed failed; or look for due feeds upon a hint."""
        assert isinstance(event, self.handles)
        if isinstance(event, WorkHinted):
            if event.kind == f"job.{JOB}":
                self._tending.wake()
            return
        feed = await self._store.feed_by_url(event.topic)
        if feed is None or not (feed.problem or _FAILED).startswith(_FAILED):
            return  # the feed has another problem, which no fetch ends
        problem = ""
        if isinstance(event, TopicFetchFailed):
            # How many characters of a reason are kept: strangers write them.
            problem = f"{_FAILED}{clean(event.reason).rstrip('.')[:300]}"
        if problem != feed.problem:
            await self._store.change_feed(feed.id, {"problem": problem})
