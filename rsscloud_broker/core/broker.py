"""The verbs of the broker: store the fact first, then publish it, then return."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.events import PingReceived, SubscriptionRemoved, SubscriptionStored
from rsscloud_broker.interfaces import IBroker, IEventBus, INotifier, IStore
from rsscloud_broker.model import (
    Callback,
    CallbackFailed,
    Intent,
    Lease,
    Ping,
    Reading,
    Subscription,
    TopicUnreadable,
    UnsupportedProtocol,
)


@implementer(IBroker)
class Broker:
    """What every front door talks to.

    :param notifiers: those that run, by protocol.
    """

    log = Logger()

    def __init__(
        self,
        store: IStore,
        bus: IEventBus,
        detector: ChangeDetector,
        notifiers: Mapping[str, INotifier],
        clock: IReactorTime,
    ) -> None:
        self._store = store
        self._bus = bus
        self._detector = detector
        self._notifiers = notifiers
        self._clock = clock

    @property
    def protocols(self) -> frozenset[str]:
        return frozenset(self._notifiers)

    async def ping(self, ping: Ping, repeat_window: float) -> None:
        record = await self._store.add_ping(ping, repeat_window)
        if not record.repeat:
            self._bus.publish(PingReceived(record.ping))
        for topic in record.watched:
            self._detector.ask(topic)

    async def ping_topic(self, url: str) -> bool:
        record = await self._detector.check(url, pinged=True)
        return record.changed

    async def subscribe(self, intent: Intent) -> Subscription:
        notifier = self._notifiers.get(intent.callback.protocol)
        if notifier is None:
            raise UnsupportedProtocol(intent.callback.protocol)
        try:
            first_reading = await self._read_topic(intent.topic)
        except TopicUnreadable as error:
            self.log.info(
                "No subscription of {callback}: {error}", callback=intent.callback.url, error=error
            )
            raise
        outcome = await notifier.verify(intent)
        if not outcome.success:
            self.log.info(
                "No subscription of {callback} to {topic}: {reason}",
                callback=intent.callback.url,
                topic=intent.topic,
                reason=outcome.reason,
            )
            raise CallbackFailed(outcome.reason)
        await self._record_first(first_reading)
        subscription = await self._store.put_subscription(
            Subscription(
                topic=intent.topic,
                callback=intent.callback,
                lease=Lease(self._clock.seconds(), intent.lease_seconds),
            )
        )
        self._bus.publish(SubscriptionStored(subscription))
        return subscription

    async def unsubscribe(self, topic: str, callback: Callback) -> bool:
        removed = await self._store.remove_subscription(topic, callback)
        if removed:
            self._bus.publish(SubscriptionRemoved(topic, callback.url))
        return removed

    async def _read_topic(self, url: str) -> Reading | None:
        """Make sure that a topic can be read before anybody subscribes to it.

        What is found at a topic that others watch already is news to them, so it
        is recorded.  A topic that nobody watches is not stored before the
        subscriber is verified; its reading is returned.
        """
        if await self._store.topic(url) is None:
            return await self._detector.read(url)
        await self._detector.check(url)
        return None

    async def _record_first(self, reading: Reading | None) -> None:
        # Somebody else may have been faster while the callback was verified.
        if reading is not None and await self._store.topic(reading.url) is None:
            await self._store.record_reading(reading, None)
