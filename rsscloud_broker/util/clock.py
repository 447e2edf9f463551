"""The clocks of the process, jobs that are repeated, and a watch of the wall clock.

Several nodes may work on one database.  ``EachPeriod`` runs a job on each of them; ``cluster_jobs``
has what runs one on one of them.  ``endless_call`` repeats a job that is no service.

The reactor's timers use a monotonic clock (``use_monotonic_timers``), since somebody may set the
wall clock: if it is set back two hours, a timer of one minute would fire two hours late.  Times
that are stored are read from the wall clock.  ``WallClockWatch`` notices when the wall clock is
set.

Computers that write to one database must agree on the time, or what one stores would be too old
already for the lists that another makes.  So on PostgreSQL the wall clock is that of the database,
which each heartbeat reads: see ``SystemClock.follow``.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from inspect import isawaitable
from typing import Any

from twisted.application.internet import TimerService
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger
from zope.interface import implementer

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import IClock

_log = Logger()

#: Seconds between two portions of long work, at least.  What they write until the next second must
#: be little enough for SQLite's checkpoint.
LEAST_PAUSE = 0.05


@implementer(IClock)
class SystemClock:
    """The clocks of this computer.

    :param reactor: the reactor whose timers are used; see ``use_monotonic_timers``.
    """

    def __init__(self, reactor: IReactorTime) -> None:
        self.seconds = reactor.seconds
        self.callLater = reactor.callLater
        self.getDelayedCalls = reactor.getDelayedCalls
        self._offset: float | None = None

    def wall_seconds(self) -> float:
        """The time, in seconds since the epoch: of this computer, or of the clock it follows."""
        return time.time() if self._offset is None else time.monotonic() + self._offset

    def follow(self, shown: float, before: float, after: float) -> None:
        """Show from now on what another clock shows, as far as one reading of it tells.

        Any thread may call this, again and again.  As the reading took some time, it leaves the
        offset in doubt by as much.  The offset changes only if it cannot be right any more.

        :param shown: what the other clock showed, in seconds since the epoch.
        :param before, after: what ``time.monotonic`` returned just before and just after that.
        """
        offset = shown - after if self._offset is None else self._offset
        self._offset = min(max(offset, shown - after), shown - before)


def use_monotonic_timers(reactor: Any) -> None:
    """Make a reactor's timers use the monotonic clock.

    Twisted's reactors use the wall clock.  They read it by their method ``seconds``, which is
    replaced here.

    :param reactor: a reactor without timers; existing timers would fire at a wrong time.
    """
    reactor.seconds = time.monotonic


def endless_call(clock: IReactorTime, job: Callable[[], object], what: str) -> LoopingCall:
    """A call that is repeated after an exception, too; that of a plain ``LoopingCall`` ends it.

    :param job: a function, perhaps an async one, called without arguments.  If it takes longer than
        the interval, the calls that it overlaps are left out.
    :param what: names the job in the log.
    """

    async def call() -> None:
        """Do the job once; log a bug, so that the next call comes."""
        try:
            result = job()
            if isawaitable(result):
                await result
        except CancelledError:
            pass  # it is to stop
        except Exception:  # log a bug; the next call may succeed
            _log.failure("{what} failed; it is tried again in its next turn.", what=what)

    endless = LoopingCall(lambda: Deferred.fromCoroutine(call()))
    endless.clock = clock
    return endless


def call_off(call: IDelayedCall | None) -> None:
    """Cancel a call that is still to come."""
    if call is not None and call.active():
        call.cancel()


class EachPeriod(Service):
    """A service that calls a job at every multiple of a period: each full minute or hour.

    If a run fails, the failure is logged, and the next run comes all the same.  If the store or the
    disk cannot be used for several runs, that is logged once.  If a run takes longer than the
    period, the runs that it overlaps are skipped.  If the wall clock is set to another period, a
    run follows within five seconds.

    :param period: seconds; runs fall on multiples of it since the epoch.
    :param job: an async function, called without arguments.
    :param after: seconds by which a run comes later than the round time.
    :param at_start: whether there is a run at once when the service starts.
    """

    log = Logger()

    def __init__(
        self,
        clock: IClock,
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
        self._timer: IDelayedCall | None = None
        self._turn = 0  # the number of the period since the epoch that was looked at last
        self._run: Deferred[None] | None = None  # fires when the run under way is over
        self._began_at = 0.0  # when the last run began
        self._rest: Deferred[object] | None = None  # the pause between two portions
        self._stopped = self._is_unavailable = False

    def startService(self) -> None:
        super().startService()
        self._stopped = False
        self._turn, _ = self._current_turn()
        self._set_timer()
        if self._at_start:
            self._begin()

    def stopService(self) -> Deferred[None] | None:
        """Stop; the Deferred fires when the current run, if any, is over."""
        super().stopService()
        self._stopped = True
        if self._rest is not None:
            self._rest.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._run is None:
            return None
        over: Deferred[None] = Deferred()  # of its own: to cancel it does not end the run
        self._run.addCallback(over.callback)
        return over

    async def in_portions(self, portion: Callable[[], Awaitable[bool]]) -> None:
        """Do long work in portions, so that others need not wait for all of it.

        After each portion there is a pause as long as the portion took, so that others have at
        least half of the time.

        :param portion: an async function; returns whether more is left.  It is not called any more
            when the service stops.
        """
        while not self._stopped:
            began_at = self._clock.seconds()
            if not await portion():
                return
            seconds = self._clock.seconds() - began_at
            self._rest = deferLater(self._clock, max(seconds, LEAST_PAUSE))
            with suppress(CancelledError):  # the service stops
                await self._rest
            self._rest = None

    def _current_turn(self) -> tuple[int, float]:
        """The number of the current period since the epoch, and the seconds that are left of it."""
        turn, passed = divmod(self._clock.wall_seconds() - self._after, self._period)
        return int(turn), self._period - passed

    def period_began(self) -> float:
        """The last multiple of the period for which a run was due, in seconds since the epoch."""
        turn, _ = self._current_turn()
        return turn * self._period

    def _set_timer(self) -> None:
        """Look again when the period ends, or in five seconds, as the wall clock may be set."""
        _, left = self._current_turn()
        self._timer = self._clock.callLater(min(left, 5.0), self._look)

    def _look(self) -> None:
        """Begin a run if this is another period than the last time."""
        turn, _ = self._current_turn()
        self._set_timer()
        if turn != self._turn:
            self._turn = turn
            self._begin()

    def _begin(self) -> None:
        """Begin a run, unless the one before is still under way."""
        if self._run is not None:
            # A run that the start began less than a period ago is enough; it is not logged.
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
        """Do the job; whatever goes wrong is logged, and the next run comes."""
        try:
            await self._job()
        except (Unavailable, OSError) as error:  # a full disk is no bug, and each run would say so
            if not self._is_unavailable:
                self.log.error(
                    "{name}: {error}; it is tried again in its next turn.",
                    name=self.name,
                    error=error,
                )
            self._is_unavailable = True
        except Exception:  # log a bug; the next run may succeed
            self.log.failure("{name} failed; it is tried again in its next turn.", name=self.name)
        else:
            if self._is_unavailable:
                self.log.info("{name} goes on.", name=self.name)
            self._is_unavailable = False
        self._run = None


class WallClockWatch(TimerService):
    """A service that notices when the wall clock is set, and calls a function when it is set back.

    Work that is due at a stored time would be done too late, by as much as the wall clock was
    set back.  The function therefore moves the stored times back.

    :param set_back: an async function, called with the seconds by which the clock was set back.
    """

    name = "wall clock"
    log = Logger()

    def __init__(self, clock: IClock, set_back: Callable[[float], Awaitable[object]]) -> None:
        super().__init__(1.0, self._look)
        self.clock = self._clock = clock
        self._set_back = set_back

    def startService(self) -> None:
        self._difference = self._measure()
        super().startService()

    def _measure(self) -> float:
        return self._clock.wall_seconds() - self._clock.seconds()

    def _look(self) -> None:
        """Compare the clocks; if the wall clock was set back, have ``set_back`` called."""
        before, self._difference = self._difference, self._measure()
        jump = self._difference - before
        # The wall clock counts as set if it differs from the expected time by a second or more.
        # Smaller differences are normal: the system adjusts it all the time, and a busy process
        # reads the two clocks one after the other.
        if abs(jump) < 1.0:
            return
        self.log.warn(
            "The wall clock was set {direction} by {seconds:.0f} s.",
            direction="forward" if jump > 0 else "back",
            seconds=abs(jump),
        )
        if jump < 0:
            Deferred.fromCoroutine(self._move_along(-jump))

    async def _move_along(self, seconds: float) -> None:
        """Call ``set_back``, and log if it fails."""
        try:
            await self._set_back(seconds)
        except Unavailable as error:
            self.log.error(
                "What is stored could not be moved along with the wall clock: {error}", error=error
            )
        except Exception:  # log a bug; the due work comes late, all other work goes on
            self.log.failure("What is stored could not be moved along with the wall clock.")
