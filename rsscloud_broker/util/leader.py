"""Runs a service on one of the nodes that share a database."""

from __future__ import annotations

from contextlib import suppress

from twisted.application.service import IService, Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import IClock, IJobs


class WhileHeld(Service):
    """Runs a service on one node for as long as that node lives; then another node runs it.

    :param service: the service, which must not be among the parts of the broker itself.
    :param name: the name of the job that is claimed for it.
    """

    log = Logger()

    def __init__(self, service: IService, jobs: IJobs, clock: IClock, *, name: str) -> None:
        self.name = self._job_name = name
        self._service = service
        self._jobs = jobs
        self._clock = clock
        self._is_held = self._is_unavailable = False
        self._timer: IDelayedCall | None = None
        self._looking: Deferred[None] | None = None

    def startService(self) -> None:
        super().startService()
        self._begin()

    def stopService(self) -> Deferred[None]:
        """Stop; the Deferred fires when the service has stopped, and another node may run it."""
        super().stopService()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        if self._looking is not None:
            over: Deferred[None] = Deferred()
            self._looking.addCallback(over.callback)
            await over
        if self._is_held:
            await self._give_up()
            with suppress(Unavailable):  # then it is free when this node has ended
                await self._jobs.release_job(self._job_name)

    def _begin(self) -> None:
        self._timer = None
        looking: Deferred[None] = Deferred()
        self._looking = looking
        Deferred.fromCoroutine(self._look_and_wait()).addCallback(looking.callback)

    async def _look_and_wait(self) -> None:
        try:
            await self._look()
        except Unavailable as error:
            self._tell_unavailable(error)
        except Exception:  # log a bug, and look again
            self.log.failure("{name} failed; it is tried again in its next turn.", name=self.name)
        else:
            self._tell_available()
        self._looking = None
        if self.running:
            # Every two seconds it asks whether the job is still claimed, or is free.
            self._timer = self._clock.callLater(2.0, self._begin)

    def _tell_unavailable(self, error: Unavailable) -> None:
        """Log that the job cannot be claimed, once until it can be."""
        if not self._is_unavailable:
            self._is_unavailable = True
            self.log.error(
                "{name}: {error}; which node does this is decided later.",
                name=self.name,
                error=error,
            )

    def _tell_available(self) -> None:
        if self._is_unavailable:
            self._is_unavailable = False
            self.log.info("{name}: the database can be used again.", name=self.name)

    async def _look(self) -> None:
        if self._is_held:
            if self._jobs.shares_work() and not await self._jobs.holds_job(self._job_name):
                await self._give_up()
            return
        now = self._clock.wall_seconds()
        self._is_held = (await self._jobs.claim_job(self._job_name, now, now)).claimed
        if self._is_held and self.running:
            try:
                self._service.startService()
            except Exception:
                self._is_held = False
                await self._jobs.release_job(self._job_name)
                raise

    async def _give_up(self) -> None:
        self._is_held = False
        if self._service.running:
            await maybeDeferred(self._service.stopService)
