"""Reads topics: asks only for what is not known, follows those that move, and takes in
that one has ended or cannot be read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager

from attrs import frozen
from twisted.logger import Logger

from rsscloud_broker import events
from rsscloud_broker.bounded_dict import BoundedDict
from rsscloud_broker.core.host_limiter import HostQuota
from rsscloud_broker.core.limiter import FairLimiter, Turn
from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import TopicEnded, TopicUnreadable
from rsscloud_broker.interfaces import IClock, IEventBus, IStore, ITopicFetcher
from rsscloud_broker.model import NO_VALIDATORS, Fetched, FetchResult, Topic, host_of
from rsscloud_broker.urls import normal_form

#: Why there is no reading of a topic whose content is pushed.
NOT_READ = "its publisher pushes its content, so the broker does not read it"

#: Topics that are read at the same time at one host.
MAX_OF_HOST = 20

#: Topics that are remembered, and for how many seconds what is remembered is good.
MAX_REMEMBERED, REMEMBERED_SECONDS = 10_000, 60.0


@frozen
class _Recorded:
    """What was last recorded of a topic, and when.

    :ivar pinged: whether that it was pinged was recorded with it.
    """

    topic: Topic
    at: float
    pinged: bool


class TopicReader:
    """Fetches topics and says what was found.

    :param limiter: gives slots to fetches.
    :param pushed: the URLs of topics that are not read: see ``pushed``.
    :param max_of_host: how many topics are read at the same time at one host.
    """

    log = Logger()

    def __init__(
        self,
        store: IStore,
        fetcher: ITopicFetcher,
        bus: IEventBus,
        clock: IClock,
        counters: Counters,
        limiter: FairLimiter,
        pushed: Container[str] = (),
        max_of_host: int = MAX_OF_HOST,
    ) -> None:
        self._store = store
        self._fetcher = fetcher
        self._bus = bus
        self._clock = clock
        self._readings = counters.readings
        self._pushed = pushed
        self._limiter = limiter
        self._max_of_host = max_of_host
        self._recorded: BoundedDict[str, _Recorded | None] = BoundedDict(MAX_REMEMBERED)

    def reads(self, url: str) -> bool:
        """Whether a topic is one that is read."""
        return url not in self._pushed

    def was_watched(self, url: str) -> bool:
        """Whether it is remembered that somebody has subscribed to a topic."""
        last = self._lately(url)
        return last is not None and last.topic.subscribers > 0

    async def is_watched(self, url: str) -> bool:
        """Whether anybody has subscribed to a topic."""
        topic = await self._store.topic(url)
        return topic is not None and topic.subscribers > 0

    @asynccontextmanager
    async def reading(self, url: str, turn: Turn) -> AsyncIterator[FetchResult]:
        """Read a topic, known or not.

        It is under way for as long as the context lasts, in which what is found is recorded:
        or else the contents of very many would wait for that in memory.

        :param turn: for whose sake; it begins when the topic's server is asked.
        :returns: where it is now, if it has moved.
        :raises TopicUnreadable: it could not be read, which is recorded if it is known;
            or it is not to be.
        :raises TopicEnded: it has ended, now or before.
        """
        topic = await self._topic(url)
        if topic is not None and topic.ended:
            raise TopicEnded(url, topic.ended)
        present = topic or Topic(url)
        for location in (url, present.url):
            if not self.reads(location):
                raise TopicUnreadable(location, NOT_READ, refused=True)
        quota = HostQuota("reading", host_of(present.url), self._max_of_host)
        async with self._limiter.slot(turn, quota, urgent=present.subscribers > 0):
            yield await self._read(present, is_known=topic is not None)

    def recorded(self, topic: Topic, *, pinged: bool) -> None:
        """A reading was recorded: this is what is known of the topic now."""
        self._recorded[topic.url] = _Recorded(topic, self._clock.seconds(), pinged)

    def nothing_new(self, reading: FetchResult) -> Topic | None:
        """The topic, if to record a reading would say what was just recorded."""
        last = self._lately(reading.url)
        if last is None or (reading.pinged and not last.pinged):
            return None
        topic = last.topic
        was = topic.digest, topic.size, topic.validators
        return topic if was == (reading.digest, reading.size, reading.validators) else None

    def forget(self, url: str) -> None:
        """Look into the store for what is known of a topic."""
        self._recorded[url] = None

    def _lately(self, url: str) -> _Recorded | None:
        last = self._recorded.get(url, None)
        fresh = last and self._clock.seconds() - last.at < REMEMBERED_SECONDS
        return last if fresh else None

    async def _topic(self, url: str) -> Topic | None:
        last = self._lately(url)
        return await self._store.topic(url) if last is None else last.topic

    async def _read(self, topic: Topic, *, is_known: bool) -> FetchResult:
        known = NO_VALIDATORS if topic.digest is None else topic.validators
        started_at = self._clock.wall_seconds()
        try:
            fetched = await self._fetcher.fetch(topic.url, known, topic.subscribers)
        except TopicUnreadable as error:
            self._readings.labels("failed").inc()
            if is_known:
                await self._record_failure(topic.url, started_at, error)
            raise
        url = topic.url
        to = normal_form(fetched.moved_to)
        if is_known and to and await self._move(url, to):
            url = to
        return _reading(topic, url, started_at, fetched)

    async def _record_failure(self, url: str, at: float, error: TopicUnreadable) -> None:
        """Record why a topic could not be read."""
        await self._store.record_failure(url, at, error.reason)
        if isinstance(error, TopicEnded) and await self._store.end_topic(url, error.reason, at):
            self.forget(url)
            self.log.info("{url} has ended: {reason}", url=url, reason=error.reason)
            self._bus.publish(events.TopicEnded(url, error.reason, at))

    async def _move(self, url: str, to: str) -> bool:
        if not self.reads(to):
            return False  # what is there is no word of its publisher's
        moved = await self._store.move_topic(url, to, self._clock.wall_seconds())
        if moved:
            self.forget(url)
            self.forget(to)
            self.log.info("{url} has moved to {to}, with its subscribers.", url=url, to=to)
        return moved


def _reading(topic: Topic, url: str, started_at: float, fetched: Fetched) -> FetchResult:
    content = fetched.content
    if content is not None:
        digest, size = content.digest, len(content.body)
    elif topic.digest is not None:
        digest, size = topic.digest, topic.size or 0
    else:
        reason = "its server answered that it has not changed, though nothing is known of it"
        raise TopicUnreadable(topic.url, reason)
    return FetchResult(
        url=url,
        digest=digest,
        size=size,
        started_at=started_at,
        content=content,
        validators=fetched.validators,
        fresh_seconds=fetched.fresh_seconds,
        result=fetched.result,
    )
