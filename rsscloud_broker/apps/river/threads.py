"""Calls functions in a thread, one at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import DeferredSemaphore


class OneAtATime:
    """Reads documents in a thread, one after the other.

    The largest feeds take seconds.  If many were read at the same time, the broker's threads would
    have no time for anything else.

    :param in_thread: calls a function in a thread.
    """

    def __init__(self, in_thread: Callable[..., Awaitable[Any]]) -> None:
        self._in_thread = in_thread
        self._place = DeferredSemaphore(1)

    async def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function, and return its result."""
        await self._place.acquire()
        try:
            return await self._in_thread(function, *args)
        finally:
            self._place.release()
