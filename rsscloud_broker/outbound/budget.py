"""How many bytes of answers there are in memory at a time.

A few kilobytes become megabytes when they are unpacked, and a content is in memory for some
time after it has arrived: until it is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self
from weakref import finalize

from rsscloud_broker.budget import Budget
from rsscloud_broker.model import Content, OutboundError

#: Bytes of answers in memory, and those of an answer that is not counted.
LIMIT: Final = 32 * 1024 * 1024
SMALL: Final = 256 * 1024

#: How many times the limit contents may have that have arrived and are not recorded yet.
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


class AnswerBudget(Budget):
    """Counts the bytes of answers, and of what was made of them."""

    @classmethod
    def of_topics(cls, body_limit: int) -> Self:
        """A budget for contents of topics: two of the largest have room."""
        return cls(max(LIMIT, 2 * body_limit))

    @classmethod
    def of_callbacks(cls) -> Self:
        """A budget for answers of callbacks, which are short."""
        return cls(CALLBACK_LIMIT, SMALL_CALLBACK)

    def __init__(self, limit: int = LIMIT, small: int = SMALL) -> None:
        super().__init__(limit, small)

    def has_room(self, size: int) -> bool:
        """Whether a content of so many bytes may be kept.

        What arrives in one piece, and is large only when it is unpacked, was not counted
        before.
        """
        return size <= self._small or self.held + size <= KEPT * self._limit

    def keep(self, content: Content) -> None:
        """Count a content that has arrived, for as long as anybody has it."""
        size = len(content.body)
        if size > self._small:
            self.held += size
            finalize(content, self.free, size).atexit = False

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count so many bytes of an answer that has arrived, for as long as the context lasts.

        :raises OutboundError: there is no room for them.
        """
        if not self.has_room(size):
            raise OutboundError(NO_ROOM)
        counted = size if size > self._small else 0
        self.held += counted
        try:
            yield
        finally:
            self.free(counted)
