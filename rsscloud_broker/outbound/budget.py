"""How many bytes of answers there are in memory at a time.

Each answer is limited by itself; but very many may be under way at once, and a few
kilobytes become megabytes when they are unpacked.  So those that are larger than usual
share a budget.  When it is used up, the answer that has been under way for longest is given
up: whoever lets a large answer drip in loses his place to those whose answers arrive.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol, Self
from weakref import finalize

from rsscloud_broker.model import Content, OutboundError

#: Bytes of answers in memory, and those of an answer that is not counted.
LIMIT: Final = 32 * 1024 * 1024
SMALL: Final = 256 * 1024

#: How many times the limit contents may have that have arrived and are not recorded yet.
KEPT: Final = 2

#: As ``LIMIT`` and ``SMALL``, for the answers of callbacks.
CALLBACK_LIMIT: Final = 16 * 1024 * 1024
SMALL_CALLBACK: Final = 4 * 1024


class UnderWay(Protocol):
    """An answer that arrives."""

    def give_up(self, reason: OutboundError) -> None:
        """Break it off."""


class Budget:
    """Counts the bytes of answers.

    :ivar held: bytes of those that are counted.
    """

    @classmethod
    def of_topics(cls, body_limit: int) -> Self:
        """A budget for contents of topics: two of the largest have room."""
        return cls(max(LIMIT, 2 * body_limit))

    @classmethod
    def of_callbacks(cls) -> Self:
        """A budget for answers of callbacks, which are short."""
        return cls(CALLBACK_LIMIT, SMALL_CALLBACK)

    def __init__(self, limit: int = LIMIT, small: int = SMALL) -> None:
        self._limit = limit
        self._small = small
        self._under_way: OrderedDict[UnderWay, int] = OrderedDict()
        self.held = 0

    def grow(self, answer: UnderWay, size: int) -> None:
        """So many bytes of an answer are in memory by now.

        What has been under way for longest is given up for it, perhaps the answer itself.
        """
        if size <= self._small:
            return
        self.held += size - self._under_way.get(answer, 0)
        self._under_way[answer] = size
        while self.held > self._limit and self._under_way:
            longest = next(iter(self._under_way))
            self.drop(longest)
            longest.give_up(
                OutboundError(
                    "the broker has no memory left for answers that arrive, and this one has "
                    "been under way for longest"
                )
            )

    def drop(self, answer: UnderWay) -> None:
        """An answer is not under way any more."""
        self.held -= self._under_way.pop(answer, 0)

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
            finalize(content, self._free, size).atexit = False

    def _free(self, size: int) -> None:
        self.held -= size
