"""Fetches topics with what the store knows of them, and stores moves, ends and failures.

The detector (``ChangeDetector``) calls it and records the content.  The reader sends the stored
validators, so that a server need not send content that has not changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable
from typing import TypeVar

from attrs import define, field, frozen
from twisted.logger import Logger

from rsscloud_broker import events
from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import EndedTopic, GivenUp, TopicUnreadable
from rsscloud_broker.interfaces import IClock, IEventBus, ITopicFetcher
from rsscloud_broker.model import NO_VALIDATORS, FetchResult, Topic, host_of
from rsscloud_broker.model.fetching import Fetched, Wanted
from rsscloud_broker.model.shared import Work, WorkKind
from rsscloud_broker.model.ways import Way
from rsscloud_broker.policy.access import refusal
from rsscloud_broker.policy.blocks import Blocks
from rsscloud_broker.policy.host_limiter import HostQuota
from rsscloud_broker.policy.limiter import FairLimiter, Turn
from rsscloud_broker.storage import Store
from rsscloud_broker.util.caches import BoundedDict
from rsscloud_broker.util.urls import normal_form

T = TypeVar("T")

#: The reason given when a topic is not fetched because its content is pushed.
NOT_READ = "its publisher pushes its content, so the broker does not read it"

#: How many topics are cached, and for how many seconds each.
MAX_REMEMBERED, REMEMBERED_SECONDS = 10_000, 60.0

#: How many topics are fetched from one host at the same time.
_MAX_OF_HOST = 20


def _normal_forms(prefixes: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(normal_form, prefixes))


@frozen
class PushedTopics:
    """The topics whose content is pushed to the broker, and which the broker never fetches.

    A publisher that pushes the content of a topic need not serve it.  At the topic's URL there may
    be nothing, or a page for people; and what a stranger puts there is not what the publisher said.

    :ivar prefixes: how the URLs of the topics begin, in normal form.
    """

    prefixes: tuple[str, ...] = field(default=(), converter=_normal_forms)

    def __contains__(self, url: object) -> bool:
        return isinstance(url, str) and url.startswith(self.prefixes)


@frozen
class _Recorded:
    """A topic as it was last recorded, and when.

    :ivar pinged: whether a ping of the topic was recorded with it.
    """

    topic: Topic
    at: float
    pinged: bool


@define(eq=False)
class TopicReader:
    """Fetches topics, each in a slot of the limiter, and caches what was recorded of them.

    :param limiter: gives slots to fetches.
    :param pushed: the URLs of topics whose content is pushed; they are never fetched.
    :param blocks: the topics that administrators have blocked, which are not fetched.
    """

    log = Logger()

    _store: Store
    _fetcher: ITopicFetcher
    _bus: IEventBus
    _clock: IClock
    _counters: Counters
    _limiter: FairLimiter
    _pushed: Container[str]
    _blocks: Blocks
    # By URL; None for a topic that is to be read from the store next.
    _cache: BoundedDict[str, _Recorded | None] = field(
        factory=lambda: BoundedDict(MAX_REMEMBERED), init=False
    )
    # Less if there are several nodes.
    _remembered_seconds: float = field(default=REMEMBERED_SECONDS, init=False)

    def set_node_count(self, nodes: int) -> None:
        """Cache topics for a moment only if several nodes live.

        :param nodes: how many.
        """
        # For how many seconds if other nodes may have recorded something of them since.
        self._remembered_seconds = 1.0 if nodes > 1 else REMEMBERED_SECONDS

    def reads(self, url: str) -> bool:
        """Whether the broker fetches a topic: False if its content is pushed."""
        return url not in self._pushed

    def was_watched(self, url: str) -> bool:
        """Whether a topic was watched when it was last recorded; False if that is not cached."""
        last = self._cached_lately(url)
        return last is not None and last.topic.is_public

    async def is_watched(self, url: str) -> bool:
        """Whether a topic has subscribers that strangers may know of, as the store says."""
        topic = await self._store.topic(url)
        return topic is not None and topic.is_public

    async def fetch(
        self, url: str, turn: Turn, use: Callable[[FetchResult], Awaitable[T]], way: Way = Way.FETCH
    ) -> T:
        """Fetch a topic, whether or not the store knows it, and hand the result on.

        :param turn: the fetch's turn at the limiter; it begins when the server is called.
        :param use: takes the result, and records it if it is to be recorded.  The URL of the
            result is the new one if the topic has moved.  The fetch holds its slot until ``use``
            has returned, so that not too many contents wait in memory to be recorded.
        :param way: why the topic is fetched.
        :returns: what ``use`` returned.
        :raises TopicUnreadable: the fetch failed, which is stored if the topic is known; or the
            content of the topic is pushed, or the topic is blocked.
        :raises EndedTopic: the topic has ended, now or earlier.
        """
        topic = await self._find_topic(url)
        if topic is not None and topic.ended:
            raise EndedTopic(url, topic.ended)
        present = topic or Topic(url)
        for location in (url, present.url):
            if not self.reads(location):
                raise TopicUnreadable(location, NOT_READ, refused=True)
            if block := self._blocks.of_topic(location):
                raise TopicUnreadable(location, refusal(block), refused=True)
        quota = HostQuota("fetch", host_of(present.url), _MAX_OF_HOST)
        async with self._limiter.slot(turn, quota, urgent=present.subscribers > 0):
            try:
                async with self._store.trial(Work(WorkKind.TOPIC, present.url)):
                    return await use(
                        await self._fetch_and_move(present, way, is_known=topic is not None)
                    )
            except GivenUp as error:
                given_up = TopicUnreadable(present.url, str(error), refused=True)
                now = self._clock.wall_seconds()
                await self._report_failure(
                    present, way, given_up, now, 0.0, is_known=topic is not None
                )
                raise given_up from None

    def remember(self, topic: Topic, *, pinged: bool) -> None:
        """Cache a topic that the caller has just recorded.

        Not one that has ended meanwhile: those who revive it do not clear this cache.
        """
        recorded = _Recorded(topic, self._clock.seconds(), pinged)
        self._cache[topic.url] = None if topic.ended else recorded

    def unchanged_topic(self, fetched: FetchResult) -> Topic | None:
        """The cached topic, if recording this result would not change its row; else None."""
        last = self._cached_lately(fetched.url)
        if last is None or (fetched.pinged and not last.pinged):
            return None  # the row would say that the topic was pinged
        topic = last.topic
        if topic.shows(fetched.way) and topic.public_digest != topic.digest:
            return None  # strangers would see what only private followers have seen yet
        was = topic.digest, topic.size, topic.validators
        return topic if was == (fetched.digest, fetched.size, fetched.validators) else None

    def forget(self, url: str) -> None:
        """Discard what is cached of a topic; the next fetch reads its row from the store."""
        self._cache[url] = None

    def _cached_lately(self, url: str) -> _Recorded | None:
        """What was recorded of a topic, if that is recent enough to rely on it; None otherwise."""
        last = self._cache.get(url, None)
        fresh = last and self._clock.seconds() - last.at < self._remembered_seconds
        return last if fresh else None

    async def _find_topic(self, url: str) -> Topic | None:
        last = self._cached_lately(url)
        return await self._store.topic(url) if last is None else last.topic

    async def _fetch_and_move(self, topic: Topic, way: Way, *, is_known: bool) -> FetchResult:
        """Call the server of a topic, and move the topic if the server says that it has moved."""
        known = NO_VALIDATORS if topic.digest is None else topic.validators
        wanted = Wanted(topic.need, topic.digest, topic.size)
        if topic.shows(way) and topic.public_digest != topic.digest:
            # A caller who asked for it openly must not see that its content was known already.
            known, wanted = NO_VALIDATORS, Wanted(topic.need, None, None)
        started_at, began = self._clock.wall_seconds(), self._clock.seconds()
        try:
            fetched = await self._fetcher.fetch(topic.url, known, topic.subscribers, wanted)
        except TopicUnreadable as error:
            seconds = self._clock.seconds() - began
            await self._report_failure(topic, way, error, started_at, seconds, is_known=is_known)
            raise
        seconds = self._clock.seconds() - began
        url, new_url = topic.url, normal_form(fetched.moved_to)
        may_move = new_url and topic.shows(way) and not topic.is_private
        if is_known and may_move and await self._move(url, new_url):
            url = new_url
        digest, size = _known_or_new(topic, fetched)
        return FetchResult(
            url=url,
            digest=digest,
            size=size,
            started_at=started_at,
            content=fetched.content,
            validators=fetched.validators,
            fresh_seconds=fetched.fresh_seconds,
            result=fetched.result,
            seconds=seconds,
        )

    async def _report_failure(
        self,
        topic: Topic,
        way: Way,
        error: TopicUnreadable,
        at: float,
        seconds: float,
        *,
        is_known: bool,
    ) -> None:
        """Count, store and publish that a topic could not be fetched.

        :param at: when that began, by the wall clock.
        """
        url, private = topic.url, not topic.shows(way)
        self._counters.fetches.labels("private" if private else "failed").inc()
        if is_known:
            ends = not (private or topic.is_private)
            await self._record_failure(url, at, error, ends=ends)
        now = self._clock.wall_seconds()
        self._bus.publish(events.TopicFetchFailed(url, error.reason, seconds, now, private))

    async def _record_failure(
        self, url: str, at: float, error: TopicUnreadable, *, ends: bool
    ) -> None:
        """Store why a fetch failed, and end the topic if its server says that it has ended.

        :param ends: whether it may end.  By a fetch for private followers a topic neither ends nor
            moves, since strangers would see that.
        """
        await self._store.record_failure(url, at, error.reason, error.retry_after)
        # So that the next result is recorded, even if it is the one that is cached.
        self.forget(url)
        if not (ends and isinstance(error, EndedTopic)):
            return
        if await self._store.end_topic(url, error.reason, at):
            self.forget(url)  # another result may have been recorded meanwhile
            self.log.info("{url} has ended: {reason}", url=url, reason=error.reason)
            self._bus.publish(events.TopicEnded(url, error.reason, at))

    async def _move(self, url: str, new_url: str) -> bool:
        if not self.reads(new_url):
            return False  # a server must not redirect to a topic whose content is pushed
        now = self._clock.wall_seconds()
        moved = await self._store.move_topic(url, new_url, now)
        if moved:
            self.forget(url)
            self.forget(new_url)
            self.log.info("{url} has moved to {to}, with its subscribers.", url=url, to=new_url)
            self._bus.publish(events.TopicMoved(url, new_url, now))
        return moved


def _known_or_new(topic: Topic, fetched: Fetched) -> tuple[bytes, int]:
    """The digest and the size of what was fetched; the known ones if nothing has changed."""
    if fetched.digest is not None:
        return fetched.digest, fetched.size
    if fetched.content is not None:
        return fetched.content.digest, len(fetched.content.body)
    if topic.digest is not None:
        return topic.digest, topic.size or 0
    reason = "its server answered that it has not changed, though nothing is known of it"
    raise TopicUnreadable(topic.url, reason)
