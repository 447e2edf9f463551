"""For those who have tables in the database: operations, alone or for many callers at once, and
functions that become methods.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar

from sqlalchemy import Connection
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rsscloud_broker.database.engine import as_unavailable
from rsscloud_broker.model.frozen import frozen

T = TypeVar("T")

#: If the database fails only after this many seconds, it does not answer.
HANGS_AFTER = 3.0

#: A function that runs in a transaction.  Its result fires the Deferred of the caller.
Operation: TypeAlias = Callable[[Connection], T]


@frozen
class QueuedOperation:
    """An operation, and the Deferred that its result fires."""

    operation: Operation[Any]
    done: Deferred[Any]


#: A Deferred, and the result, or the exception or the Failure, to fire it with.
Outcome: TypeAlias = tuple[Deferred[Any], Any]


def failed(jobs: Sequence[QueuedOperation], error: Exception) -> list[Outcome]:
    """The outcomes of jobs that an error has ended: the same Failure for each."""
    reason = as_unavailable(error) or error
    return [(job.done, Failure(reason)) for job in jobs]


def fire(outcomes: Sequence[Outcome]) -> None:
    """Fire the Deferreds of jobs with their results."""
    for done, result in outcomes:
        # If the result is a Failure, this runs the errbacks.
        done.callback(Failure(result) if isinstance(result, Exception) else result)


A = TypeVar("A")
P = ParamSpec("P")


@frozen
class Batched(Generic[A, T]):
    """An operation that the threads may run for many callers at once, which is cheaper.

    :ivar function: takes a sequence of arguments, and returns a result for each.  A result that is
        an exception is raised for its caller alone; the function must have stored nothing for it.
        If the function raises, it is called again for each argument by itself.
    """

    function: Callable[[Connection, Sequence[A]], Sequence[T | Exception]]
    argument: A

    def __call__(self, connection: Connection) -> T:
        """Run the operation by itself."""
        result = self.function(connection, [self.argument])[0]
        if isinstance(result, Exception):
            raise result
        return result


def in_turns(
    arguments: Sequence[A], keys: Callable[[A], Iterable[Hashable]]
) -> Iterator[Sequence[A]]:
    """Divide arguments, in their order, so that no two with a common key stand together.

    For functions of ``Batched`` that cannot change the same thing twice in one statement.
    """
    begin, seen = 0, set[Hashable]()
    for index, argument in enumerate(arguments):
        own = set(keys(argument))
        if not seen.isdisjoint(own):
            yield arguments[begin:index]
            begin, seen = index, set()
        seen |= own
    yield arguments[begin:]


class HasDatabase(Protocol):
    """An object whose methods run operations on a database.

    :ivar _database: what ``IDatabase`` describes.
    """

    _database: Any


# Most operations need nothing but a connection.  These turn such a function into a method.


def reading(
    function: Callable[Concatenate[Connection, P], T],
) -> Callable[Concatenate[HasDatabase, P], Deferred[T]]:
    """A method that calls a function with a connection that reads."""

    def method(self: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        result: Deferred[T] = self._database.read(lambda conn: function(conn, *args, **kwargs))
        return result

    update_wrapper(method, function)
    return method


def reading_in_batches(
    function: Callable[[Connection, Sequence[A]], Sequence[T]],
) -> Callable[[HasDatabase, A], Deferred[T]]:
    """A method that reads for one argument, by a function that reads for many callers at once."""

    def method(self: HasDatabase, argument: A, /) -> Deferred[T]:
        result: Deferred[T] = self._database.read(Batched(function, argument))
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
