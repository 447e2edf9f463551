"""Limits the bytes of answers that are in memory at the same time.

A few kilobytes become megabytes when they are decompressed, and a content stays in memory after it
has arrived, until it is recorded.  Compressed answers wait until the decompressed size fits.  An
uncompressed one cannot wait, because it is in memory already; so the limit for those is doubled.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Self, TypeAlias
from weakref import finalize

from rsscloud_broker.errors import OutboundError
from rsscloud_broker.model import Content
from rsscloud_broker.policy.memory_budget import Budget, Reservations

#: The limit in bytes of each kind: answers that arrive, answers that wait to be decoded, and
#: contents.
LIMIT: Final = 16 * 1024 * 1024

#: An answer of up to this many bytes is not counted.
SMALL: Final = 256 * 1024

#: Like ``SMALL``, for the answers of callbacks.
SMALL_CALLBACK: Final = 4 * 1024

#: The reasons given when the broker aborts an answer that arrives, and when it refuses a content.
LONGEST: Final = (
    "the broker has no memory left for answers that arrive, and this one has been under way for "
    "longest"
)
NO_MEMORY: Final = "the broker has no memory left for what it reads just now"

#: Calls a function in the reactor's thread.
Call: TypeAlias = Callable[..., object]


def _call_at_once(function: Callable[..., object], *args: Any) -> None:
    function(*args)


class AnswerBudget(Budget):
    """Counts bytes of answers that arrive, of answers that wait to be decoded, of contents.

    Each of the three kinds has a count and a limit of its own.

    :param call: calls a function in the reactor's thread; needed since the last reference to a
        content may be dropped in another thread.
    :ivar encoded: bytes of answers that wait to be decoded.
    :ivar contents: counts the bytes of contents.
    """

    @classmethod
    def of_topics(cls, body_limit: int, call: Call) -> Self:
        """A budget for fetched topics, in which two contents of ``body_limit`` bytes fit."""
        budget = cls(call=call)
        budget.set_body_limit(body_limit)
        return budget

    @classmethod
    def of_callbacks(cls) -> Self:
        """A budget for answers of callbacks, which are short."""
        return cls(small=SMALL_CALLBACK)

    def __init__(self, limit: int = LIMIT, small: int = SMALL, call: Call = _call_at_once) -> None:
        super().__init__(limit, small)
        self._call = call
        self.contents = Reservations(limit)
        self.encoded = 0

    def set_body_limit(self, body_limit: int) -> None:
        """Set the limit so that two contents of the largest size fit.

        :param body_limit: the largest size of a content, in bytes.
        """
        self.resize(max(LIMIT, 2 * body_limit))
        self.contents.limit = self._limit

    def has_capacity(self, size: int) -> bool:
        """Whether an uncompressed content of ``size`` bytes fits."""
        # They may use twice the limit, since they cannot wait.
        return size <= self._small or self.contents.held + size <= 2 * self._limit

    def keep(self, content: Content) -> None:
        """Count a content until the garbage collector has removed it; small ones do not count."""
        size = len(content.body)
        if size > self._small:
            self.contents.held += size
            dropped = finalize(content, self._call, self.contents.leave, size)
            dropped.atexit = False  # needless at the end

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count the bytes of an answer that waits to be decompressed, while the context lasts.

        :raises OutboundError: they do not fit beside those of other answers that wait.
        """
        if self.encoded and self.encoded + size > self._limit:
            raise OutboundError(NO_MEMORY)
        self.encoded += size
        try:
            yield
        finally:
            self.encoded -= size

    @asynccontextmanager
    async def reserve(self, size: int) -> AsyncIterator[None]:
        """Reserve ``size`` bytes for a content while the context lasts; first wait, in order, until
        contexts that ended have freed them.
        """
        await self.contents.enter(size)
        try:
            yield
        finally:
            self.contents.leave(size)
