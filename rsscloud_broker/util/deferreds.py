"""Helpers for coroutines and Deferreds.

``run_with_callback`` and ``from_callback`` join coroutines, which wait for the end of something,
and functions, which are called at its end.  Where very many calls are under way, a function costs
much less than a Deferred and a coroutine.  See ``IDirectNotifier``.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

from twisted.internet.defer import Deferred, FirstError, gatherResults

P = ParamSpec("P")
T = TypeVar("T")

#: Is called once when something is over, with its result or with the exception that ended it.
Done: TypeAlias = Callable[[T | Exception], object]

#: Breaks something off if it is under way.  Then its ``Done`` is called with a ``CancelledError``.
BreakOff: TypeAlias = Callable[[], object]


def returns_deferred(
    function: Callable[P, Coroutine[Deferred[Any], Any, T]],
) -> Callable[P, Deferred[T]]:
    """Make of a coroutine function one that returns a Deferred, for callers that want one."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        return Deferred.fromCoroutine(function(*args, **kwargs))

    return run


def run_with_callback(coroutine: Coroutine[Deferred[Any], Any, T], done: Done[T]) -> BreakOff:
    """Run a coroutine, and call a function at its end."""
    running = Deferred.fromCoroutine(coroutine)
    running.addCallbacks(done, lambda failure: done(failure.value))
    return running.cancel


async def from_callback(begin: Callable[[Done[T]], BreakOff]) -> T:
    """Begin something, and wait until it is over.

    :raises Exception: the exception that ended it.
    """

    def cancel(_: Deferred[T]) -> None:
        break_off()

    def done(result: T | Exception) -> None:
        if isinstance(result, Exception):
            over.errback(result)
        else:
            over.callback(result)

    over: Deferred[T] = Deferred(cancel)
    break_off = begin(done)
    return await over


def nothing_to_break_off() -> None:
    """A ``BreakOff`` of what is over already."""


async def gather(calls: Iterable[Coroutine[Deferred[Any], Any, T]]) -> list[T]:
    """Make several calls at the same time.

    :returns: what each returned, in their order.
    :raises Exception: what the first that failed raised; the others go on.
    """
    try:
        return await gatherResults(map(Deferred.fromCoroutine, calls), consumeErrors=True)
    except FirstError as error:
        error.subFailure.raiseException()
