"""Remembers for a moment what was read from the store, for pages that anybody may open.

Anybody may open a page as often as they like.  So each value is read once in a while at most, and
all callers within that time get the same value.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rsscloud_broker.bounded_dict import BoundedDict
from rsscloud_broker.interfaces import IClock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembering(Generic[K, V]):
    """Reads values by their keys, and remembers each for some seconds.

    :param read: reads a value.  It is not called for a key while it runs for that key.
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
        self._waiters: dict[K, list[Deferred[V]]] = {}

    async def get(self, key: K, newest: bool = False) -> V:
        """The value of a key; the same object until it is read again.

        :param newest: whether to read the value although it is remembered.
        :raises Exception: what ``read`` raised.  It is not remembered.
        """
        known = None if newest else self._known.get(key, None)
        if known is not None and self._clock.seconds() - known[0] < self._seconds:
            return known[1]
        waiter: Deferred[V] = Deferred()
        if key in self._waiters:
            self._waiters[key].append(waiter)
        else:
            self._waiters[key] = [waiter]
            Deferred.fromCoroutine(self._read_for_all(key))
        return await waiter

    async def _read_for_all(self, key: K) -> None:
        """Read a value, and hand it to all who wait for it."""
        try:
            value = await self._read(key)
        except Exception as error:
            for waiter in self._waiters.pop(key):
                waiter.errback(Failure(error))  # each its own: it collects frames
            return
        self._known[key] = (self._clock.seconds(), value)
        for waiter in self._waiters.pop(key):
            waiter.callback(value)
