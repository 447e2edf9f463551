"""Finds the items of another process of the broker, which nobody announces in this one.

The ids of items ascend, and each process announces its own.  So an id that nobody has announced a
moment later belongs to another process, or to nothing: databases leave ids out.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve

from rsscloud_broker.apps.river.model import Arrival
from rsscloud_broker.apps.river.river import River


class Elsewhere:
    """The ids up to which all items have been announced, and those announced beyond."""

    def __init__(self, river: River) -> None:
        self._river = river
        self._known_to = 0
        self._announced: set[int] = set()

    def begin(self, newest: int) -> None:
        """Take all items up to an id for known."""
        self._known_to = newest
        self._announced.clear()

    def announce(self, ids: Iterable[int]) -> None:
        """Note the items that this process announces."""
        self._announced.update(key for key in ids if key > self._known_to)

    async def find(self, upto: int) -> tuple[int, list[Arrival] | None]:
        """The items up to an id that nobody has announced.

        :param upto: the id of an item that is old enough for its process to have announced it.
        :returns: the id after which these items are; and the items, or None if there may be too
            many to read them here.
        """
        after = self._known_to
        missing = upto - after - sum(key <= upto for key in self._announced)
        arrivals: list[Arrival] | None = []
        # How many items are read at most.
        if missing > 200:
            arrivals = None
        elif missing > 0:
            arrivals = [
                evolve(arrival, items=items)
                for arrival in await self._river.arrivals(after, upto)
                if (items := tuple(i for i in arrival.items if i.id not in self._announced))
            ]
        self._known_to = max(after, upto)
        self._announced = {key for key in self._announced if key > self._known_to}
        return after, arrivals
