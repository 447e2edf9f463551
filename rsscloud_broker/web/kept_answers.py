"""Keeps answers in memory that are often sent, up to a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """What knows how many bytes it takes."""

    @property
    def size(self) -> int:
        """How many bytes it takes."""


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Sized)


class KeptAnswers(Generic[K, V]):
    """Answers in memory.  If they are too large together, those go that were not read for longest.

    :ivar size: how many bytes they take together.
    :param most: how many bytes they may take together.
    :param largest: how many bytes one may take; a larger one is not kept.
    """

    def __init__(self, most: int, largest: int) -> None:
        self._most = most
        self._largest = largest
        self._found: OrderedDict[K, V] = OrderedDict()
        self.size = 0

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: K) -> V | None:
        """An answer, if it is in memory."""
        found = self._found.get(key)
        if found is not None:
            self._found.move_to_end(key)
        return found

    def keep(self, key: K, answer: V) -> None:
        """Keep an answer, in place of the one before."""
        self.drop(key)
        if answer.size > self._largest:
            return
        self._found[key] = answer
        self.size += answer.size
        while self.size > self._most:
            self.drop(next(iter(self._found)))

    def drop(self, key: K) -> None:
        """Drop an answer, if it is in memory."""
        found = self._found.pop(key, None)
        if found is not None:
            self.size -= found.size
