"""What is kept in memory of many keys, within bounds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedDict(Generic[K, V]):
    """A dictionary that forgets what was set longest ago when it is full."""

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
        """The value of a key, or the default if it has none or it is forgotten."""
        return self._values.get(key, default)

    def replace_each(self, change: Callable[[V], V]) -> None:
        """Replace the value of each key by another, which is made of it."""
        for key, value in self._values.items():
            self._values[key] = change(value)

    def pop(self, key: K, default: V) -> V:
        """As ``get``; the key is forgotten."""
        return self._values.pop(key, default)
