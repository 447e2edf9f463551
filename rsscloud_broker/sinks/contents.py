"""The newest contents of topics, for notifications that carry them.

A walk has a content of its own; this is for what is tried again, of many topics in
turn.  A few are kept, as long as they are the newest.  One that the store does not keep
any more is asked for: then the topic is read once more.
"""

from __future__ import annotations

from collections import OrderedDict

from attrs import define, field

from rsscloud_broker.events import ContentMissed
from rsscloud_broker.interfaces import IClock, IEventBus, IStore
from rsscloud_broker.model import Content
from rsscloud_broker.remembered import Remembered

#: Bytes of contents that are kept.
ROOM = 16 * 1024 * 1024

#: Topics of which is known when their contents were asked for last, and the seconds for
#: which one that was is not asked for again.
MAX_ASKED, ASK_AGAIN = 10_000, 30.0


@define(eq=False)
class Contents:
    """Reads contents from the store, and keeps those that were asked for last."""

    _store: IStore
    _bus: IEventBus
    _clock: IClock
    _room: int = ROOM
    _size: int = field(default=0, init=False)
    _kept: OrderedDict[str, Content] = field(factory=OrderedDict, init=False)
    _changes: int = field(default=0, init=False)
    _asked: Remembered[str, float] = field(factory=lambda: Remembered(MAX_ASKED), init=False)

    async def newest(self, topic: str) -> Content | None:
        """The newest content of a topic; None if the store does not keep it.  Then the topic
        is going to be read.

        :raises Unavailable: the store cannot be used.
        """
        content = self._kept.get(topic)
        if content is not None:
            self._kept.move_to_end(topic)
            return content
        changes = self._changes
        content = await self._store.newest_content(topic)
        if content is not None and changes == self._changes:  # or it may be old by now
            self._keep(topic, content)
        if content is None:
            await self._ask_for(topic)
        return content

    async def _ask_for(self, topic: str) -> None:
        now = self._clock.seconds()
        if now < self._asked.get(topic, -ASK_AGAIN) + ASK_AGAIN:
            return
        self._asked[topic] = now
        if await self._store.request_content(topic, self._clock.wall_seconds()):
            self._bus.publish(ContentMissed(topic))

    def forget(self, topic: str) -> None:
        """A topic has changed: what was its newest content is not any more."""
        self._changes += 1
        old = self._kept.pop(topic, None)
        self._size -= 0 if old is None else len(old.body)

    def _keep(self, topic: str, content: Content) -> None:
        if topic in self._kept:  # two asked at the same time
            return
        self._kept[topic] = content
        self._size += len(content.body)
        while self._size > self._room:
            _, oldest = self._kept.popitem(last=False)
            self._size -= len(oldest.body)
