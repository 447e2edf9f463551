"""Verifies intents to subscribe and to unsubscribe.

The broker stores a subscription only after the subscriber's callback has confirmed it; the
notifier of that protocol asks the callback.  Before it asks, the broker fetches the topic, so that
no callback is asked about a topic that cannot be read.  Topics whose content is pushed to the
broker are not fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

from attrs import define, evolve
from twisted.logger import Logger

from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.errors import (
    CallbackFailed,
    EndedTopic,
    TopicUnreadable,
    Unavailable,
    UnsupportedProtocol,
)
from rsscloud_broker.events import SubscriptionDenied, SubscriptionRemoved, SubscriptionStored
from rsscloud_broker.interfaces import IClock, IEventBus, INotifier
from rsscloud_broker.model import Denial, FetchResult, Intent, Lease, Outcome, Subscription, Topic
from rsscloud_broker.model.ways import Way
from rsscloud_broker.policy.host_limiter import HostQuota
from rsscloud_broker.policy.limiter import FairLimiter, Turn
from rsscloud_broker.storage import Store

#: A content with more bytes than this is not kept in memory while a callback is verified.
LARGE = 64 * 1024


@define(eq=False)
class Verifier:
    """Verifies intents, and stores or removes the subscriptions that callbacks confirm.

    ``Broker`` calls it while a caller waits, ``IntentQueue`` for stored intents.

    :param notifiers: returns the enabled notifiers, by protocol.
    :param limiter: gives slots to the calls of callbacks.
    """

    log = Logger()

    _store: Store
    _bus: IEventBus
    _detector: ChangeDetector
    _notifiers: Callable[[], Mapping[str, INotifier]]
    _clock: IClock
    _limiter: FairLimiter

    @property
    def protocols(self) -> frozenset[str]:
        """The protocols that the enabled notifiers speak."""
        return frozenset(self._notifiers())

    @property
    def content_protocols(self) -> frozenset[str]:
        """The protocols whose notifications carry the content of the topic."""
        carrying = (one.protocol for one in self._notifiers().values() if one.carries_content)
        return frozenset(carrying)

    def notifier(self, protocol: str) -> INotifier:
        """The notifier that speaks a protocol.

        :raises UnsupportedProtocol: no enabled notifier speaks it.
        """
        notifier = self._notifiers().get(protocol)
        if notifier is None:
            raise UnsupportedProtocol(protocol)
        return notifier

    async def subscribe(
        self, intent: Intent, *, read: bool = True, key: int | None = None
    ) -> Subscription:
        """Verify an intent, then store the subscription or renew it.

        :param read: whether a fetch of the topic must succeed now.  Otherwise the topic is
            fetched only if it was never fetched, and a failure that may pass is ignored.
        :param key: the key of the intent, if it is stored; then this removes it.
        :raises UnsupportedProtocol, TopicUnreadable, CallbackFailed: see ``IBroker``.
        :raises ClaimLost: the stored intent was replaced meanwhile.
        """
        notifier = self.notifier(intent.callback.protocol)
        ping_generation = self._detector.ping_generation(intent.topic)  # to see pings meanwhile
        topic = await self._store.topic(intent.topic)
        if topic is not None and topic.ended:
            raise EndedTopic(intent.topic, topic.ended)
        fetched = await self._fetch_if_needed(intent, topic, must_succeed=read)
        await self._confirm(notifier, intent)
        if fetched is not None:
            await self._record_if_newest(evolve(fetched, way=_way_of(intent)), topic)
        # Otherwise the content is pushed.
        is_fetched_here = self._detector.reader.reads(intent.topic)
        known = (fetched or topic) if is_fetched_here else None
        digest = known.digest if known else None
        was_pinged = self._detector.ping_generation(intent.topic) != ping_generation
        # If the topic may have changed meanwhile, or its present content is wanted, the subscriber
        # is to be notified at once: the store does that if the digest is not that of the content.
        if is_fetched_here and (was_pinged or intent.present):
            digest = b""  # matches no content
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
            key,
        )
        if subscription.wants_content:
            self._detector.reader.forget(intent.topic)  # the next fetch has to bring content
        is_pending = subscription.attempts is not None  # a notification waits in the store
        if is_fetched_here and is_pending and subscription.wants_content:
            await self._bring_content(intent)
        self._bus.publish(SubscriptionStored(subscription, intent.source))
        return subscription

    async def unsubscribe(self, intent: Intent, key: int | None = None) -> bool:
        """Verify an intent to unsubscribe, then remove the subscription.

        :param key: as for ``subscribe``.
        :returns: whether there was a subscription.
        :raises UnsupportedProtocol, CallbackFailed: see ``IBroker``.
        """
        await self._confirm(self.notifier(intent.callback.protocol), intent)
        removed = await self._store.remove_subscription(intent.topic, intent.callback, key)
        if removed:
            self._bus.publish(SubscriptionRemoved(intent.topic, intent.callback, intent.source))
        return removed

    async def deny(self, intent: Intent, reason: str) -> None:
        """Tell the callback why the broker refuses the subscription.

        :raises CallbackFailed: the callback could not be notified.
        """
        callback = intent.callback
        denial = Denial(intent.as_written.topic, callback, reason, intent.options)
        async with self._slot(intent):
            outcome = await self.notifier(callback.protocol).deny(denial)
        unheard = "" if outcome.success else f"; it was not notified: {outcome.reason}"
        self._log_refusal(intent, f"{reason}{unheard}")
        if not outcome.success:
            raise _callback_failed(outcome)
        self.publish_denied(intent, reason)

    def publish_denied(self, intent: Intent, reason: str) -> None:
        """Publish that an intent to subscribe or to unsubscribe was refused, and why."""
        now = self._clock.wall_seconds()
        self._bus.publish(
            SubscriptionDenied(intent.topic, intent.callback, reason, now, intent.source)
        )

    def _slot(self, intent: Intent) -> AbstractAsyncContextManager[None]:
        # Ten callbacks at one host are verified at the same time.
        quota = HostQuota("verification", intent.callback.host, 10)
        return self._limiter.slot(Turn.of(intent.source), quota)

    async def _bring_content(self, intent: Intent) -> None:
        """Fetch the content that a new subscriber wants and the store does not keep.

        The store has stored a check of the topic.
        """
        topic = intent.topic
        try:
            await self._detector.check_now(topic, source=intent.source)
        except (TopicUnreadable, Unavailable):
            self._detector.schedule(topic, source=intent.source)

    async def _fetch_if_needed(
        self, intent: Intent, topic: Topic | None, *, must_succeed: bool
    ) -> FetchResult | None:
        """Fetch the topic of an intent, if that is needed: see ``subscribe``.

        :returns: the result, without a content that is too large to keep in memory: if subscribers
            wait for that, the topic is fetched again.  None if the topic was not fetched, or if a
            failure is ignored.
        """
        if not self._detector.reader.reads(intent.topic):
            return None  # the content is pushed; its URL need not answer
        way = _way_of(intent)
        if topic is not None and topic.digest is not None and not must_succeed:
            is_known = not way.is_open or topic.public_digest is not None
            if is_known:
                return None  # an earlier fetch succeeded
        try:
            fetched = await self._detector.read(intent.topic, source=intent.source, way=way)
        except TopicUnreadable as error:
            if not (must_succeed or error.lasting):
                return None
            self._log_refusal(intent, str(error))
            raise
        is_large = fetched.content is not None and len(fetched.content.body) > LARGE
        return evolve(fetched, content=None) if is_large else fetched

    def _log_refusal(self, intent: Intent, reason: str) -> None:
        callback = intent.callback.url
        self.log.info("No subscription of {callback}: {reason}", callback=callback, reason=reason)

    async def _confirm(self, notifier: INotifier, intent: Intent) -> None:
        """Ask the callback whether its subscriber wants what an intent says."""
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

    async def _record_if_newest(self, fetched: FetchResult, before: Topic | None) -> None:
        """Record the fetch that was made before the callback was verified.

        It is recorded only now, since unverified requests must change nothing.  It is not
        recorded if the topic was fetched again meanwhile, since that fetch is newer.
        """
        present = await self._store.topic(fetched.url)
        if _last_fetch(present) == _last_fetch(before):
            await self._detector.record(fetched, announce=before is not None)


def _last_fetch(topic: Topic | None) -> tuple[bytes | None, float | None] | None:
    """Hash and time of the last fetch of a topic; None for an unknown topic."""
    return None if topic is None else (topic.digest, topic.read_at)


def _way_of(intent: Intent) -> Way:
    return Way.FOLLOWED if intent.callback.is_private else Way.SUBSCRIBED


def _callback_failed(outcome: Outcome) -> CallbackFailed:
    """The error for a failed call; it says whether and when the call may be retried."""
    # Any other answer than "later" was the callback's no.
    may_retry = outcome.retry_after is not None or not (outcome.answered or outcome.refused)
    return CallbackFailed(
        outcome.reason,
        refused=outcome.refused,
        retry_after=(outcome.retry_after or 0.0) if may_retry else None,
        interrupted=outcome.interrupted,
    )
