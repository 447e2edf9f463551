"""A dictionary of limited size, for caches and for what is remembered of strangers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedDict(Generic[K, V]):
    """A dictionary that, when it is full, deletes the key that was set longest ago.

    :param size: how many keys it holds at most.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def __setitem__(self, key: K, value: V) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)

    def get(self, key: K, default: V) -> V:
        """The value of a key; the default if the key was never set or was deleted."""
        return self._values.get(key, default)

    def replace_each(self, change: Callable[[V], V]) -> None:
        """Replace the value of each key by what ``change`` returns for it."""
        for key, value in self._values.items():
            self._values[key] = change(value)

    def pop(self, key: K, default: V) -> V:
        """Like ``get``, but also delete the key."""
        return self._values.pop(key, default)
