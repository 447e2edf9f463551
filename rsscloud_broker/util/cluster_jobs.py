"""What one of the nodes does for all that work on one database.

A node claims the job by its name, in the database (``IJobs``); if it dies, its claim is free for
another node.  ``PeriodicClusterJob`` claims a job whenever it is due.  ``RunOnOneNode`` claims one
that never ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Final

from twisted.application.service import IService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall

from rsscloud_broker.errors import ClaimLost, Unavailable
from rsscloud_broker.interfaces import IClock, IJobs
from rsscloud_broker.util.clock import EachPeriod
from rsscloud_broker.util.deferreds import returns_deferred

#: Seconds until a node tries again to claim a job that another node has claimed.
PAUSE: Final = 1.0


def old_by(now: float, due_at: float) -> float:
    """The time by which a job removes what is old: the present time, but no later than since when
    the job has been due, as the clock may be days ahead for a moment.

    :param due_at: 0 if the job was not due.
    """
    return min(now, due_at or now)


class PeriodicClusterJob(EachPeriod):
    """Does a job in each period, on one node for all that work on the database.

    At each multiple of the period all nodes try to claim the job, and one of them can.  The others
    try again each second until it is done, so that one of them does it if that node dies.

    :param job: an async function.  It is called with the time since when the job has not been done,
        in seconds since the epoch; 0 if it was never done.
    :param jobs: where the job is claimed, under its name.
    :param at_start: whether the node tries to claim the job when the service starts, too.  If no
        other node can work on the database, the job is done then even if it is not due.
    """

    def __init__(
        self,
        clock: IClock,
        period: float,
        job: Callable[[float], Awaitable[object]],
        jobs: IJobs,
        *,
        name: str,
        after: float = 0.0,
        at_start: bool = False,
    ) -> None:
        super().__init__(
            clock, period, self._claim_and_do, name=name, after=after, at_start=at_start
        )
        self._job_name = name
        self._claimed_job = job
        self._jobs = jobs
        self._retry: IDelayedCall | None = None
        self._is_forced = False  # whether it is done even if it is not due
        self._soon = False  # whether it is to be claimed again right after this run
        self._wanted = inf  # see ``want``; infinite if nothing is wanted

    def startService(self) -> None:
        self._is_forced = self._at_start and not self._jobs.shares_work()
        super().startService()

    def stopService(self) -> Deferred[None] | None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        return super().stopService()

    def want(self, since: float, *, soon: bool = False) -> None:
        """Have the job done once more by one of the nodes, since it has missed work.

        :param since: the time from which on there is work to do.
        :param soon: whether it is to begin now; if not, it begins at the next multiple of the
            period, and so once for many calls.
        """
        self._wanted = min(since, self._wanted)
        if not (soon and self.running):
            return
        if self._run is None:
            self._begin()
        else:
            self._soon = True  # it is claimed again when this run is over

    async def _claim_and_do(self) -> None:
        """Do the job if this node can claim it; try again soon if another has it."""
        await self._request_if_wanted()
        period = 0.0 if self._is_forced else self._period  # 0: the job is due whatever is stored
        turn = await self._jobs.claim_job(self._job_name, self._clock.wall_seconds(), period)
        if turn.is_others:
            self._claim_soon()
        if turn.claimed:
            await self._do_claimed(turn.due_at)
        if self._soon:
            self._claim_soon()

    async def _do_claimed(self, due_at: float) -> None:
        turn, _ = self._current_turn()
        next_due = (turn + 1) * self._period + self._after  # when the present period ends
        try:
            if self.running:
                await self._claimed_job(due_at)
            if not self.running:  # it has not begun, or it may have been cut short
                await self._jobs.release_job(self._job_name)
            elif not await self._jobs.finish_job(self._job_name, next_due):
                raise ClaimLost
            else:
                self._is_forced = False
        except ClaimLost:  # another node does it, or there is more to do than when it began
            self._claim_soon()
        except Exception:
            with suppress(Unavailable):  # then this node claims it again in its next turn
                await self._jobs.release_job(self._job_name)
            raise

    async def _request_if_wanted(self) -> None:
        """Make the job due in the database if ``want`` was called; what fails stays wanted."""
        wanted, self._wanted, self._soon = self._wanted, inf, False
        if wanted == inf:
            return
        try:
            await self._jobs.request_job(self._job_name, wanted)
        except Exception:
            self._wanted = min(wanted, self._wanted)
            raise

    def _claim_soon(self) -> None:
        if self.running and self._retry is None:
            self._retry = self._clock.callLater(PAUSE, self._begin_retry)

    def _begin_retry(self) -> None:
        self._retry = None
        self._begin()


class RunOnOneNode(EachPeriod):
    """Runs a service on one node for as long as that node lives; then another node runs it.

    :param service: the service, which must not be among the parts of the broker itself.
    :param name: the name of the job that is claimed for it.
    """

    def __init__(self, service: IService, jobs: IJobs, clock: IClock, *, name: str) -> None:
        # Every two seconds it tries to claim the job, or asks whether its claim is still there.
        super().__init__(clock, 2.0, self._claim, name=name, at_start=True)
        self._job_name = name
        self._service = service
        self._jobs = jobs
        self._is_claimed = False

    @returns_deferred
    async def stopService(self) -> None:
        """Stop the service after the last run, and release the job for another node."""
        run = super().stopService()
        if run is not None:
            await run
        if self._is_claimed:
            await self._stop_the_service()
            with suppress(Unavailable):  # then the claim ends with this node
                await self._jobs.release_job(self._job_name)

    def _begin(self) -> None:
        if self._run is None:  # else the class above would warn of each run that is left out
            super()._begin()

    async def _claim(self) -> None:
        """Claim the job, or look whether the claim still holds; run the service only then."""
        if self._is_claimed and not self._jobs.shares_work():
            return  # on SQLite, no other node can take it
        now = self._clock.wall_seconds()
        # The job is never finished, so it is always due.
        turn = await self._jobs.claim_job(self._job_name, now, now)
        if not turn.claimed:
            await self._stop_the_service()
            return
        self._is_claimed = True
        if self.running and not self._service.running:
            try:
                self._service.startService()
            except Exception:
                self._is_claimed = False
                await self._jobs.release_job(self._job_name)
                raise

    async def _stop_the_service(self) -> None:
        """Stop the service; the job is not this node's any more."""
        self._is_claimed = False
        if self._service.running:
            await maybeDeferred(self._service.stopService)
