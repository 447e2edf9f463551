"""Publishes topics that the broker serves itself, for applications.

The publisher stores the content and begins the fan-out in one transaction.  Nothing is fetched,
since the content is at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from attrs import define
from zope.interface import implementer

from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.core.web_addresses import topic_of
from rsscloud_broker.database.disk_space import DiskSpace
from rsscloud_broker.events import PingAccepted, TopicEnded
from rsscloud_broker.interfaces import IClock, IEventBus, IPublisher
from rsscloud_broker.model import Content, FetchResult
from rsscloud_broker.model.ways import Way
from rsscloud_broker.policy.access import Access
from rsscloud_broker.storage import Store
from rsscloud_broker.wire.text import in_bytes

T = TypeVar("T")


@implementer(IPublisher)
@define(eq=False, slots=False)
class Publisher:
    """Implements ``IPublisher``.

    :param space: checks the free disk space.
    """

    _store: Store
    _detector: ChangeDetector
    _bus: IEventBus
    _clock: IClock
    _access: Access
    _space: DiskSpace

    async def publish(
        self, url: str, content: Content, operation: Callable[[Any], T], source: str
    ) -> T:
        return await self.publish_all({url: content}, operation, source)

    async def publish_all(
        self, contents: Mapping[str, Content], operation: Callable[[Any], T], source: str
    ) -> T:
        topics = [self._admit(url, source) for url in contents]
        now = self._clock.wall_seconds()
        fetched = [
            FetchResult(
                url=topic,
                digest=content.digest,
                size=len(content.body),
                started_at=now,
                content=content,
                pinged=topic == topics[0],  # all are published by one ping, that of the first
                result=f"published at this broker, {in_bytes(content.body)}",
                asked_at=now,
                way=Way.PUBLISHED,
            )
            for topic, content in zip(topics, contents.values(), strict=True)
        ]
        result = await self._detector.publish(fetched, operation)
        self._bus.publish(
            PingAccepted(topics[0], self._clock.wall_seconds(), source, way=Way.PUBLISHED)
        )
        return result

    def check(self, url: str, source: str) -> None:
        self._admit(url, source)

    async def remove(self, url: str, reason: str, operation: Callable[[Any], T], source: str) -> T:
        self._access.check_source(source)
        topic = topic_of(url)
        now = self._clock.wall_seconds()
        result, ended = await self._store.unpublish(topic, reason, now, operation)
        if ended:
            self._detector.reader.forget(topic)
            self._bus.publish(TopicEnded(topic, reason, now))
        return result

    def _admit(self, url: str, source: str) -> str:
        """The normal form of the URL of a topic, after a check that it may be published."""
        self._access.check_source(source)
        self._space.check()
        topic = topic_of(url)
        self._access.check_blocked(topic)
        return topic
