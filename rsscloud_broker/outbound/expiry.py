"""A collection whose items all expire after the same time, with one timer for all of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

T = TypeVar("T", bound=Hashable)


class Expiry(Generic[T]):
    """Calls ``expire`` with each item that has been in the collection for too long.

    The clients use it for deadlines and idle connections.  Since all items have the same time,
    the first that was added expires first, and one timer is enough.  A timer for each item would
    cost more than most of the work for a notification.  The timer runs on when the last item is
    removed, since usually another one follows.

    :param seconds: how long an item may stay.
    :param expire: is called with each item that has stayed longer, after its removal.
    """

    log = Logger()

    def __init__(self, clock: IReactorTime, seconds: float, expire: Callable[[T], object]) -> None:
        self._clock = clock
        self._seconds = seconds
        self._expire = expire
        self._until: dict[T, float] = {}
        self._timer: IDelayedCall | None = None

    def __len__(self) -> int:
        return len(self._until)

    def add(self, item: T) -> None:
        """Add an item; its time begins now."""
        self._until[item] = self._clock.seconds() + self._seconds
        if self._timer is None:
            self._timer = self._clock.callLater(self._seconds, self._expire_due)

    def discard(self, item: T) -> None:
        """Remove an item if it is in the collection; ``expire`` is not called."""
        if item in self._until:
            del self._until[item]

    def clear(self) -> list[T]:
        """Stop the timer, and remove and return all items; ``expire`` is not called."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        items = list(self._until)
        self._until.clear()
        return items

    def _expire_due(self) -> None:
        """Expire the items whose time is over, and set the timer for the next one."""
        self._timer = None
        now = self._clock.seconds()
        while self._until:
            item, until = next(iter(self._until.items()))
            if until > now:
                break
            del self._until[item]
            try:
                self._expire(item)
            except Exception:  # log a bug; others expire all the same
                self.log.failure("An expired item could not be removed.")
        if self._until and self._timer is None:
            rest = next(iter(self._until.values())) - now
            self._timer = self._clock.callLater(max(rest, 0), self._expire_due)
