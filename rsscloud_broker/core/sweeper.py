"""Deletes expired and failing subscriptions and idle topics at the top of each hour.

The sweep also ends topics that have subscribers and that the operator no longer allows.  When
such a topic is allowed again, the broker revives it at the next request for it.

If several nodes share a database, one of them sweeps for all.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve
from twisted.logger import Logger

from rsscloud_broker.events import SubscriptionsSwept, TopicEnded
from rsscloud_broker.interfaces import IClock, IEventBus
from rsscloud_broker.model.work import Swept
from rsscloud_broker.policy.access import NOT_ALLOWED, Access
from rsscloud_broker.storage import Store
from rsscloud_broker.util.cluster_jobs import PeriodicClusterJob, old_by

#: Seconds after its last fetch until a topic without subscribers is deleted.
IDLE_TOPIC_SECONDS = 7 * 86_400


class Sweeper(PeriodicClusterJob):
    """Deletes subscriptions that expired or keep failing, and topics without subscribers.

    A service: it runs ``sweep`` at the top of each hour.

    :param forget: discards what is cached of a topic.
    """

    log = Logger()

    def __init__(
        self,
        store: Store,
        bus: IEventBus,
        clock: IClock,
        access: Access,
        forget: Callable[[str], None],
    ) -> None:
        super().__init__(clock, 3600.0, self.sweep, store, name="sweep")
        self._store = store
        self._bus = bus
        self._access = access
        self._forget = forget

    async def sweep(self, due_at: float = 0.0) -> None:
        """Delete from the store what is due, then end the topics that are not allowed."""
        now = self._clock.wall_seconds()
        ended_by = old_by(now, due_at)
        swept = Swept(after=0)

        async def portion() -> bool:
            """Remove a portion; return whether others follow."""
            nonlocal swept
            idle_before = now - IDLE_TOPIC_SECONDS
            part = await self._store.sweep(ended_by, idle_before, swept.after or 0)
            swept = swept.followed_by(part)
            return part.after is not None

        await self.in_portions(portion)
        swept = evolve(swept, after=None)
        if swept.expired or swept.failing:
            self.log.info(
                "Dropped {swept.expired} expired subscriptions and {swept.failing} whose "
                "callbacks failed too often in a row.",
                swept=swept,
            )
        self._bus.publish(SubscriptionsSwept(swept, now))
        if self._access.limited:
            await self._end_forbidden(now)

    async def _end_forbidden(self, now: float) -> None:
        after: int | None = 0
        while after is not None:
            # How many topics the store looks at at a time.
            topics, after = await self._store.watched_topics(after, 1000)
            for url in topics:
                if self._access.may_subscribe(url):
                    continue
                topic = await self._store.topic(url)
                if await self._store.end_topic(url, NOT_ALLOWED, now):
                    self._forget(url)
                    self.log.info("{url} is not allowed any more: it ends.", url=url)
                    private = topic is not None and topic.is_private
                    self._bus.publish(TopicEnded(url, NOT_ALLOWED, now, private))
