"""Remembers for a moment what was read from the store, for pages that anybody may open.

Anybody may open a page as often as they like.  So each value is read once in a while at most, and
all callers within that time get the same value.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rsscloud_broker.interfaces import IClock
from rsscloud_broker.util.bounded_dict import BoundedDict

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembering(Generic[K, V]):
    """Reads values by their keys, and remembers each for some seconds.

    :param read: reads a value.  While it runs for a key, it is called again for that key only if
        somebody wants the newest value.
    :param seconds: how long a value is remembered.
    :param size: how many values are remembered at most.
    """

    def __init__(
        self, read: Callable[[K], Awaitable[V]], clock: IClock, seconds: float, size: int
    ) -> None:
        self._read = read
        self._clock = clock
        self._seconds = seconds
        self._known: BoundedDict[K, tuple[float, V] | None] = BoundedDict(size)
        # Those who wait for the last read that began for a key.
        self._waiters: dict[K, list[Deferred[V]]] = {}

    async def get(self, key: K, newest: bool = False) -> V:
        """The value of a key; the same object until it is read again.

        :param newest: whether to begin a read in any case, since a value that is remembered, or
            that is being read, may be older than what the caller has just done.
        :raises Exception: what ``read`` raised.  It is not remembered.
        """
        known = None if newest else self._known.get(key, None)
        if known is not None and self._clock.seconds() - known[0] < self._seconds:
            return known[1]
        waiter: Deferred[V] = Deferred()
        if key in self._waiters and not newest:
            self._waiters[key].append(waiter)
        else:
            waiters = self._waiters[key] = [waiter]
            Deferred.fromCoroutine(self._read_for_all(key, waiters))
        return await waiter

    async def _read_for_all(self, key: K, waiters: list[Deferred[V]]) -> None:
        """Read a value, and hand it to all who wait for it."""
        try:
            value = await self._read(key)
        except Exception as error:
            self._end(key, waiters)
            for waiter in waiters:
                waiter.errback(Failure(error))  # each its own: it collects frames
            return
        if self._end(key, waiters):
            self._known[key] = (self._clock.seconds(), value)
        for waiter in waiters:
            waiter.callback(value)

    def _end(self, key: K, waiters: list[Deferred[V]]) -> bool:
        """Note that a read has ended; returns whether none began after it."""
        is_last = self._waiters.get(key) is waiters
        if is_last:
            del self._waiters[key]
        return is_last
