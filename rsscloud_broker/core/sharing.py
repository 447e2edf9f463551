"""One topic, one fetch: all who ask for a topic share its readings.

There is at most one reading of a topic under way, and at most one after it: whoever asks
while a reading is under way gets the next one, since the topic may have changed after the
first one began.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Generic, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from rsscloud_broker.core.limiter import Turn
from rsscloud_broker.interfaces import IClock

T = TypeVar("T")

#: How many of those who wait for a reading are told in one turn of the reactor.  To answer a
#: request takes about 0.1 ms, and ten thousand may wait.
PORTION = 100


@define(eq=False)
class PendingReading(Generic[T]):
    """A reading of a topic.  Until it begins, everybody who asks for the topic shares it.

    :ivar asked_at: when it was first asked for, by the wall clock.
    :ivar asked_until: when it was last asked for, likewise.
    :ivar turn: its turn among all calls to strangers, for the sake of those who asked.  It
        has begun when the topic's server is asked.
    :ivar pinged: whether somebody said that the topic changed.
    :ivar to_record: whether what is found is to be recorded.
    :ivar requested: whether the store waits for it: the topic has a check there.
    :ivar waiters: are told what comes of it.
    :ivar delays: seconds to wait before it is made again if it fails; None for all of them.
    """

    url: str
    asked_at: float
    asked_until: float
    turn: Turn = field(factory=Turn, init=False)
    pinged: bool = False
    to_record: bool = False
    requested: bool = False
    delays: Iterator[float] | None = None
    waiters: list[Deferred[T]] = field(factory=list, init=False)

    async def tell(self, clock: IClock, result: T | Failure) -> None:
        """Tell all who wait what came of it, a portion in each turn of the reactor."""
        for first in range(0, len(self.waiters), PORTION):
            if first:
                await deferLater(clock, 0)
            for waiter in self.waiters[first : first + PORTION]:
                # Each has a failure of its own: a traceback grows with each who handles it.
                own = Failure(result.value) if isinstance(result, Failure) else result
                waiter.callback(own)


class SharedReadings(Generic[T]):
    """The readings of topics that are under way, or come next.

    :param read: makes a reading, in its turn.
    """

    def __init__(self, read: Callable[[PendingReading[T]], Awaitable[T]], clock: IClock) -> None:
        self._read = read
        self._clock = clock
        self._last: dict[str, PendingReading[T]] = {}  # of each topic
        self._running: dict[str, PendingReading[T]] = {}

    def __contains__(self, url: str) -> bool:
        return url in self._running

    def __iter__(self) -> Iterator[PendingReading[T]]:
        yield from self._running.values()
        yield from (last for last in self._last.values() if last is not self._running.get(last.url))

    def next(self, url: str) -> PendingReading[T]:
        """The reading that answers who asks now; ``go`` makes it."""
        reading = self._last.get(url)
        now = self._clock.wall_seconds()
        if reading is None or reading.turn.begun:
            reading = self._last[url] = PendingReading(url, now, now)
        reading.asked_until = now
        return reading

    def after(self, reading: PendingReading[T]) -> PendingReading[T] | None:
        """The next reading of the same topic after one that is under way; None if there is none."""
        last = self._last[reading.url]
        return None if last is reading else last

    def go(self, reading: PendingReading[T]) -> None:
        """Make a reading, after the one of the same topic that is under way, unless it is made."""
        if reading.url not in self._running and reading.url in self._last:
            Deferred.fromCoroutine(self._run(reading.url))

    async def _run(self, url: str) -> None:
        while (reading := self._last.get(url)) is not None:
            self._running[url] = reading
            result: T | Failure
            try:
                result = await self._read(reading)
            except Exception:  # whoever waits is told
                result = Failure()
            if self._last[url] is reading:  # nobody has asked since it began
                del self._last[url]
            Deferred.fromCoroutine(reading.tell(self._clock, result))
        del self._running[url]
