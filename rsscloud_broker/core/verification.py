"""Verification of intent: nothing is stored for a subscriber who does not confirm it.

What is verified is asked by its notifier, in the words of its protocol.  An intent to
subscribe needs a topic too that can be read: that is found out first, so that the
callback is asked only for what there is.  A topic whose content is pushed needs not.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from attrs import evolve
from twisted.logger import Logger

from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.core.host_limiter import HostQuota
from rsscloud_broker.core.limiter import FairLimiter, Turn
from rsscloud_broker.errors import (
    CallbackFailed,
    TopicEnded,
    TopicUnreadable,
    Unavailable,
    UnsupportedProtocol,
)
from rsscloud_broker.events import SubscriptionRemoved, SubscriptionStored
from rsscloud_broker.interfaces import IClock, IEventBus, INotifier, IStore
from rsscloud_broker.model import Denial, FetchResult, Intent, Lease, Outcome, Subscription, Topic

#: Bytes of a content that is not held while a callback is verified.
LARGE = 64 * 1024

#: Callbacks that are verified at the same time at one host.
MAX_OF_HOST = 10


class Verifier:
    """Verifies intents, and does what those want who confirm them.

    :param notifiers: those that run, by protocol.
    :param limiter: gives slots to calls.
    """

    log = Logger()

    def __init__(
        self,
        store: IStore,
        bus: IEventBus,
        detector: ChangeDetector,
        notifiers: Mapping[str, INotifier],
        clock: IClock,
        limiter: FairLimiter,
    ) -> None:
        self._store = store
        self._bus = bus
        self._detector = detector
        self._notifiers = notifiers
        self._clock = clock
        self._limiter = limiter

    @property
    def protocols(self) -> frozenset[str]:
        """What there are notifiers for."""
        return frozenset(self._notifiers)

    @property
    def content_protocols(self) -> frozenset[str]:
        """Those of them whose notifications carry contents."""
        carrying = (one.protocol for one in self._notifiers.values() if one.carries_content)
        return frozenset(carrying)

    def check_protocol(self, protocol: str) -> None:
        """Return, if a notifier carries a protocol.

        :raises UnsupportedProtocol: none does.
        """
        self._notifier(protocol)

    def _notifier(self, protocol: str) -> INotifier:
        notifier = self._notifiers.get(protocol)
        if notifier is None:
            raise UnsupportedProtocol(protocol)
        return notifier

    async def subscribe(self, intent: Intent, *, read: bool = True) -> Subscription:
        """Verify an intent, then store the subscription or renew it.

        :param read: whether the topic must be readable now, if it is one that is read.
            Otherwise it is read only if it is not known yet, and need not answer right now.
        :raises UnsupportedProtocol, TopicUnreadable, CallbackFailed: see ``IBroker``.
        """
        notifier = self._notifier(intent.callback.protocol)
        heard = self._detector.last_ping(intent.topic)
        topic = await self._store.topic(intent.topic)
        if topic is not None and topic.ended:
            raise TopicEnded(intent.topic, topic.ended)
        reading = await self._read(intent, topic, read)
        if reading is not None:  # or very many who take long would fill the memory
            reading = _without_large_content(reading)
        await self._confirm(notifier, intent)
        if reading is not None:
            await self._record(reading, topic)
        is_read = self._detector.reads(intent.topic)
        known = (reading or topic) if is_read else None
        digest = known.digest if known else None
        if is_read and self._detector.last_ping(intent.topic) != heard:
            digest = b""  # it may have been read after a change that is news to this one
        subscription = await self._store.put_subscription(
            Subscription(
                topic=intent.topic,
                callback=intent.callback,
                lease=Lease(self._clock.wall_seconds(), intent.lease_seconds),
                options=intent.options,
                wants_content=notifier.carries_content,
                written=intent.written,
            ),
            digest,
        )
        if is_read and subscription.attempts is not None and subscription.wants_content:
            await self._bring_content(intent)
        self._bus.publish(SubscriptionStored(subscription))
        return subscription

    async def unsubscribe(self, intent: Intent) -> bool:
        """Verify an intent to end a subscription, then remove it.  True if there was one.

        :raises UnsupportedProtocol, CallbackFailed: see ``IBroker``.
        """
        await self._confirm(self._notifier(intent.callback.protocol), intent)
        removed = await self._store.remove_subscription(intent.topic, intent.callback)
        if removed:
            self._bus.publish(SubscriptionRemoved(intent.topic, intent.callback.url))
        return removed

    async def deny(self, intent: Intent, reason: str) -> None:
        """Tell a subscriber why there is no subscription.

        :raises CallbackFailed: it was not told.
        """
        callback = intent.callback
        denial = Denial(intent.as_written.topic, callback, reason, intent.options)
        async with self._slot(intent):
            outcome = await self._notifier(callback.protocol).deny(denial)
        unheard = "" if outcome.success else f"; it was not told: {outcome.reason}"
        self._tell_of_refusal(intent, f"{reason}{unheard}")
        if not outcome.success:
            raise _callback_failed(outcome)

    def _slot(self, intent: Intent) -> AbstractAsyncContextManager[None]:
        """A slot for a call to a subscriber."""
        quota = HostQuota("verification", intent.callback.host, MAX_OF_HOST)
        return self._limiter.slot(Turn.of(intent.source), quota)

    async def _bring_content(self, intent: Intent) -> None:
        """Have a content kept that nobody wanted before; the store has asked for it."""
        topic = intent.topic
        self._detector.forget(topic)
        try:
            await self._detector.check_now(topic, source=intent.source)
        except (TopicUnreadable, Unavailable):
            self._detector.schedule(topic, source=intent.source)

    async def _read(self, intent: Intent, topic: Topic | None, must: bool) -> FetchResult | None:
        if not self._detector.reads(intent.topic):
            return None  # nothing need be there
        if topic is not None and topic.digest is not None and not must:
            return None  # what is known of it will do
        try:
            return await self._detector.read(intent.topic, source=intent.source)
        except TopicUnreadable as error:
            if not (must or error.lasting):
                return None
            self._tell_of_refusal(intent, str(error))
            raise

    def _tell_of_refusal(self, intent: Intent, reason: str) -> None:
        callback = intent.callback.url
        self.log.info("No subscription of {callback}: {reason}", callback=callback, reason=reason)

    async def _confirm(self, notifier: INotifier, intent: Intent) -> None:
        async with self._slot(intent):
            outcome = await notifier.verify(intent.as_written)
        if outcome.success:
            return
        self.log.info(
            "No confirmation by {callback} for {topic}: {reason}",
            callback=intent.callback.url,
            topic=intent.topic,
            reason=outcome.reason,
        )
        raise _callback_failed(outcome)

    async def _record(self, reading: FetchResult, before: Topic | None) -> None:
        """Record what was read before the callback was verified.

        Not before that, since unverified requests change nothing; and not if the
        topic was read once more meanwhile, which is newer.
        """
        if _last_read(await self._store.topic(reading.url)) == _last_read(before):
            await self._detector.record(reading, announce=before is not None)


def _without_large_content(reading: FetchResult) -> FetchResult:
    """A reading that may be held for long: if it is of a change that others wait for, they
    have the topic read once more.
    """
    if reading.content is None or len(reading.content.body) <= LARGE:
        return reading
    return evolve(reading, content=None)


def _callback_failed(outcome: Outcome) -> CallbackFailed:
    """The error for a call that failed, which says whether it is to be made again."""
    passing = outcome.retry_after is not None or not (outcome.answered or outcome.refused)
    return CallbackFailed(
        outcome.reason,
        refused=outcome.refused,
        retry_after=(outcome.retry_after or 0.0) if passing else None,
    )


def _last_read(topic: Topic | None) -> tuple[bytes | None, float | None] | None:
    """What and when was read last; None of a topic that is not known."""
    return None if topic is None else (topic.digest, topic.read_at)
