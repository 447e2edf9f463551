"""Notes when the broker cannot fetch a feed, so that its readers see why nothing new comes.

The broker fetches the feeds, and the river gets only what is new.  So this sink handles the events
of all fetches, and keeps the reason of the last failure with the feed until a fetch succeeds.
"""

from __future__ import annotations

from typing import Final

from zope.interface import implementer

from rsscloud_broker.apps.river.store import RiverStore
from rsscloud_broker.events import Event, TopicFetched, TopicFetchFailed
from rsscloud_broker.interfaces import IEventSink
from rsscloud_broker.wire.text import clean

_FAILED: Final = "the last fetch failed: "


@implementer(IEventSink)
class FetchResults:
    """The sink that notes failed fetches of feeds."""

    name = "river_fetch_results"
    handles = (TopicFetched, TopicFetchFailed)

    def __init__(self, store: RiverStore) -> None:
        self._store = store

    async def handle(self, event: Event) -> None:
        """See ``IEventSink``."""
        assert isinstance(event, self.handles)
        feed = await self._store.feed_by_url(event.topic)
        if feed is None or not (feed.problem or _FAILED).startswith(_FAILED):
            return  # what is said of it is still true, whatever this fetch brought
        problem = ""
        if isinstance(event, TopicFetchFailed):
            # Strangers write reasons; so many characters of one are kept.
            problem = f"{_FAILED}{clean(event.reason).rstrip('.')[:300]}"
        if problem != feed.problem:
            await self._store.change_feed(feed.id, {"problem": problem})
