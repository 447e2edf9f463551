"""Uses the store as if it were always there: what cannot be saved now is saved later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rsscloud_broker.errors import Unavailable

#: Seconds until the store is tried again after it could not be used.
UNAVAILABLE_PAUSE = 10.0

T = TypeVar("T")


@define
class StoreRetry:
    """Calls the store again and again while it is unavailable.

    :param what: is put off meanwhile, for the log.
    :ivar stopped: the service stops, so nothing is tried again.
    """

    _clock: IReactorTime
    _what: str
    stopped: bool = field(default=False, init=False)
    _pauses: set[Deferred[None]] = field(factory=set, init=False)
    log = Logger()

    async def __call__(self, operation: Callable[[], Awaitable[T]], of: str = "") -> T:
        """The result of an operation of the store.

        :param of: whom or what it is about, for the log.
        :raises CancelledError: the store is unavailable, and this was stopped.
        """
        while True:
            try:
                return await operation()
            except Unavailable as error:
                what = " ".join(filter(None, (self._what, of)))
                self.log.error("{what} is put off: {error}", what=what, error=error)
            await self.pause()

    async def pause(self) -> None:
        """Wait a while.

        :raises CancelledError: this was stopped.
        """
        if self.stopped:
            raise CancelledError
        pause: Deferred[None] = deferLater(self._clock, UNAVAILABLE_PAUSE)
        self._pauses.add(pause)
        try:
            await pause
        finally:
            self._pauses.discard(pause)

    def stop(self) -> None:
        """End every pause, and have none from now on."""
        self.stopped = True
        for pause in tuple(self._pauses):
            pause.cancel()
