"""What the store's threads run: operations, alone or several of one kind at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from attrs import frozen
from sqlalchemy import Connection
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rsscloud_broker.storage.engine import as_unavailable

A = TypeVar("A")
T = TypeVar("T")

#: One step of a transaction.  What it returns fires the Deferred.
Operation: TypeAlias = Callable[[Connection], T]


@frozen
class Batched(Generic[A, T]):
    """An operation that is cheaper for many arguments at once than one by one.

    :ivar function: takes the arguments of several, and returns a result for each.
    """

    function: Callable[[Connection, Sequence[A]], Sequence[T]]
    argument: A

    def __call__(self, connection: Connection) -> T:
        """Run it by itself."""
        return self.function(connection, [self.argument])[0]


@frozen
class Heavy(Generic[T]):
    """An operation with a content, which is not held on to if it was not stored.

    :ivar operation: is run.
    :ivar again: what is run where the database has lost it, which may be a second later, by
        what came of it.
    """

    operation: Operation[T]
    again: Callable[[T], Operation[T]]

    def __call__(self, connection: Connection) -> T:
        """Run it."""
        return self.operation(connection)


@frozen
class Job:
    """An operation, and what is to be fired with what comes of it."""

    operation: Operation[Any]
    done: Deferred[Any]


#: What a Deferred is to be given: a result or a Failure.
Outcome: TypeAlias = tuple[Deferred[Any], Any]


def failed(jobs: Sequence[Job], error: Exception) -> list[Outcome]:
    """What comes of jobs that an error ended."""
    reason = as_unavailable(error) or error
    return [(job.done, Failure(reason)) for job in jobs]


def fire(outcomes: Sequence[Outcome]) -> None:
    """Tell those who wait what came of their jobs."""
    for done, result in outcomes:
        # A Deferred that is given a Failure fires its errbacks.
        done.callback(result)
