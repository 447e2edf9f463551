"""The newest contents of topics, for notifications that carry them.

A walk has a content of its own; this is for what is tried again, of many topics in
turn.  A few are kept, as long as they are the newest.
"""

from __future__ import annotations

from collections import OrderedDict

from attrs import define, field

from rsscloud_broker.interfaces import IStore
from rsscloud_broker.model import Content

#: Bytes of contents that are kept.
ROOM = 16 * 1024 * 1024


@define(eq=False)
class Contents:
    """Reads contents from the store, and keeps those that were asked for last."""

    _store: IStore
    _room: int = ROOM
    _size: int = field(default=0, init=False)
    _kept: OrderedDict[str, Content] = field(factory=OrderedDict, init=False)
    _changes: int = field(default=0, init=False)

    async def newest(self, topic: str) -> Content | None:
        """The newest content of a topic; None if the store does not keep it.

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
        return content

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
