"""What front doors ask of the broker: pings, pushed content, subscriptions.

Each method first stores a fact, then publishes it on the event bus, then returns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

from attrs import define, evolve, field
from zope.interface import implementer

from rsscloud_broker import errors
from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.core.intents import IntentQueue
from rsscloud_broker.core.topic_reader import NOT_READ
from rsscloud_broker.core.verification import Verifier
from rsscloud_broker.core.views import TopicView
from rsscloud_broker.core.web_addresses import about_topic, check_ping, check_topic, topic_of
from rsscloud_broker.counters import Counters
from rsscloud_broker.database.disk_space import DiskSpace
from rsscloud_broker.events import (
    PingAccepted,
    PingReceived,
    PingRefused,
    SubscriptionRequested,
    TopicChanged,
    TopicRevived,
)
from rsscloud_broker.interfaces import IBroker, IClock, IEventBus, IURLPolicy
from rsscloud_broker.model import Content, Intent, Ping, Subscription, host_of
from rsscloud_broker.model.ways import ChangeSource, Way
from rsscloud_broker.policy.access import NOT_ALLOWED, Access
from rsscloud_broker.policy.addresses import bucket_of
from rsscloud_broker.policy.host_limiter import HostQuota
from rsscloud_broker.policy.limiter import FairLimiter, Turn
from rsscloud_broker.policy.rate_limits import Admission
from rsscloud_broker.storage import Store
from rsscloud_broker.util.deferreds import gather
from rsscloud_broker.util.urls import normal_form

T = TypeVar("T")

#: What a publisher learns when too many topics wait to be fetched, and for how many seconds.
QUEUE_FULL, QUEUE_FULL_PAUSE = "as many topics wait to be read as the broker keeps", 60

#: How many host names are looked up at the same time for requests that wait for the result.
MAX_LOOKUPS: Final = 500


@implementer(IBroker)
@define(eq=False, slots=False)
class Broker:
    """Carries out the requests of all front doors; see ``IBroker``.

    :param verifier: verifies intents while their callers wait.
    :param intents: stores intents and verifies them after their callers got an answer.
    :param admission: applies the rate limits.
    :param access: says which topics the operator allows.
    :param topics: says which URLs of topics the broker may fetch.
    :param callbacks: says which URLs of callbacks the broker may call.
    :param space: checks the free space on the disk.
    """

    _store: Store
    _bus: IEventBus
    _detector: ChangeDetector
    _verifier: Verifier
    _intents: IntentQueue
    _clock: IClock
    _admission: Admission
    _access: Access
    _topics: IURLPolicy
    _callbacks: IURLPolicy
    _counters: Counters
    _space: DiskSpace
    _lookups: FairLimiter = field(init=False)
    _view: TopicView = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lookups = FairLimiter(self._clock, slots=100, under_way=MAX_LOOKUPS)
        self._view = TopicView(self._store, self._clock)

    def _admit_ping(self, source: str) -> None:
        """Count a ping; raise if its source is blocked or pings too often, or the disk is full."""
        self._access.check_source(source)
        self._space.check()
        self._admission.ping(source)

    @property
    def protocols(self) -> frozenset[str]:
        return self._verifier.protocols

    @property
    def content_protocols(self) -> frozenset[str]:
        """The protocols whose notifications carry the content of the topic."""
        return self._verifier.content_protocols

    async def ping(self, ping: Ping, repeat_window: float, source: str) -> None:
        if self._access.came_back(ping.origin):
            return
        try:  # pings are too many for a context manager
            await self._ping(ping, repeat_window, source)
        except errors.Refused as error:
            self._publish_ping_refused(ping.rss_url or ping.url, source, error)
            raise

    async def _ping(self, ping: Ping, repeat_window: float, source: str) -> None:
        """Check and record a ping, and have the topics with subscriptions that it names fetched."""
        self._admit_ping(source)
        check_ping(ping)
        topics = tuple(map(normal_form, ping.named_urls))
        self._access.check_publish(*topics)
        if ping.origin:  # it may have come by a list already, with a time in whole seconds
            repeat_window = max(repeat_window, 1.0)
        has_room = self._detector.has_room(source, topics)
        way, now = Way.WEBLOG_UPDATES, self._clock.wall_seconds()
        # Not by the time of the ping: the clock of the broker that passes it on may be behind.
        record = await self._store.add_ping(
            ping, repeat_window, bucket_of(source), has_room, way, now
        )
        if record.repeat:
            self._counters.repeats.inc()
        else:
            self._counters.pings.inc()
            self._bus.publish(PingReceived(record.ping))
        named = ping.rss_url or ping.url
        self._publish_ping_accepted(named, source, ping.origin, way, repeated=record.repeat)
        for topic, state in zip(record.watched, record.states, strict=True):
            self._detector.schedule(topic, state, source=source, cause=ChangeSource(way))

    async def recent_pings(self) -> Sequence[Ping]:
        return await self._view.pings(None, 10)

    def _publish_ping_accepted(
        self, url: str, source: str, origin: str, way: Way, *, repeated: bool = False
    ) -> None:
        now = self._clock.wall_seconds()
        self._bus.publish(PingAccepted(url, now, source, repeated, origin, way))

    def _publish_ping_refused(self, url: str, source: str, error: errors.Refused) -> None:
        now = self._clock.wall_seconds()
        self._bus.publish(PingRefused(url, str(error), now, source))

    @contextmanager
    def _publishing_refusals(self, url: str, source: str) -> Iterator[None]:
        """Publish that a ping was refused, if this context raises that."""
        try:
            yield
        except errors.Refused as error:
            self._publish_ping_refused(url, source, error)
            raise

    async def ping_topic(
        self, url: str, source: str, again: bool = False, origin: str = "", way: Way = Way.RSSCLOUD
    ) -> bool:
        if self._access.came_back(origin):
            return False
        with self._publishing_refusals(url, source):
            self._admit_ping(source)
            topic = topic_of(url)
            self._access.check_publish(topic)
            await self._admit_fetch(topic, source)
            try:
                fetch = self._detector.check_now
                check = partial(fetch, topic, pinged=True, source=source, origin=origin, way=way)
                record = await self._revive_if_allowed(topic, check)
            except errors.TopicUnreadable as error:
                if again and not error.refused:
                    cause = ChangeSource(way, origin, pinged=True)
                    await self._detector.schedule_later(topic, source, cause)
                raise
        self._publish_ping_accepted(url, source, origin, way)
        return record.news

    async def distrust_pings(self, url: str) -> None:
        await self._store.forget_ping(topic_of(url), self._clock.wall_seconds())

    def admit_examination(self, url: str, source: str) -> str:
        """Count a fetch of a URL that changes nothing here, or refuse it.

        It counts like a ping of a topic without subscribers, even if the URL has subscribers.

        :returns: the normal form of the URL.
        :raises Refused, Unavailable: as a ping of the URL.
        """
        with self._publishing_refusals(url, source):
            self._admit_ping(source)
            topic = topic_of(url)
            self._access.check_publish(topic)
            is_limited = not self._admission.is_exempt(source)
            if is_limited and (pause := self._admission.admit_fetch(topic)):
                raise self._admission.too_many_fetches(topic, pause)
            return topic

    async def publish(
        self, urls: Collection[str], source: str, origin: str = ""
    ) -> Mapping[str, str]:
        if self._access.came_back(origin):
            return {}
        self._access.check_source(source)
        self._space.check()
        for url in urls:
            with self._publishing_refusals(url, source):
                self._admission.ping(source)
        topics = tuple(dict.fromkeys(map(normal_form, urls)))
        found = await gather([self._problem_of(url, source) for url in topics])
        problems = dict(zip(topics, found, strict=True))
        allowed = [url for url, problem in problems.items() if isinstance(problem, str)]
        notes = {}
        for url, problem in problems.items():
            if isinstance(problem, errors.Refused):
                self._publish_ping_refused(url, source, problem)
                notes[url] = f"{problem}; it was not accepted"
            elif problem:
                notes[url] = f"{url} could not be read the last time: {problem}"
        if not allowed:
            raise next(problem for problem in found if isinstance(problem, errors.Refused))
        cause = ChangeSource(Way.WEBSUB, origin, pinged=True)
        stored = await gather([self._request_pinged_fetch(url, source, cause) for url in allowed])
        if not any(stored):
            raise errors.TooMany(QUEUE_FULL, QUEUE_FULL_PAUSE)
        for url, is_stored in zip(allowed, stored, strict=True):
            if not is_stored:
                notes[url] = f"{url}: {QUEUE_FULL}; it was not accepted"
        return notes

    async def fetch_for_followers(self, url: str, source: str) -> None:
        self._admit_ping(source)
        cause = ChangeSource(Way.FOLLOWED, pinged=True)
        if not await self._request_fetch(topic_of(url), source, cause):
            raise errors.TooMany(QUEUE_FULL, QUEUE_FULL_PAUSE)

    async def _request_pinged_fetch(self, url: str, source: str, cause: ChangeSource) -> bool:
        """Request a fetch for a ping; publish whether the ping was accepted, and return that."""
        is_stored = await self._request_fetch(url, source, cause)
        if is_stored:
            self._publish_ping_accepted(url, source, cause.origin, cause.way)
        else:
            self._counters.limited.labels("topics that wait").inc()
            self._publish_ping_refused(url, source, errors.TooMany(QUEUE_FULL, QUEUE_FULL_PAUSE))
        return is_stored

    async def _request_fetch(self, url: str, source: str, cause: ChangeSource) -> bool:
        """Store that a pinged topic is to be fetched, and schedule it; False if the store keeps as
        many such requests as it may.
        """
        state = await self._detector.request(url, source, cause)
        if state:
            self._detector.schedule(url, state, source=source, cause=cause)
        return bool(state)

    async def _admit_fetch(self, url: str, source: str) -> None:
        """Raise if a ping of ``source`` may not cause a fetch of a topic now.

        Topics with subscribers are always fetched.

        :raises TooMany: the topic has no subscribers, and too many topics without subscribers
            are fetched from its host.
        """
        if self._admission.is_exempt(source) or self._detector.reader.was_watched(url):
            return
        pause = self._admission.admit_fetch(url)
        # The store is asked only when the limit is reached: nearly every ping is admitted.
        if pause and not await self._detector.reader.is_watched(url):
            raise self._admission.too_many_fetches(url, pause)

    async def _problem_of(self, url: str, source: str) -> str | errors.Refused:
        """The refusal of a ping.  If it is allowed: why the last fetch failed, or an empty text."""
        try:
            check_topic(url)
            self._access.check_publish(url)
            if not self._detector.reader.reads(url):
                return errors.TopicUnreadable(url, NOT_READ, refused=True)
            check = partial(self._check_topic, url, source)
            problem = await self._revive_if_allowed(url, check)
            await self._admit_fetch(url, source)
        except (errors.Forbidden, errors.TooMany, errors.TopicUnreadable) as error:
            return error
        return problem

    async def _revive_if_allowed(self, url: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Attempt to use a topic.  If it was ended as not allowed, and is allowed now, revive it
        and attempt that once more.
        """
        try:
            return await attempt()
        except errors.EndedTopic as error:
            if error.reason != NOT_ALLOWED:
                raise
            topic = await self._store.topic(url)  # it may have moved to another URL
            if topic is None or not self._access.may_subscribe(topic.url):
                raise
        if await self._store.revive_topic(url):
            now, private = self._clock.wall_seconds(), topic.is_private
            self._bus.publish(TopicRevived(topic.url, now, private))
        return await attempt()

    async def push_content(self, topic: str, content: Content, source: str) -> bool:
        self._access.check_source(source)
        self._space.check()
        topic = topic_of(topic)
        self._access.check_blocked(topic)
        now = self._clock.wall_seconds()
        wanted = await self._store.push_content(topic, content, now)
        if wanted:
            self._bus.publish(TopicChanged(topic, now))
        return wanted

    @contextmanager
    def _publishing_denials(self, intent: Intent) -> Iterator[None]:
        """Publish each refusal of an intent that this context raises."""
        try:
            yield
        except errors.Refused as error:
            self._verifier.publish_denied(intent, str(error))
            raise

    def _publish_requested(self, intent: Intent) -> None:
        now = self._clock.wall_seconds()
        self._bus.publish(
            SubscriptionRequested(
                intent.topic, intent.callback, now, intent.source, intent.unsubscribe
            )
        )

    async def subscribe(self, intent: Intent) -> Subscription:
        with self._publishing_denials(intent):
            intent = self._checked(intent)
            quota = await self._admission.verification(intent)
            self._publish_requested(intent)
            try:
                return await self._revive_if_allowed(
                    intent.topic, partial(self._verifier.subscribe, intent)
                )
            except errors.Refused as error:
                quota.left += 1  # there is no new subscription at the host
                if isinstance(error, errors.CallbackFailed):
                    self._admission.failed(intent, error)
                raise

    def _checked(self, intent: Intent) -> Intent:
        """An intent with its topic in normal form; raise if what it says is refused."""
        self._access.check_source(intent.source)
        self._access.check_callback(intent.callback.url)
        self._verifier.notifier(intent.callback.protocol)  # raises if there is none
        intent = about_topic(intent)
        if not intent.unsubscribe:
            self._space.check()
            self._access.check_subscribe(intent.topic)
        return intent

    async def unsubscribe(self, intent: Intent) -> bool:
        with self._publishing_denials(intent):
            intent = self._checked(evolve(intent, unsubscribe=True))
            await self._admission.verification(intent)
            self._publish_requested(intent)
            try:
                return await self._verifier.unsubscribe(intent)
            except errors.CallbackFailed as error:
                self._admission.failed(intent, error)
                raise

    async def accept(self, intent: Intent) -> None:
        with self._publishing_denials(intent):
            intent = self._checked(intent)
            quota = await self._admission.verification(intent, remembering=False)
            try:
                await self._check_intent(intent)
            except errors.Refused:
                quota.left += 1  # as in ``subscribe``
                raise
            await self._intents.add(
                intent,
                limited=not self._admission.is_exempt(intent.source),
                stored=partial(self._publish_requested, intent),
            )

    async def _check_intent(self, intent: Intent) -> None:
        """Raise if the broker would not fetch the topic or not call the callback of an intent."""
        if not intent.unsubscribe:
            await self._revive_if_allowed(
                intent.topic, partial(self._check_topic, intent.topic, intent.source)
            )
        try:
            await self._check_address(self._callbacks, intent.callback.url, intent.source)
        except errors.AddressRefused as error:
            raise errors.CallbackFailed(str(error), refused=True) from error

    async def _check_topic(self, url: str, source: str) -> str:
        """Raise if the broker would not fetch a topic, or has ended it.

        The address of a topic whose content is pushed is not checked.

        :returns: why the last fetch failed; empty if it did not fail.
        :raises TopicUnreadable: the broker may not call this URL.
        :raises EndedTopic: the topic has ended.
        """
        if self._detector.reader.reads(url):
            try:
                await self._check_address(self._topics, url, source)
            except errors.AddressRefused as error:
                raise errors.TopicUnreadable(url, str(error), refused=True) from error
        status = await self._store.topic_status(url)
        if status is None:
            return ""
        if status.topic.ended:
            raise errors.EndedTopic(url, status.topic.ended)
        return status.result if status.failures and status.topic.is_public else ""

    async def _check_address(self, policy: IURLPolicy, url: str, source: str) -> None:
        """Check a URL while a caller waits: callers take turns at looking hosts up.

        :param source: the address of the caller.
        :raises AddressRefused: the policy does not allow it.
        """
        quota = HostQuota("lookup", host_of(url), MAX_LOOKUPS)
        async with self._lookups.slot(Turn.of(source), quota):
            await policy.check(url)
