"""The verbs of the broker: store the fact first, then publish it, then return."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.internet.defer import DeferredSemaphore
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.core.rate_limits import Admission
from rsscloud_broker.counters import Counters
from rsscloud_broker.events import (
    PingReceived,
    SubscriptionRemoved,
    SubscriptionStored,
    TopicChanged,
)
from rsscloud_broker.interfaces import IBroker, IEventBus, INotifier, IStore
from rsscloud_broker.model import (
    Callback,
    CallbackFailed,
    Intent,
    Lease,
    Outcome,
    Ping,
    Reading,
    Subscription,
    Topic,
    TopicUnreadable,
    UnsupportedProtocol,
)

#: Callbacks that are verified at the same time.
MAX_VERIFICATIONS = 100


@implementer(IBroker)
class Broker:
    """What every front door talks to.

    :param notifiers: those that run, by protocol.
    :param admission: says who may ask for how much.
    """

    log = Logger()

    def __init__(
        self,
        store: IStore,
        bus: IEventBus,
        detector: ChangeDetector,
        notifiers: Mapping[str, INotifier],
        clock: IReactorTime,
        admission: Admission,
        counters: Counters,
    ) -> None:
        self._store = store
        self._bus = bus
        self._detector = detector
        self._notifiers = notifiers
        self._clock = clock
        self._admission = admission
        self._counters = counters
        self._verifications = DeferredSemaphore(MAX_VERIFICATIONS)

    @property
    def protocols(self) -> frozenset[str]:
        return frozenset(self._notifiers)

    async def ping(self, ping: Ping, repeat_window: float, source: str) -> None:
        self._admission.ping(source)
        record = await self._store.add_ping(ping, repeat_window)
        if record.repeat:
            self._counters.repeats.inc()
        else:
            self._counters.pings.inc()
            self._bus.publish(PingReceived(record.ping))
        for topic in record.watched:
            self._detector.ask(topic)

    async def ping_topic(self, url: str, source: str, again: bool = False) -> bool:
        self._admission.ping(source)
        try:
            record = await self._detector.check(url, pinged=True)
        except TopicUnreadable:
            if again and await self._store.request_check(url, self._clock.seconds()):
                self._detector.ask(url)
            raise
        return record.changed

    async def subscribe(self, intent: Intent) -> Subscription:
        notifier = self._notifiers.get(intent.callback.protocol)
        if notifier is None:
            raise UnsupportedProtocol(intent.callback.protocol)
        await self._admission.verification(intent)
        try:
            before = await self._store.topic(intent.topic)
            reading = await self._detector.read(intent.topic)
        except TopicUnreadable as error:
            self.log.info(
                "No subscription of {callback}: {error}", callback=intent.callback.url, error=error
            )
            raise
        outcome = await self._verify(notifier, intent)
        if not outcome.success:
            self.log.info(
                "No subscription of {callback} to {topic}: {reason}",
                callback=intent.callback.url,
                topic=intent.topic,
                reason=outcome.reason,
            )
            failure = CallbackFailed(outcome.reason, refused=outcome.refused)
            self._admission.failed(intent, failure)
            raise failure
        await self._record(reading, before)
        subscription = await self._store.put_subscription(
            Subscription(
                topic=intent.topic,
                callback=intent.callback,
                lease=Lease(self._clock.seconds(), intent.lease_seconds),
            ),
            reading.digest,
        )
        self._bus.publish(SubscriptionStored(subscription))
        return subscription

    async def unsubscribe(self, topic: str, callback: Callback) -> bool:
        removed = await self._store.remove_subscription(topic, callback)
        if removed:
            self._bus.publish(SubscriptionRemoved(topic, callback.url))
        return removed

    async def _verify(self, notifier: INotifier, intent: Intent) -> Outcome:
        await self._verifications.acquire()
        try:
            return await notifier.verify(intent)
        finally:
            self._verifications.release()

    async def _record(self, reading: Reading, before: Topic | None) -> None:
        """Record what was read before the callback was verified.

        Not before that, since unverified requests change nothing; and not if the
        topic was read once more meanwhile, which is newer.
        """
        if await self._store.topic(reading.url) != before:
            return
        record = await self._store.record_reading(reading, None)
        if record.changed and before is not None:
            self._bus.publish(TopicChanged(reading.url, self._clock.seconds()))
