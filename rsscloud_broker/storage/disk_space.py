"""Room on the disk: while there is too little of it, the broker takes in nothing new.

A full disk stops everything: notifications that wait cannot be noted, change lists cannot be
made, and others who use the disk suffer as well.  So the broker leaves some of it free, for
what is under way.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from zope.interface import implementer

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import IDiskSpace

#: Seconds between two looks.
PERIOD: Final = 3.0

MEGABYTE: Final = 1_000_000

#: On a small disk less has to be free: one part of so many.
_PARTS: Final = 10


@implementer(IDiskSpace)
class DiskSpace(Service):
    """Looks at the room on a disk every few seconds.

    :param directory: where that disk is.
    :param min_free: bytes that are to stay free, or a tenth of the disk if that is less;
        0 if nobody cares.
    :param in_thread: calls a function in a thread, since a disk may hang.
    """

    name = "disk space"
    log = Logger()

    def __init__(
        self,
        directory: str,
        min_free: int,
        clock: IReactorTime,
        in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        self._directory = directory
        self._min_free = min_free
        self._in_thread = in_thread
        self._looking = LoopingCall(lambda: Deferred.fromCoroutine(self._look()))
        self._looking.clock = clock
        self._short = ""

    def startService(self) -> None:
        super().startService()
        if self._min_free:
            self._looking.start(PERIOD)

    def stopService(self) -> None:
        super().stopService()
        if self._looking.running:
            self._looking.stop()

    def check(self) -> None:
        if self._short:
            raise Unavailable(self._short)

    async def _look(self) -> None:
        try:
            status = await self._in_thread(os.statvfs, self._directory)
        except OSError:
            return  # who uses it says what is wrong with it
        free = status.f_bavail * status.f_frsize
        least = min(self._min_free, status.f_blocks * status.f_frsize // _PARTS)
        if free < least and not self._short:
            self._short = (
                f"only {free / MEGABYTE:,.1f} MB are free on the disk of {self._directory}, and "
                f"{least / MEGABYTE:,.1f} MB must be ([storage] min_free_mb): make room there"
            )
            self.log.error("Nothing new is taken in: {reason}.", reason=self._short)
        elif free >= least and self._short:
            self._short = ""
            self.log.info("There is room on the disk again; all is taken in.")
