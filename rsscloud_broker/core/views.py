"""What pages may read of topics, subscriptions, pings and the event log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import evolve
from twisted.internet.defer import DeferredLock
from zope.interface import implementer

from rsscloud_broker.interfaces import IClock, IEventLog, ITopicView
from rsscloud_broker.model import Ping, Topic, TopicOverview, TopicStatus, TopicSummary
from rsscloud_broker.model.log_entry import LogEntry, LogFilter
from rsscloud_broker.storage import Store
from rsscloud_broker.util.caches import TimedCache
from rsscloud_broker.util.urls import normal_form

#: Seconds for which an overview of a topic and a page of pings are remembered.
FRESH: Final = 1.0

#: How many overviews, pages of pings and parts of the list are remembered.
OVERVIEWS, PAGES, PARTS = 500, 50, 50


@implementer(ITopicView)
class TopicView:
    """Reads from the store what ``ITopicView`` offers, and remembers it for a moment.

    Its private methods read what is remembered; their arguments are the keys of the caches.
    """

    def __init__(self, store: Store, clock: IClock) -> None:
        self._store = store
        self._clock = clock
        self._overviews = TimedCache(self._read_overview, clock, FRESH, OVERVIEWS)
        self._pages = TimedCache(self._read_pings, clock, FRESH, PAGES)
        # To count the subscriptions of hundreds of topics takes a while: once a minute is enough.
        self._parts = TimedCache(self._read_part, clock, 60.0, PARTS)
        self._found = TimedCache(self._find, clock, 60.0, PARTS)
        # The store reads one part of the list at a time, whatever parts strangers ask for.
        self._read_lock = DeferredLock()

    async def overview(self, url: str, newest: bool = False) -> TopicOverview | None:
        found = await self._overviews.get(normal_form(url), newest=newest)
        return None if found is None else _for_strangers(found, normal_form(url))

    async def status(self, url: str) -> TopicStatus | None:
        found = await self._overviews.get(normal_form(url), newest=True)
        return None if found is None else found.status

    async def watched(self, after: int, limit: int) -> Sequence[TopicSummary]:
        return await self._parts.get((after, limit))

    async def beginning(self, begins: str, limit: int) -> Sequence[TopicOverview]:
        return await self._found.get((begins, limit))

    async def pings(self, before: tuple[float, int] | None, limit: int) -> Sequence[Ping]:
        return await self._pages.get((before, limit))

    async def _read_overview(self, url: str) -> TopicOverview | None:
        status = await self._store.topic_status(url)
        if status is None:
            return None
        return TopicOverview(status, await self._store.subscription_counts(url))

    async def _read_part(self, part: tuple[int, int]) -> Sequence[TopicSummary]:
        after, limit = part
        found = await self._read_lock.run(self._store.topic_summaries, after, limit)
        return tuple(found)

    async def _find(self, wanted: tuple[str, int]) -> Sequence[TopicOverview]:
        begins, limit = wanted
        found = await self._read_lock.run(self._store.topics_beginning, begins, limit)
        return tuple(found)

    async def _read_pings(self, page: tuple[tuple[float, int] | None, int]) -> Sequence[Ping]:
        before, limit = page
        last = None if before is None else Ping("", "", before[0], id=before[1])
        # A second more, so that rounded times do not leave out a ping of this moment.
        until = self._clock.wall_seconds() + 1
        return await _with_titles(self._store, await self._store.pings(0, until, last, limit))


def _for_strangers(found: TopicOverview, asked: str) -> TopicOverview | None:
    """What strangers may know of a topic.

    If nobody has subscribed but private followers, that is the same as if nobody had: what somebody
    learned who had the topic fetched openly, and nothing that a later fetch for followers changed.
    """
    topic = found.status.topic
    if topic.is_public or (topic.ended and topic.is_known):
        number = min(topic.subscribers, sum(found.subscriptions.values()))
        if number == topic.subscribers:
            return found
        return evolve(found, status=evolve(found.status, topic=evolve(topic, subscribers=number)))
    if not topic.is_known or topic.public_digest != topic.digest:
        return None
    known = TopicStatus(Topic(asked), feed=found.status.feed, change_days=found.status.change_days)
    return TopicOverview(known)


async def _with_titles(store: Store, pings: Sequence[Ping]) -> tuple[Ping, ...]:
    """Some pings for people to read: one without a name has the title of its topic, if strangers
    may know that.
    """
    nameless = {ping.url for ping in pings if ping.name == ping.url}
    titles = await store.topic_titles(nameless) if nameless else {}
    return tuple(
        evolve(ping, name=titles.get(ping.url, ping.url)) if ping.name == ping.url else ping
        for ping in pings
    )


@implementer(IEventLog)
class EventLog:
    """The event log in the store, for reading.

    Reads of pages run one after the other.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # One read at a time.  The store has few threads that read, and deliveries need them too;
        # but anybody may read the log as often as they like.
        self._read_lock = DeferredLock()

    async def entries(
        self, wanted: LogFilter, before: int | None, limit: int
    ) -> Sequence[LogEntry]:
        found = await self._read_lock.run(self._store.log_entries, wanted, before, limit)
        return tuple(found)

    async def entries_after(self, wanted: LogFilter, after: int, limit: int) -> Sequence[LogEntry]:
        return await self._store.log_entries_after(wanted, after, limit)
