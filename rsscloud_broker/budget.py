"""How many bytes there are in memory at a time of what strangers send.

Each thing that they send is limited by itself; but very many may be under way at once.  So
those that are larger than usual share a budget.  When it is used up, what has been under way
for longest is given up: whoever lets something large drip in loses his place to those whose
bytes arrive.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class UnderWay(Protocol):
    """Something that arrives."""

    def give_up(self) -> None:
        """Break it off, since there is no memory left for it."""


class Budget:
    """Counts bytes.

    :param limit: bytes of what is counted.
    :param small: bytes of what is not counted.
    :ivar held: bytes that are counted now.
    """

    def __init__(self, limit: int, small: int) -> None:
        self._limit = limit
        self._small = small
        self._under_way: OrderedDict[UnderWay, int] = OrderedDict()
        self.held = 0

    def resize(self, limit: int) -> None:
        """Have another limit, which counts from the next byte that arrives."""
        self._limit = limit

    def grow(self, what: UnderWay, size: int) -> None:
        """So many bytes of something are in memory by now.

        What has been under way for longest is given up for it, perhaps the thing itself.
        """
        if size <= self._small:
            return
        self.held += size - self._under_way.get(what, 0)
        self._under_way[what] = size
        while self.held > self._limit:
            longest = next(iter(self._under_way))
            self.drop(longest)
            longest.give_up()

    def drop(self, what: UnderWay) -> int:
        """Something is not under way any more.

        :returns: its bytes that were counted.
        """
        size = self._under_way.pop(what, 0)
        self.held -= size
        return size
