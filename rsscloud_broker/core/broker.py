"""The verbs of the broker: store the fact first, then publish it, then return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from attrs import evolve
from zope.interface import implementer

from rsscloud_broker.core.access import NOT_ALLOWED, Access
from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.core.host_limiter import HostQuota
from rsscloud_broker.core.intents import IntentQueue
from rsscloud_broker.core.limiter import FairLimiter, Turn
from rsscloud_broker.core.rate_limits import Admission
from rsscloud_broker.core.recent_pings import RecentPings
from rsscloud_broker.core.topic_reader import NOT_READ
from rsscloud_broker.core.verification import Verifier
from rsscloud_broker.core.web_addresses import about_topic, check_ping, check_topic, topic_of
from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import (
    AddressRefused,
    CallbackFailed,
    Forbidden,
    Refused,
    TooMany,
    TopicEnded,
    TopicUnreadable,
)
from rsscloud_broker.events import PingReceived, TopicChanged
from rsscloud_broker.interfaces import IBroker, IClock, IDiskSpace, IEventBus, IStore, IURLPolicy
from rsscloud_broker.model import Content, Intent, Ping, Subscription, host_of
from rsscloud_broker.together import together
from rsscloud_broker.urls import normal_form

T = TypeVar("T")

#: Names that are looked up at a time before what they stand in is taken in.
MAX_LOOKUPS = 500

#: Why a topic is not read that nobody has subscribed to, and the seconds after which it
#: makes sense to ask again.
NO_ROOM, NO_ROOM_PAUSE = "as many topics wait to be read as the broker keeps", 60


@implementer(IBroker)
class Broker:
    """What every front door talks to.

    :param verifier: verifies intents whose callers wait for it.
    :param intents: keeps and verifies those whose callers do not.
    :param admission: says who may ask for how much.
    :param access: says which topics there may be.
    :param topics: says which topics the broker would read.
    :param callbacks: says which callbacks it would call.
    :param space: says whether there is room for what is new; None if there always is.
    """

    def __init__(
        self,
        store: IStore,
        bus: IEventBus,
        detector: ChangeDetector,
        verifier: Verifier,
        intents: IntentQueue,
        clock: IClock,
        admission: Admission,
        access: Access,
        topics: IURLPolicy,
        callbacks: IURLPolicy,
        counters: Counters,
        space: IDiskSpace | None = None,
    ) -> None:
        self._store = store
        self._bus = bus
        self._detector = detector
        self._verifier = verifier
        self._intents = intents
        self._clock = clock
        self._admission = admission
        self._access = access
        self._topics = topics
        self._callbacks = callbacks
        self._counters = counters
        self._space = space
        self._lookups = FairLimiter(clock, slots=100, under_way=MAX_LOOKUPS)
        self._recent_pings = RecentPings(store, clock)

    @property
    def protocols(self) -> frozenset[str]:
        return self._verifier.protocols

    @property
    def content_protocols(self) -> frozenset[str]:
        return self._verifier.content_protocols

    async def ping(self, ping: Ping, repeat_window: float, source: str) -> None:
        self._check_space()
        self._admission.ping(source)
        check_ping(ping)
        self._access.check_publish(*map(normal_form, ping.named_urls))
        record = await self._store.add_ping(ping, repeat_window)
        if record.repeat:
            self._counters.repeats.inc()
        else:
            self._counters.pings.inc()
            self._bus.publish(PingReceived(record.ping))
        for topic in record.watched:
            self._detector.schedule(topic, source=source)

    async def recent_pings(self) -> Sequence[Ping]:
        return await self._recent_pings.newest()

    async def ping_topic(self, url: str, source: str, again: bool = False) -> bool:
        self._check_space()
        self._admission.ping(source)
        url = topic_of(url)
        self._access.check_publish(url)
        await self._admit_reading(url, source)
        try:
            check = partial(self._detector.check_now, url, pinged=True, source=source)
            record = await self._revive_if_allowed(url, check)
        except TopicUnreadable as error:
            if again and not error.refused:
                await self._read_again(url, source)
            raise
        return record.changed

    async def _read_again(self, url: str, source: str) -> None:
        if await self._store.request_check(url, self._clock.wall_seconds()):
            self._detector.schedule_later(url, source)

    async def publish(self, urls: Collection[str], source: str) -> Mapping[str, str]:
        self._check_space()
        for _ in urls:
            self._admission.ping(source)
        topics = tuple(dict.fromkeys(map(normal_form, urls)))
        said = await together([self._problem_of(url, source) for url in topics])
        problems = dict(zip(topics, said, strict=True))
        taken = [url for url, problem in problems.items() if isinstance(problem, str)]
        if not taken:
            raise next(problem for problem in said if isinstance(problem, Refused))
        asked = await together([self._ask_for(url, source) for url in taken])
        if not any(asked):
            raise TooMany(NO_ROOM, NO_ROOM_PAUSE)
        notes = {url: _sentence(url, problem) for url, problem in problems.items() if problem}
        for url, waits in zip(taken, asked, strict=True):
            if not waits:
                notes[url] = f"{url}: {NO_ROOM}; it was not taken in"
        return notes

    def _check_space(self) -> None:
        """Return, if there is room for what is new.

        :raises Unavailable: there is not.
        """
        if self._space is not None:
            self._space.check()

    async def _ask_for(self, url: str, source: str) -> bool:
        """Have a topic read that somebody says has changed; False if there is no room."""
        asked = await self._store.request_check(url, self._clock.wall_seconds(), True)
        if asked:
            self._detector.schedule(url, pinged=True, source=source)
        else:
            self._counters.limited.labels("topics that wait").inc()
        return asked

    async def _admit_reading(self, url: str, source: str) -> None:
        """Return, if a topic may be read because a caller says that it changed.

        :raises TooMany: nobody has subscribed to it, and many such topics of its host
            are read.
        """
        if not self._admission.limits_readings(source) or self._detector.was_watched(url):
            return
        pause = self._admission.reading(url)
        # Only where there is no room, the store is asked: nearly every ping is let in.
        if pause and not await self._detector.is_watched(url):
            raise self._admission.too_many_readings(url, pause)

    async def _problem_of(self, url: str, source: str) -> str | Refused:
        """As ``_check_publish``; a refusal is given and not raised."""
        try:
            problem = await self._check_publish(url, source)
            await self._admit_reading(url, source)
        except (Forbidden, TooMany, TopicUnreadable) as error:
            return error
        return problem

    async def _check_publish(self, url: str, source: str) -> str:
        """As ``_check_topic``, for who says that a topic changed.

        :raises Forbidden: nobody may.
        """
        check_topic(url)
        self._access.check_publish(url)
        if not self._detector.reads(url):
            raise TopicUnreadable(url, NOT_READ, refused=True)
        return await self._revive_if_allowed(url, partial(self._check_topic, url, source))

    async def push_content(self, topic: str, content: Content) -> bool:
        self._check_space()
        topic = topic_of(topic)
        now = self._clock.wall_seconds()
        wanted = await self._store.push_content(topic, content, now)
        if wanted:
            self._bus.publish(TopicChanged(topic, now))
        return wanted

    async def subscribe(self, intent: Intent) -> Subscription:
        self._check_space()
        self._verifier.check_protocol(intent.callback.protocol)
        intent = about_topic(intent)
        self._access.check_subscribe(intent.topic)
        room = await self._admission.verification(intent)
        try:
            return await self._revive_if_allowed(
                intent.topic, partial(self._verifier.subscribe, intent)
            )
        except Refused as error:
            room.left += 1
            if isinstance(error, CallbackFailed):
                self._admission.failed(intent, error)
            raise

    async def unsubscribe(self, intent: Intent) -> bool:
        self._verifier.check_protocol(intent.callback.protocol)
        intent = about_topic(evolve(intent, unsubscribe=True))
        await self._admission.verification(intent)
        try:
            return await self._verifier.unsubscribe(intent)
        except CallbackFailed as error:
            self._admission.failed(intent, error)
            raise

    async def accept(self, intent: Intent) -> None:
        self._verifier.check_protocol(intent.callback.protocol)
        intent = about_topic(intent)
        if not intent.unsubscribe:
            self._check_space()
            self._access.check_subscribe(intent.topic)
        room = await self._admission.verification(intent, remembering=False)
        try:
            await self._check_intent(intent)
        except Refused:
            room.left += 1
            raise
        await self._intents.add(intent, limited=not self._admission.is_exempt(intent.source))

    async def _check_intent(self, intent: Intent) -> None:
        """Return, if the URLs of an intent are such as the broker calls.

        :raises TopicUnreadable, CallbackFailed: they are not.
        """
        if not intent.unsubscribe:
            await self._revive_if_allowed(
                intent.topic, partial(self._check_topic, intent.topic, intent.source)
            )
        try:
            await self._judge(self._callbacks, intent.callback.url, intent.source)
        except AddressRefused as error:
            raise CallbackFailed(str(error), refused=True) from error

    async def _judge(self, judge: IURLPolicy, url: str, source: str) -> None:
        """Have a URL judged.  Its name is looked up for that, which may take seconds."""
        async with self._lookups.slot(
            Turn.of(source), HostQuota("lookup", host_of(url), MAX_LOOKUPS)
        ):
            await judge.check(url)

    async def _check_topic(self, url: str, source: str) -> str:
        """Return, if a topic can be one that the broker reads, or that it need not read.

        :returns: why it could not be read the last time; empty if it could.
        :raises TopicUnreadable: it would not read it, or does not any more.
        """
        if self._detector.reads(url):
            try:
                await self._judge(self._topics, url, source)
            except AddressRefused as error:
                raise TopicUnreadable(url, str(error), refused=True) from error
        account = await self._store.topic_status(url)
        if account is None:
            return ""
        if account.topic.ended:
            raise TopicEnded(url, account.topic.ended)
        return account.result if account.failures else ""

    async def _revive_if_allowed(self, url: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """What comes of an attempt, for which a topic goes on that ended only since there
        might be no subscriptions to it, if there may be now.
        """
        try:
            return await attempt()
        except TopicEnded as error:
            topic = await self._store.topic(url)  # which may have moved elsewhere
            if (
                error.reason != NOT_ALLOWED
                or not topic
                or not self._access.may_subscribe(topic.url)
            ):
                raise
        await self._store.revive_topic(url)
        return await attempt()


def _sentence(url: str, problem: str | Refused) -> str:
    if isinstance(problem, Refused):
        return f"{problem}; it was not taken in"
    return f"{url} could not be read the last time: {problem}"
