"""The newest contents of topics, for notifications that carry them.

A walk has a content of its own; this is for what is tried again, of many topics in
turn.  A few are kept, as long as they are the newest.  One that the store does not keep
any more is asked for: then the topic is read once more.
"""

from __future__ import annotations

from collections import OrderedDict

from attrs import define, field
from twisted.internet.defer import Deferred, DeferredLock

from rsscloud_broker.bounded_dict import BoundedDict
from rsscloud_broker.events import ContentMissed
from rsscloud_broker.interfaces import IClock, IEventBus, IStore
from rsscloud_broker.model import Content
from rsscloud_broker.sinks.carried import UnderWay

#: Bytes of contents that are kept.
CACHE_BYTES = 8 * 1024 * 1024

#: Topics of which is known when their contents were asked for last, and the seconds for
#: which one that was is not asked for again.
MAX_ASKED, ASK_AGAIN = 10_000, 30.0


@define(eq=False)
class Contents:
    """Reads contents from the store, and keeps those that were asked for last.

    :ivar under_way: counts those that are being sent.
    """

    _store: IStore
    _bus: IEventBus
    _clock: IClock
    _room: int = CACHE_BYTES
    under_way: UnderWay = field(factory=UnderWay)
    _size: int = field(default=0, init=False)
    _kept: OrderedDict[str, Content] = field(factory=OrderedDict, init=False)
    _changes: int = field(default=0, init=False)
    # One at a time: what waits to be handed over, of many, would fill the memory.
    _reading: DeferredLock = field(factory=DeferredLock, init=False)
    _asked: BoundedDict[str, float] = field(factory=lambda: BoundedDict(MAX_ASKED), init=False)

    async def newest(self, topic: str) -> Content | None:
        """The newest content of a topic; None if the store does not keep it.  Then the topic
        is going to be read.

        :raises Unavailable: the store cannot be used.
        """
        content = self._kept_one(topic)
        if content is None:
            content = await self._reading.run(self._read, topic)
        if content is None:
            await self._ask_for(topic)
        return content

    def _kept_one(self, topic: str) -> Content | None:
        content = self._kept.get(topic)
        if content is not None:
            self._kept.move_to_end(topic)
        return content

    def _read(self, topic: str) -> Deferred[Content | None]:
        return Deferred.fromCoroutine(self._read_unless_kept(topic))

    async def _read_unless_kept(self, topic: str) -> Content | None:
        content = self._kept_one(topic)  # others may have asked for it just before
        if content is not None:
            return content
        changes = self._changes
        content = await self._store.newest_content(topic)
        if content is not None and changes == self._changes:  # or it may be old by now
            self._keep(topic, content)
        return content

    async def _ask_for(self, topic: str) -> None:
        now = self._clock.seconds()
        if now < self._asked.get(topic, -ASK_AGAIN) + ASK_AGAIN:
            return
        self._asked[topic] = now
        if await self._store.request_content(topic, self._clock.wall_seconds()):
            self._bus.publish(ContentMissed(topic))

    async def pushed(self, key: int) -> Content | None:
        """A content that was pushed, by the store's key; None if it is not kept any more.

        :raises Unavailable: the store cannot be used.
        """
        return await self._store.content(key)

    def forget(self, topic: str) -> None:
        """A topic has changed: what was its newest content is not any more."""
        self._changes += 1
        old = self._kept.pop(topic, None)
        self._size -= 0 if old is None else len(old.body)

    def _keep(self, topic: str, content: Content) -> None:
        self._kept[topic] = content
        self._size += len(content.body)
        while self._size > self._room:
            _, oldest = self._kept.popitem(last=False)
            self._size -= len(oldest.body)
