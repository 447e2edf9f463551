"""Repeats operations of the store while the store is unavailable, and work that must not be left
undone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.util.backoff import backoff

#: Seconds until an operation is tried again after the store was unavailable, at most: the first
#: pause takes a second, and each further one twice as long as the one before.
UNAVAILABLE_PAUSE = 10.0

T = TypeVar("T")


@define
class StoreRetry:
    """Runs an operation of the store, and repeats it while the store is unavailable.

    :param what: names the work that is put off meanwhile, for the log.
    :ivar stopped: whether the service stops, so that nothing is repeated.
    """

    _clock: IReactorTime
    _what: str
    stopped: bool = field(default=False, init=False)
    _pauses: set[Deferred[None]] = field(factory=set, init=False)
    _logged_at: float = field(default=float("-inf"), init=False)
    log = Logger()

    async def __call__(self, operation: Callable[[], Awaitable[T]], about: str = "") -> T:
        """Run an operation of the store until it succeeds, and return its result.

        :param about: the topic or thing that the operation is about, as the log names it after
            the work, such as ``of https://feed.example/``.
        :raises CancelledError: the store is unavailable, and the service stops.
        """
        failures = 0
        while True:
            try:
                result = await operation()
            except Unavailable as error:
                self._log_put_off(error, about)
            else:
                if failures:
                    self._logged_at = float("-inf")  # the next failure of the store is another one
                return result
            await self.pause(backoff(1.0, failures, UNAVAILABLE_PAUSE))
            failures += 1

    async def until_done(self, operation: Callable[[], Awaitable[T]], what: str) -> T:
        """Run an operation until it succeeds, after a bug too, which is logged.

        It is for what is done once at the start, without which a part of the broker would do
        nothing until the next start.

        :param what: names the work, for the log.
        :raises CancelledError: the service stops.
        """
        while True:
            try:
                return await self(operation)
            except CancelledError:
                raise
            except Exception:
                self.log.failure("{what} failed; it is tried again.", what=what)
            await self.pause()

    def _log_put_off(self, error: Unavailable, about: str) -> None:
        """Log that the work is put off, once a minute, however many operations wait."""
        now = self._clock.seconds()
        if now - self._logged_at >= 60.0:
            self._logged_at = now
            what = " ".join(filter(None, (self._what, about)))
            self.log.error("{what} is put off: {error}", what=what, error=error)

    async def pause(self, seconds: float = UNAVAILABLE_PAUSE) -> None:
        """Wait some seconds.

        :raises CancelledError: the service stops.
        """
        if self.stopped:
            raise CancelledError
        pause: Deferred[None] = deferLater(self._clock, seconds)
        self._pauses.add(pause)
        try:
            await pause
        finally:
            self._pauses.discard(pause)

    def stop(self) -> None:
        """Cancel all pauses, and repeat nothing from now on."""
        self.stopped = True
        for pause in tuple(self._pauses):
            pause.cancel()
