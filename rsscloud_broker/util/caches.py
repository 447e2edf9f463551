"""Caches of limited size: by the number of keys, by their age, or by bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rsscloud_broker.interfaces import IClock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedDict(OrderedDict[K, V]):
    """A dictionary that, when it is full, deletes the key that was set longest ago.

    :param size: how many keys it holds at most.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def __setitem__(self, key: K, value: V) -> None:
        """Set a key, which becomes the newest; delete the oldest if there are too many."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._size:
            del self[next(iter(self))]

    def replace_each(self, change: Callable[[V], V]) -> None:
        """Replace the value of each key by what ``change`` returns for it."""
        for key, value in self.items():
            super().__setitem__(key, change(value))


class TimedCache(Generic[K, V]):
    """Reads values by their keys, and remembers each for some seconds.

    It is for pages that anybody may open as often as they like: each value is read once in a while
    at most, and all callers within that time get the same value.

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
        self._known: BoundedDict[K, tuple[float, V] | None] = BoundedDict(size)  # read when, value
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
        """Read a value, and hand it to all who wait for it; further ones may join meanwhile."""
        try:
            value = await self._read(key)
        except Exception as error:
            self._end_read(key, waiters)
            for waiter in waiters:
                waiter.errback(Failure(error))  # each its own: it collects frames
            return
        if self._end_read(key, waiters):
            self._known[key] = (self._clock.seconds(), value)
        for waiter in waiters:
            waiter.callback(value)

    def _end_read(self, key: K, waiters: list[Deferred[V]]) -> bool:
        """Note that a read has ended; returns whether it is the last that began for the key.

        :param waiters: those who wait for this read: the list itself says which read it is.
        """
        is_last = self._waiters.get(key) is waiters
        if is_last:
            del self._waiters[key]
        return is_last


class ByteLimitedCache(Generic[K, V]):
    """Values in memory.  If they are too large together, those go that were not read for longest.

    :ivar size: how many bytes they take together.
    :param most: how many bytes they may take together.
    :param largest: how many bytes one may take; a larger one is not kept.
    :param size_of: how many bytes a value takes.
    """

    def __init__(self, most: int, largest: int, size_of: Callable[[V], int]) -> None:
        self._most = most
        self._largest = largest
        self._size_of = size_of
        self._values_by_use: OrderedDict[K, V] = OrderedDict()
        self.size = 0

    def __len__(self) -> int:
        return len(self._values_by_use)

    def get(self, key: K) -> V | None:
        """A value, if it is in memory."""
        found = self._values_by_use.get(key)
        if found is not None:
            self._values_by_use.move_to_end(key)
        return found

    def keep(self, key: K, value: V) -> None:
        """Keep a value, in place of the one before; a value that is too large is not kept."""
        self.drop(key)
        size = self._size_of(value)
        if size > self._largest:
            return
        self._values_by_use[key] = value
        self.size += size
        while self.size > self._most:
            self.drop(next(iter(self._values_by_use)))

    def drop(self, key: K) -> None:
        """Drop a value, if it is in memory."""
        found = self._values_by_use.pop(key, None)
        if found is not None:
            self.size -= self._size_of(found)

    def clear(self) -> None:
        """Drop all values."""
        self._values_by_use.clear()
        self.size = 0
