"""Turns functions that run in a transaction into methods that return Deferreds."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection
from twisted.internet.defer import Deferred

P = ParamSpec("P")
T = TypeVar("T")


class HasDatabase(Protocol):
    """An object whose methods run operations on a database.

    :ivar _database: what ``IDatabase`` describes.
    """

    _database: Any


# Most operations need nothing but a connection.  These two turn such a function into a method.


def reading(
    function: Callable[Concatenate[Connection, P], T],
) -> Callable[Concatenate[HasDatabase, P], Deferred[T]]:
    """A method that calls a function with a connection that reads."""

    def method(self: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        result: Deferred[T] = self._database.read(lambda conn: function(conn, *args, **kwargs))
        return result

    update_wrapper(method, function)
    return method


def writing(
    function: Callable[Concatenate[Connection, P], T],
) -> Callable[Concatenate[HasDatabase, P], Deferred[T]]:
    """A method that calls a function in a transaction that writes."""

    def method(self: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        result: Deferred[T] = self._database.write(lambda conn: function(conn, *args, **kwargs))
        return result

    update_wrapper(method, function)
    return method
