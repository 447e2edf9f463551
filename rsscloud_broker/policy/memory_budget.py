"""Limits the bytes in memory: of messages that strangers are sending, and of what waits for room.

Each request body and each answer has a limit of its own, but very many may arrive at once.  So
those that are larger than usual share a budget.  When it is used up, the message that has been
arriving for longest is given up: a sender that is slow on purpose loses to those that are not.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from twisted.internet.defer import CancelledError, Deferred


class ArrivingMessage(Protocol):
    """A message that is arriving: the body of a request, or an answer."""

    def give_up(self) -> None:
        """Stop receiving the message, since there is no memory left for it."""


class Budget:
    """Counts the bytes of messages that are arriving.

    :param limit: how many bytes all counted messages may have together.
    :param small: a message of up to this many bytes is not counted.
    :ivar held: how many bytes are counted now.
    """

    def __init__(self, limit: int, small: int) -> None:
        self._limit = limit
        self._small = small
        self._under_way: OrderedDict[ArrivingMessage, int] = OrderedDict()
        self.held = 0

    def resize(self, limit: int) -> None:
        """Use another limit, from the next byte that arrives."""
        self._limit = limit

    def grow(self, message: ArrivingMessage, size: int) -> None:
        """Note that ``size`` bytes of a message are in memory by now.

        If the limit is exceeded, the messages that have been arriving for longest are given up,
        perhaps this one too.
        """
        if size <= self._small:
            return
        self.held += size - self._under_way.get(message, 0)
        self._under_way[message] = size
        while self.held > self._limit:
            longest = next(iter(self._under_way))
            self.drop(longest)
            longest.give_up()

    def drop(self, message: ArrivingMessage) -> int:
        """Stop counting a message.

        :returns: how many of its bytes were counted.
        """
        size = self._under_way.pop(message, 0)
        self.held -= size
        return size


class Reservations:
    """Counts reserved bytes of memory.  Reservations that do not fit wait, and are granted in
    order; a single reservation always fits, however large it is.

    :ivar limit: how many bytes may be reserved together.
    :param small: a reservation of up to this many bytes is not counted.
    :ivar held: how many bytes are reserved now.
    """

    def __init__(self, limit: int, small: int = 0) -> None:
        self.limit = limit
        self._small = small
        self.held = 0
        # The reservations that wait, each with its bytes.
        self._queue: OrderedDict[Deferred[None], int] = OrderedDict()

    async def enter(self, size: int) -> None:
        """Wait until ``size`` bytes fit, and count them until ``leave``."""
        if size <= self._small:
            return
        turn: Deferred[None] = Deferred()
        self._queue[turn] = size
        self._let_in()
        try:
            await turn
        except CancelledError:
            del self._queue[turn]
            raise

    def leave(self, size: int) -> None:
        """Release bytes that ``enter`` has counted, and grant reservations that fit now."""
        if size > self._small:
            self.held -= size
            self._let_in()

    def _let_in(self) -> None:
        """Grant reservations in order, as long as they fit; at least one if none is held."""
        while self._queue:
            turn, size = next(iter(self._queue.items()))
            if self.held and self.held + size > self.limit:
                return
            del self._queue[turn]
            self.held += size
            turn.callback(None)
