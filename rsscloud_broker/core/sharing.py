"""One topic, one fetch: calls about the same thing share their work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

T = TypeVar("T")

#: Where so many wait for the next call, others who are about to ask are waited for, too:
#: so many seconds for each who waits, and so many at the most.
MANY, FOR_EACH, LONGEST = 20, 0.01, 1.0


class SharedCalls(Generic[T]):
    """Calls a function for a key, once for all who ask while they wait.

    Who asks while a call for that key runs does not get its result, since what
    the call looked at may have changed after it began.  All of them together
    cause exactly one more call after it; when they are very many, so that still more
    are on their way, it waits a moment for those.

    :param function: what is called with the key.
    """

    def __init__(self, function: Callable[[str], Awaitable[T]], clock: IReactorTime) -> None:
        self._function = function
        self._clock = clock
        self._waiting: dict[str, list[Deferred[T]]] = {}

    def __call__(self, key: str) -> Deferred[T]:
        """The result of a call that begins now or later."""
        waiter: Deferred[T] = Deferred()
        if key in self._waiting:
            self._waiting[key].append(waiter)
        else:
            self._waiting[key] = [waiter]
            Deferred.fromCoroutine(self._call(key))
        return waiter

    async def _call(self, key: str) -> None:
        while count := len(self._waiting[key]):
            if count >= MANY:
                await deferLater(self._clock, min(count * FOR_EACH, LONGEST))
            waiters, self._waiting[key] = self._waiting[key], []
            try:
                result = await self._function(key)
            except Exception:  # everyone who waits is told, each by a failure of its own
                failure = Failure()
                for waiter in waiters:
                    waiter.errback(Failure(failure.value))
            else:
                for waiter in waiters:
                    waiter.callback(result)
        del self._waiting[key]
