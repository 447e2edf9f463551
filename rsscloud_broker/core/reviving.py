"""Revives topics that the operator allows again; ``Broker`` uses it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from rsscloud_broker.errors import EndedTopic
from rsscloud_broker.events import TopicRevived
from rsscloud_broker.interfaces import IClock, IEventBus
from rsscloud_broker.policy.access import NOT_ALLOWED, Access
from rsscloud_broker.storage import Store

T = TypeVar("T")


class AllowedRevivals:
    """Runs an attempt to use a topic.

    If the attempt fails because the topic was ended as not allowed, and the topic is allowed now,
    the topic is revived, and the attempt is run once more.
    """

    def __init__(self, store: Store, bus: IEventBus, clock: IClock, access: Access) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._access = access

    async def __call__(self, url: str, attempt: Callable[[], Awaitable[T]]) -> T:
        try:
            return await attempt()
        except EndedTopic as error:
            topic = await self._store.topic(url)  # the topic may have moved to another URL
            if (
                error.reason != NOT_ALLOWED
                or not topic
                or not self._access.may_subscribe(topic.url)
            ):
                raise
        if await self._store.revive_topic(url):
            now, private = self._clock.wall_seconds(), topic.is_private
            self._bus.publish(TopicRevived(topic.url, now, private))
        return await attempt()
