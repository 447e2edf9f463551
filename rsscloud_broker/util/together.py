"""Calls that are made at the same time."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, FirstError, gatherResults

T = TypeVar("T")


async def together(calls: Iterable[Coroutine[Deferred[Any], Any, T]]) -> list[T]:
    """Make several calls at the same time.

    :returns: what each returned, in their order.
    :raises Exception: what the first that failed raised; the others go on.
    """
    try:
        return await gatherResults(map(Deferred.fromCoroutine, calls), consumeErrors=True)
    except FirstError as error:
        error.subFailure.raiseException()
