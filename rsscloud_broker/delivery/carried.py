"""Limits the bytes of contents that are in memory for notifications.

Many notifications may carry the same content, which counts once.  Contents of up to ``SMALL``
bytes do not count, since the number of notifications under way limits them.
"""

from __future__ import annotations

from collections import OrderedDict

from attrs import define, field
from twisted.internet.defer import Deferred

from rsscloud_broker.errors import MemoryUnavailable
from rsscloud_broker.model import Content

#: A content of up to this many bytes does not count.
SMALL = 64 * 1024

#: How many bytes the contents of walks may have, and those of notifications under way.
OF_WALKS, UNDER_WAY = 12 * 1024 * 1024, 16 * 1024 * 1024


@define(eq=False)
class WalkBudget:
    """Limits the bytes of contents that walks hold in memory.

    A walk waits in ``enter`` until its content fits; walks that wait are served in order.  A
    single content always fits, however large it is.
    """

    _limit: int = OF_WALKS
    _held: int = field(default=0, init=False)  # bytes
    # The walks that wait, each with the bytes of its content.
    _queue: OrderedDict[Deferred[None], int] = field(factory=OrderedDict, init=False)

    async def enter(self, size: int) -> None:
        """Wait until a content of ``size`` bytes fits, and count it until ``leave``."""
        if size <= SMALL:
            return
        turn: Deferred[None] = Deferred()
        self._queue[turn] = size
        self._let_in()
        await turn

    def leave(self, size: int) -> None:
        """Count a content no more that ``enter`` has counted, and let others in."""
        if size > SMALL:
            self._held -= size
            self._let_in()

    def _let_in(self) -> None:
        """Let walks in, first come, first served, as long as their contents fit."""
        while self._queue:
            turn, size = next(iter(self._queue.items()))
            if self._held and self._held + size > self._limit:
                return
            del self._queue[turn]
            self._held += size
            turn.callback(None)


@define(eq=False)
class ContentsUnderWay:
    """Limits the bytes of contents that notifications under way are sending.

    A host that does not answer keeps a content in memory until the deadline.  So half of the
    limit is reserved for hosts that answered quickly the last time.
    """

    _limit: int = UNDER_WAY
    _held: int = field(default=0, init=False)
    # How many notifications send each content, by the content's ``id``.
    _users: dict[int, int] = field(factory=dict, init=False)

    def enter(self, content: Content, *, to_quick_host: bool) -> None:
        """Count a content, which one more notification begins to send.

        :param to_quick_host: whether the host answered quickly the last time.
        :raises MemoryUnavailable: too many bytes are being sent.
        """
        size, key = len(content.body), id(content)
        if size <= SMALL:
            return
        if key not in self._users:
            limit = self._limit if to_quick_host else self._limit // 2
            if self._held and self._held + size > limit:
                raise MemoryUnavailable("as many bytes of contents are being sent as memory is for")
            self._held += size
            self._users[key] = 0
        self._users[key] += 1

    def leave(self, content: Content) -> None:
        """Say that a notification sends a content no more, which ``enter`` has counted."""
        size, key = len(content.body), id(content)
        if size <= SMALL:
            return
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key]
            self._held -= size
