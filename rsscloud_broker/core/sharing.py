"""Lets all who request the same topic at the same time share one fetch.

At most one fetch of a topic runs, and at most one waits to follow it.  A request that comes
while a fetch runs is answered by the next one, since the topic may have changed after the
running fetch began.  ``ChangeDetector`` is the caller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Generic, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from rsscloud_broker.interfaces import IClock
from rsscloud_broker.model.ways import UNKNOWN_SOURCE, ChangeSource
from rsscloud_broker.policy.limiter import Turn

T = TypeVar("T")  # the result of a fetch

#: How many waiters of a fetch are fired in one turn of the reactor.  To answer a request takes
#: about 0.1 ms, and ten thousand may wait.
BATCH_SIZE = 100


@define(eq=False)
class PendingFetch(Generic[T]):
    """A fetch that waits or runs.  Until it begins, all requests for its topic share it.

    :ivar asked_at: when it was first requested, by the wall clock.
    :ivar asked_until: when it was last requested, by the wall clock.
    :ivar turn: its turn at the limiter, on behalf of the sources that requested it.  The turn
        begins when the topic's server is called.
    :ivar cause: why the topic is fetched, of all requests together.
    :ivar to_record: whether the result is to be recorded.
    :ivar requested: whether the store has a check of the topic, which waits for this fetch.
    :ivar waiters: are fired with the result or the failure.
    :ivar failures: how many attempts have failed before, of the check.
    """

    url: str
    asked_at: float
    asked_until: float
    turn: Turn = field(factory=Turn, init=False)
    cause: ChangeSource = UNKNOWN_SOURCE
    to_record: bool = False
    requested: bool = False
    failures: int = 0
    waiters: list[Deferred[T]] = field(factory=list, init=False)

    async def fire_waiters(self, clock: IClock, result: T | Failure) -> None:
        """Fire all waiters with the result, ``BATCH_SIZE`` in each turn of the reactor."""
        for first in range(0, len(self.waiters), BATCH_SIZE):
            if first:
                await deferLater(clock, 0)
            for waiter in self.waiters[first : first + BATCH_SIZE]:
                # A Failure for each: one that many handle would collect all their frames.
                own = Failure(result.value) if isinstance(result, Failure) else result
                waiter.callback(own)


class SharedFetches(Generic[T]):
    """The fetches that run, and those that wait to follow them.

    :param fetch: makes one fetch.  It waits for the fetch's turn and returns the result.
    """

    def __init__(self, fetch: Callable[[PendingFetch[T]], Awaitable[T]], clock: IClock) -> None:
        self._fetch = fetch
        self._clock = clock
        # By URL: the fetch that was requested last, which waits or runs; and the one that runs.
        self._last: dict[str, PendingFetch[T]] = {}
        self._running: dict[str, PendingFetch[T]] = {}

    def __iter__(self) -> Iterator[PendingFetch[T]]:
        yield from self._running.values()
        yield from (last for last in self._last.values() if last is not self._running.get(last.url))

    def find_or_make(self, url: str) -> PendingFetch[T]:
        """The fetch of a topic that has not begun, or a new one, which the caller must start."""
        pending = self._last.get(url)
        now = self._clock.wall_seconds()
        if pending is None or pending.turn.begun or pending.turn.withdrawn:
            pending = self._last[url] = PendingFetch(url, now, now)
        pending.asked_until = now
        return pending

    def following(self, pending: PendingFetch[T]) -> PendingFetch[T] | None:
        """The fetch that waits to follow this one, which runs; None if there is none."""
        last = self._last[pending.url]
        return None if last is pending else last

    def lose_claims(self) -> None:
        """Take note that other nodes have claimed the checks that fetches were to answer.

        A fetch that has not begun and that nobody waits for any more is not made.
        """
        for pending in tuple(self):
            pending.requested = False
            if all(waiter.called for waiter in pending.waiters):
                pending.turn.withdraw()

    def start(self, pending: PendingFetch[T]) -> None:
        """Start a fetch, unless one of its topic runs, which it will follow."""
        if pending.url not in self._running and pending.url in self._last:
            Deferred.fromCoroutine(self._run(pending.url))

    async def _run(self, url: str) -> None:
        """Make the fetches of a topic, one after the other, until nobody has requested another."""
        while (pending := self._last.get(url)) is not None:
            self._running[url] = pending
            result: T | Failure
            try:
                result = await self._fetch(pending)
            except Exception:  # the waiters get it
                result = Failure()
            if self._last[url] is pending:  # nobody has requested another since it began
                del self._last[url]
            Deferred.fromCoroutine(pending.fire_waiters(self._clock, result))
        del self._running[url]
