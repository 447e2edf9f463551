"""The top of the hour: what has ended is dropped, and not before."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rsscloud_broker.events import SubscriptionsSwept
from rsscloud_broker.interfaces import IEventBus, IStore
from rsscloud_broker.timing import EachPeriod

#: Seconds after its last reading at which a topic that nobody subscribes to is
#: forgotten.
IDLE_TOPIC_SECONDS = 7 * 86_400


class Sweeper(EachPeriod):
    """Drops expired and marked subscriptions, and topics that nobody watches."""

    log = Logger()

    def __init__(self, store: IStore, bus: IEventBus, clock: IReactorTime) -> None:
        super().__init__(clock, 3600.0, self.sweep, name="sweep")
        self._store = store
        self._bus = bus

    async def sweep(self) -> None:
        """What the top of the hour does."""
        now = self._clock.seconds()
        swept = await self._store.sweep(now, now - IDLE_TOPIC_SECONDS)
        if swept.expired or swept.marked:
            self.log.info(
                "Dropped {swept.expired} expired subscriptions and {swept.marked} whose "
                "callbacks failed too often in a row.",
                swept=swept,
            )
        self._bus.publish(SubscriptionsSwept(swept, now))
