"""How many bytes of contents are in memory for notifications.

A content is carried by many notifications at once, and counts once.  Small ones do not
count: there are as many of them as notifications may be under way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define, field
from twisted.internet.defer import Deferred

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.model import Content

#: Bytes of a content that does not count.
SMALL = 64 * 1024

#: Bytes of the contents of walks, and of those of notifications under way.
OF_WALKS, UNDER_WAY = 12 * 1024 * 1024, 16 * 1024 * 1024


@define(eq=False)
class WalkBudget:
    """Lets walks have their contents in memory, in the order in which they came.

    One content has room, however large it is.
    """

    _limit: int = OF_WALKS
    _held: int = field(default=0, init=False)
    _queue: OrderedDict[Deferred[None], int] = field(factory=OrderedDict, init=False)

    async def enter(self, size: int) -> None:
        """Wait for room for so many bytes."""
        if size <= SMALL:
            return
        turn: Deferred[None] = Deferred()
        self._queue[turn] = size
        self._let_in()
        await turn

    def leave(self, size: int) -> None:
        """Give the room back."""
        if size > SMALL:
            self._held -= size
            self._let_in()

    def _let_in(self) -> None:
        while self._queue:
            turn, size = next(iter(self._queue.items()))
            if self._held and self._held + size > self._limit:
                return
            del self._queue[turn]
            self._held += size
            turn.callback(None)


@define(eq=False)
class UnderWay:
    """Counts the contents of notifications that are under way.

    Hosts that are silent hold what they are sent until the deadline.  So half of the room is
    for those alone that answered quickly the last time.
    """

    _limit: int = UNDER_WAY
    _held: int = field(default=0, init=False)
    _users: dict[int, int] = field(factory=dict, init=False)  # of contents, by their identity

    @contextmanager
    def sending(self, content: Content, *, to_quick_host: bool) -> Iterator[None]:
        """Count a content as long as the context lasts.

        :raises Unavailable: there is no room for it.
        """
        size, key = len(content.body), id(content)
        counts = size > SMALL
        if counts and key not in self._users:
            limit = self._limit if to_quick_host else self._limit // 2
            if self._held and self._held + size > limit:
                raise Unavailable("as many bytes of contents are being sent as memory is for")
            self._held += size
            self._users[key] = 0
        if counts:
            self._users[key] += 1
        try:
            yield
        finally:
            if counts:
                self._release(key, size)

    def _release(self, key: int, size: int) -> None:
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key]
            self._held -= size
