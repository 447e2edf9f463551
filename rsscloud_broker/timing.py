"""Work that is done again and again, at round times of the clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger


class EachPeriod(Service):
    """Calls a job at every multiple of a period: each full minute, each full hour.

    One failing run is logged and the next comes all the same.  A run that takes
    longer than the period makes the ones it overlaps be left out.

    :param period: seconds; runs fall on multiples of it since the epoch.
    :param job: an async function, called without arguments.
    :param after: seconds by which a run comes later than the round time.
    :param at_start: whether there is a run at once when the service starts.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        period: float,
        job: Callable[[], Awaitable[object]],
        *,
        name: str,
        after: float = 0.0,
        at_start: bool = False,
    ) -> None:
        self.name = name
        self._clock = clock
        self._period = period
        self._job = job
        self._after = after
        self._at_start = at_start
        self._next: IDelayedCall | None = None
        self._run: Deferred[None] | None = None
        self._began_at = 0.0

    def startService(self) -> None:
        super().startService()
        self._schedule()
        if self._at_start:
            self._begin()

    def stopService(self) -> Deferred[None] | None:
        """Stop; the Deferred fires when a run that is going on is over."""
        super().stopService()
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._run is None:
            return None
        over: Deferred[None] = Deferred()
        self._run.addCallback(over.callback)
        return over

    def _schedule(self) -> None:
        now = self._clock.seconds() - self._after
        self._next = self._clock.callLater(self._period - now % self._period, self._tick)

    def _tick(self) -> None:
        self._schedule()
        self._begin()

    def _begin(self) -> None:
        if self._run is not None:
            # One that the start began a moment before does the same.
            if self._clock.seconds() - self._began_at >= self._period:
                self.log.warn(
                    "{name}: the last run is not over yet; this one is left out.", name=self.name
                )
            return
        self._began_at = self._clock.seconds()
        run: Deferred[None] = Deferred()
        self._run = run
        Deferred.fromCoroutine(self._run_once()).addCallback(run.callback)

    async def _run_once(self) -> None:
        try:
            await self._job()
        except Exception:  # whatever it was, the next run may well succeed
            self.log.failure("{name} failed; it is tried again in its next turn.", name=self.name)
        self._run = None
