"""How many bytes of bodies of requests there are in memory at a time."""

from __future__ import annotations

from collections import Counter
from typing import Final

from rsscloud_broker.budget import Budget

#: Bytes of bodies that arrive, likewise of those of requests that are not answered yet; and
#: those of a body that is not counted.
LIMIT: Final = 16 * 1024 * 1024
SMALL: Final = 8 * 1024


class BodyBudget(Budget):
    """Counts the bytes of bodies that arrive, and of those that have arrived.

    Of the latter, a source has no more than is free for all others: the first has at most half
    of all, and there is room for the next one.

    :ivar taken: bytes of bodies that have arrived, of requests under way.
    """

    def __init__(self, body_limit: int) -> None:
        super().__init__(LIMIT, SMALL)
        self.make_room(body_limit)
        self._by_source: Counter[str] = Counter()
        self.taken = 0

    def make_room(self, body_limit: int) -> None:
        """Have room for two of the largest bodies.

        :param body_limit: bytes of one.
        """
        self.resize(max(LIMIT, 2 * body_limit))

    def take(self, size: int, source: str) -> bool:
        """Count a body that has arrived until it is given back; False if there is no room.

        :param size: its bytes.
        :param source: who sent it.
        """
        if self._by_source[source] + size > self._limit - self.taken:
            return False
        self.taken += size
        self._by_source[source] += size
        return True

    def give_back(self, size: int, source: str) -> None:
        """So many bytes that were taken are not in memory any more."""
        self.taken -= size
        self._by_source[source] -= size
        if not self._by_source[source]:
            del self._by_source[source]
