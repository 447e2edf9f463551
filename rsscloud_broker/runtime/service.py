"""The service of a whole broker, which starts its parts in order and stops them again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit
from types import MappingProxyType
from typing import IO

from sqlalchemy.exc import SQLAlchemyError
from twisted.application.service import IService, IServiceCollection, MultiService
from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.defer import TimeoutError as TimedOut
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import ILogObserver, Logger
from twisted.python.components import Componentized

from rsscloud_broker import __version__
from rsscloud_broker.config import Config
from rsscloud_broker.delivery.options import STOP_TIMEOUT
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.http.listening import SYSTEMD, adopted_port, sentence
from rsscloud_broker.interfaces import AppTables
from rsscloud_broker.runtime import data_lock, memory
from rsscloud_broker.runtime.start_checks import (
    DERIVED_URL,
    archives_warning,
    database_fault,
    database_state,
    file_faults,
)
from rsscloud_broker.storage import UnfitDatabase, database_file, migrate
from rsscloud_broker.util.deferreds import returns_deferred

#: Seconds that all else has to stop in, when the notifications under way have ended.
REST = 3.5

#: Seconds that all parts together have to stop; after that each remaining part has ``MOMENT``.
STOP_WITHIN, MOMENT = STOP_TIMEOUT + REST, 0.1


class CannotStart(SystemExit, Exception):
    """The broker cannot start.  The text says why, for people.

    It is a ``SystemExit``, so that Python shows it without a traceback.  It is an ``Exception``
    too, since only for that does twistd clean up: it removes its pid file and informs the process
    that waits for the daemon, which would otherwise wait forever.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"rsscloud-broker: {reason}")


class BrokerService(MultiService):
    """Starts its parts in order, and stops them one after the other in reverse order.

    Those that take up work are stopped at the same time, so that none begins anything while another
    still ends what it has begun.

    A part that does not stop in time is not waited for.  Nothing is lost by that: whatever the
    broker acknowledged is stored, and unfinished work resumes after the next start.

    :ivar descriptors: how many file descriptors the broker may need at the same time.
    :ivar app_tables: the tables of the applications that run, by their names.
    :param observer: the log observer; None if the broker leaves logging to twistd.
    :param changes_user: whether twistd may become another user between ``privilegedStartService``
        and ``startService``; by default, whether it could.
    """

    log = Logger()

    def __init__(
        self,
        config: Config,
        clock: IReactorTime,
        *,
        descriptors: int = 0,
        app_tables: Mapping[str, AppTables] = MappingProxyType({}),
        observer: ILogObserver | None = None,
        changes_user: bool | None = None,
    ) -> None:
        super().__init__()
        self._config = config
        self._clock = clock
        self.descriptors = descriptors
        self.app_tables = app_tables
        self._observer = observer
        self._changes_user = os.geteuid() == 0 if changes_user is None else changes_user
        self._locks: list[IO[bytes]] = []
        self._workers: Sequence[IService] = ()

    def add_parts(
        self, first: Iterable[IService], workers: Iterable[IService], last: Iterable[IService]
    ) -> None:
        """Add the parts, in the order in which they start.

        :param workers: those that take up work.
        """
        self._workers = list(workers)
        for part in (*first, *self._workers, *last):
            part.setServiceParent(self)

    def setServiceParent(self, parent: IServiceCollection) -> None:
        if self._observer is not None and isinstance(parent, Componentized):
            parent.setComponent(ILogObserver, self._observer)  # twistd uses this observer
        super().setServiceParent(parent)

    def privilegedStartService(self) -> None:
        """Listen; first see whether the broker can start at all, unless that is up to another user.

        Otherwise a load balancer would send requests to a broker that refuses to start.
        """
        if not self._changes_user:
            self._check_start()
        try:
            super().privilegedStartService()
        except (CannotListenError, OSError) as error:
            raise CannotStart(sentence(error)) from error

    def _check_start(self) -> None:
        """See whether the broker can start, without changing anything."""
        if faults := file_faults(self._config):
            raise CannotStart("\n".join(faults))
        _, fault = database_state(self._config, self.app_tables)
        if fault:
            raise CannotStart(fault)

    def startService(self) -> None:
        """Lock the data directory, migrate the database, and then start the parts.

        :raises CannotStart: the data directory or the database cannot be used.
        """
        url = self._config.database_url
        if self._changes_user:
            self._check_start()
        try:
            Path(self._config.data, "public").mkdir(parents=True, exist_ok=True)
            self._locks.append(data_lock.hold(self._config.data, self._local_address()))
            if (file := database_file(url)) is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
                self._locks.append(data_lock.hold(str(file.parent), name=f"{file.name}.lock"))
        except BlockingIOError as error:
            raise CannotStart(
                f"another broker runs with the data in {self._config.data}; --data names others"
            ) from error
        except OSError as error:
            raise CannotStart(f"the data directory cannot be used: {error}") from error
        try:
            migrate(url, self.app_tables)
        except (SQLAlchemyError, UnfitDatabase, Unavailable) as error:
            raise CannotStart(database_fault(url, error)) from error
        self.allow_descriptors(self.descriptors)
        super().startService()
        if self._config.public_url is None:
            self.log.warn(DERIVED_URL, url=self._config.address)
        if warning := archives_warning(self._config):
            self.log.warn("Some pings may come into no archive: {warning}.", warning=warning)
        memory.freeze_existing_objects()
        memory.return_large_blocks()
        self.log.info(
            "rsscloud-broker {version} at {url}/", version=__version__, url=self._config.address
        )

    def _local_address(self) -> str:
        """The URL for a browser on this machine, once the broker listens."""
        address = self._config.local_address
        if not self._config.listen[0].startswith(SYSTEMD):
            return address
        port = next(filter(None, map(adopted_port, self)), 0)
        return f"{address}:{port}" if port else address

    def allow_descriptors(self, needed: int) -> None:
        """Raise the limit of file descriptors to ``needed``; log a warning if that fails."""
        # How many file descriptors the broker asks the system for at least.
        allowed = raise_descriptor_limit(max(16_384, needed))
        if allowed < needed:
            self.log.warn(
                "The process may open {allowed} file descriptors (ulimit -n), but the configured "
                "number of connections needs {needed}; further connections wait or are refused.",
                allowed=allowed,
                needed=needed,
            )

    @returns_deferred
    async def stopService(self) -> None:
        """Stop the parts in turn, and give the locks back unless a part hangs."""
        self.running = 0
        until = self._clock.seconds() + STOP_WITHIN
        hanging: list[str] = []
        for parts in self._in_turn():
            stopping = [
                Deferred.fromCoroutine(self._stop_part(part, until, hanging)) for part in parts
            ]
            await gatherResults(stopping)
        if hanging:
            self.log.warn(
                "Not waiting any longer for: {parts}. What they were at is taken up after the "
                "next start.",
                parts=", ".join(hanging),
            )
            return  # a hanging part may still write, so keep the locks
        for lock in self._locks:
            lock.close()

    def _in_turn(self) -> Iterator[Sequence[IService]]:
        """The parts in the order in which they stop; the workers together, at the first of them."""
        for part in reversed(list(self)):
            if part not in self._workers:
                yield [part]
            elif part is self._workers[-1]:
                yield self._workers[::-1]

    async def _stop_part(self, part: IService, until: float, hanging: list[str]) -> None:
        """Stop a part."""
        name = part.name or type(part).__name__
        ended: Deferred[object] = Deferred()
        maybeDeferred(part.stopService).addBoth(ended.callback)
        ended.addTimeout(max(MOMENT, until - self._clock.seconds()), self._clock)
        try:
            await ended
        except TimedOut:
            hanging.append(name)
        except Exception:  # log a bug, and stop the other parts
            self.log.failure("Stopping {part} failed.", part=name)


def raise_descriptor_limit(wanted: int) -> int:
    """Raise the limit of file descriptors to ``wanted``, or as far as the system allows.

    The soft limit (``ulimit -n``) is often 1,024, for the sake of old programs that fail with more.
    A process may raise it by itself, up to the hard limit.

    :returns: the limit now: lower than ``wanted`` if the hard limit is, higher if it was before.
    """
    soft, hard = getrlimit(RLIMIT_NOFILE)
    if soft == RLIM_INFINITY:
        return wanted
    allowed = wanted if hard == RLIM_INFINITY else min(wanted, hard)
    if soft >= allowed:
        return soft
    try:
        setrlimit(RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError):  # some systems have another limit below the hard one
        return soft
    return allowed
