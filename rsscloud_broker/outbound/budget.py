"""How many bytes of answers there are in memory at a time.

A few kilobytes become megabytes when they are unpacked, and a content is in memory for some
time after it has arrived: until it is recorded.  What is to be unpacked waits for room; what
was not compressed and has arrived is there already, and has twice as much.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Self, TypeAlias
from weakref import finalize

from twisted.internet.defer import CancelledError, Deferred

from rsscloud_broker.budget import Budget
from rsscloud_broker.errors import OutboundError
from rsscloud_broker.model import Content

#: Bytes of answers that arrive, of those that wait to be unpacked, and of contents; those of an
#: answer that is not counted.
LIMIT: Final = 16 * 1024 * 1024
SMALL: Final = 256 * 1024

#: How many times the limit there may be of contents that came as they are.
KEPT: Final = 2

#: As ``LIMIT`` and ``SMALL``, for the answers of callbacks.
CALLBACK_LIMIT: Final = 16 * 1024 * 1024
SMALL_CALLBACK: Final = 4 * 1024

#: Why an answer that arrives is given up, and why a content is not read now.
LONGEST: Final = (
    "the broker has no memory left for answers that arrive, and this one has been under way for "
    "longest"
)
NO_ROOM: Final = "the broker has no memory left for what it reads just now"

#: Calls a function in the reactor's thread.
Call: TypeAlias = Callable[..., object]


def _at_once(function: Callable[..., object], *args: Any) -> None:
    function(*args)


class AnswerBudget(Budget):
    """Counts the bytes of answers that arrive, of those that wait to be unpacked, and of contents.

    Each kind has its own count: none takes room from the other.

    :param call: calls a function in the reactor's thread; the last reference to a content may
        go in another one.
    :ivar packed: bytes of answers that wait to be unpacked.
    :ivar kept: bytes of contents.
    """

    @classmethod
    def of_topics(cls, body_limit: int, call: Call) -> Self:
        """A budget for contents of topics: two of the largest have room."""
        budget = cls(call=call)
        budget.make_room(body_limit)
        return budget

    @classmethod
    def of_callbacks(cls) -> Self:
        """A budget for answers of callbacks, which are short."""
        return cls(CALLBACK_LIMIT, SMALL_CALLBACK)

    def __init__(self, limit: int = LIMIT, small: int = SMALL, call: Call = _at_once) -> None:
        super().__init__(limit, small)
        self._call = call
        self._waiting: deque[tuple[Deferred[None], int]] = deque()
        self.packed = self.kept = 0

    def make_room(self, body_limit: int) -> None:
        """Have room for two of the largest contents.

        :param body_limit: bytes of one.
        """
        self.resize(max(LIMIT, 2 * body_limit))

    def has_room(self, size: int) -> bool:
        """Whether a content of so many bytes may be kept."""
        return size <= self._small or self.kept + size <= KEPT * self._limit

    def keep(self, content: Content) -> None:
        """Count a content that has arrived, for as long as anybody has it."""
        size = len(content.body)
        if size > self._small:
            self.kept += size
            finalize(content, self._call, self._release, size).atexit = False

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count so many bytes of an answer that waits to be unpacked.

        :raises OutboundError: there is no room for them.
        """
        if self.packed and self.packed + size > self._limit:
            raise OutboundError(NO_ROOM)
        self.packed += size
        try:
            yield
        finally:
            self.packed -= size

    @asynccontextmanager
    async def room(self, size: int) -> AsyncIterator[None]:
        """Wait until there is room to make a content of so many bytes, and count them."""
        if self._waiting or not self._fits(size):
            turn: Deferred[None] = Deferred()
            self._waiting.append((turn, size))
            try:
                await turn
            except CancelledError:
                self._waiting.remove((turn, size))
                raise
        else:
            self.kept += size
        try:
            yield
        finally:
            self._release(size)

    def _fits(self, size: int) -> bool:
        return not self.kept or self.kept + size <= self._limit

    def _release(self, size: int) -> None:
        self.kept -= size
        while self._waiting and self._fits(self._waiting[0][1]):
            turn, wanted = self._waiting.popleft()
            self.kept += wanted
            turn.callback(None)
