"""One timer for many things that all may stay for the same time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from twisted.internet.interfaces import IDelayedCall, IReactorTime

T = TypeVar("T", bound=Hashable)


class Expiry(Generic[T]):
    """Says when things have been here for too long.

    Since all have the same time, the first that came is the first that has to
    go, and one timer does for all: a timer for each costs more than most other
    things that are done for a notification.  It is not stopped when the last
    thing leaves, for usually another one follows.

    :param seconds: how long a thing may stay.
    :param expire: called with each thing that has stayed longer.
    """

    def __init__(self, clock: IReactorTime, seconds: float, expire: Callable[[T], object]) -> None:
        self._clock = clock
        self._seconds = seconds
        self._expire = expire
        self._until: dict[T, float] = {}
        self._timer: IDelayedCall | None = None

    def __len__(self) -> int:
        return len(self._until)

    def add(self, thing: T) -> None:
        """Let a thing stay, from now on."""
        self._until[thing] = self._clock.seconds() + self._seconds
        if self._timer is None:
            self._timer = self._clock.callLater(self._seconds, self._look)

    def discard(self, thing: T) -> None:
        """Forget a thing, if it is here."""
        self._until.pop(thing, None)

    def oldest(self) -> T:
        """What has been here for longest."""
        return next(iter(self._until))

    def clear(self) -> list[T]:
        """Let everything go, and stop the timer; what there was."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        things = list(self._until)
        self._until.clear()
        return things

    def _look(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        while self._until:
            thing, until = next(iter(self._until.items()))
            if until > now:
                break
            del self._until[thing]
            self._expire(thing)
        if self._until and self._timer is None:
            rest = self._until[self.oldest()] - now
            self._timer = self._clock.callLater(max(rest, 0), self._look)
