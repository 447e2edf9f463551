"""A property that is made when it is first read, for objects whose parts need one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class CircularParts(Exception):
    """Some parts cannot be made, as each needs the next one, and the last one the first."""


class part(Generic[T]):  # noqa: N801 # it is used as a decorator, as ``property`` is
    """A property whose value is computed once, when it is first read::

        class Server:
            @part
            def store(self) -> Store:
                return Store(self.clock)

    An error in the function has a note for each part that was being made.  A part that needs itself
    through others raises ``CircularParts``: then give one of these a function that returns the
    other one, ``lambda: self.store``, and have it called only when all of them are made.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...
    @overload
    def __get__(self, owner: object, kind: type) -> T: ...
    def __get__(self, owner: object | None, kind: type) -> T | Self:
        """Make the value, and keep it in the object, where Python finds it the next time."""
        if owner is None:
            return self
        beginning: list[str] = vars(owner).setdefault("_beginning", [])
        if self._name in beginning:
            circle = [*beginning[beginning.index(self._name) :], self._name]
            raise CircularParts(
                f"these parts need each other: {' -> '.join(circle)}; give one of them a function "
                "that returns the next one"
            )
        beginning.append(self._name)
        try:
            made = self._make(owner)
        except Exception as error:
            error.add_note(f"while making the part {self._name!r} of {kind.__name__}")
            raise
        finally:
            beginning.pop()
        vars(owner)[self._name] = made  # which Python finds before this descriptor
        return made
