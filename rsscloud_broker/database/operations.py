"""The operations that the store's threads run, alone or several of one kind together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from attrs import frozen
from sqlalchemy import Connection
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rsscloud_broker.database.engine import as_unavailable

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
