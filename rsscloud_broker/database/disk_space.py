"""Watches the free space on a disk.  While there is too little, the broker accepts nothing new.

On a full disk the broker can store no pending notifications and write no change lists, and other
programs that use the disk fail too.  So the broker keeps some space free for the work that it has
accepted already.  The core asks ``check`` before it accepts a request.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import DiskFull
from rsscloud_broker.util.clock import endless_call

#: Seconds between two measurements.
PERIOD: Final = 3.0

#: In bytes.
MEGABYTE: Final = 1_000_000


def required_space(min_free: int, size: int) -> int:
    """How many bytes must be free on a disk.

    :param min_free: the configured number of bytes.
    :param size: the size of the disk in bytes.
    """
    # On a small disk less space must be free: the disk's size divided by this.
    return min(min_free, size // 10)


class DiskSpace(Service):
    """Measures the free space on a disk every few seconds.

    :param directory: a directory on that disk.
    :param min_free: the bytes that must stay free, or a tenth of the disk if that is less;
        0 for no limit.
    :param in_thread: calls a function in a thread, since a disk may hang.
    :param counters: show the free space.
    """

    name = "disk space"
    log = Logger()

    def __init__(
        self,
        directory: str,
        min_free: int,
        clock: IReactorTime,
        in_thread: Callable[..., Awaitable[Any]],
        counters: Counters | None = None,
    ) -> None:
        self._directory = directory
        self._min_free = min_free
        self._in_thread = in_thread
        self._loop = endless_call(clock, self._measure, "Measuring the free space")
        self._problem = ""
        self._gauge = (counters or Counters()).disk_free

    def startService(self) -> None:
        super().startService()
        self._loop.start(PERIOD)

    def stopService(self) -> None:
        super().stopService()
        if self._loop.running:
            self._loop.stop()

    def check(self) -> None:
        """:raises DiskFull: there was too little free space at the last measurement."""
        if self._problem:
            raise DiskFull(self._problem)

    async def _measure(self) -> None:
        """Measure the free space, and log when it becomes too little, or enough again."""
        try:
            status = await self._in_thread(os.statvfs, self._directory)
        except OSError:
            return  # whatever uses the directory next reports what is wrong with it
        free = status.f_bavail * status.f_frsize
        self._gauge.set(free)
        required = required_space(self._min_free, status.f_blocks * status.f_frsize)
        if free < required and not self._problem:
            self._problem = (
                f"only {free / MEGABYTE:,.1f} MB are free on the disk of {self._directory}, and "
                f"{required / MEGABYTE:,.1f} MB must be ([storage] min_free_mb): make room there"
            )
            self.log.error("The broker accepts nothing new: {reason}.", reason=self._problem)
        elif free >= required and self._problem:
            self._problem = ""
            self.log.info("The disk has space again: the broker accepts everything.")
