"""Examines the parts of the broker, for ``/health/live`` and ``/health/ready``.

A check is a function that returns a sentence about a part that works, and raises ``Unavailable``
with a sentence about a part that does not.  Those of this module take the part that they check.
`Health` runs them.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias

from attrs import define
from twisted.application.service import IService
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TimedOut
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from rsscloud_broker.core.bus import EventBus
from rsscloud_broker.database.disk_space import DiskSpace
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import IHealth, PartState
from rsscloud_broker.outbound.resolver import Resolver
from rsscloud_broker.runtime.measuring import LoopDelay
from rsscloud_broker.storage import Store
from rsscloud_broker.wire.node_states import CLOCK_TOLERANCE, clock_sentence
from rsscloud_broker.wire.text import sentence

#: Seconds that a check of the database may take.
DATABASE_TIMEOUT: Final = 2.0

Check: TypeAlias = Callable[[], str | Awaitable[str]]


@implementer(IHealth)
@define(eq=False)
class Health:
    """Runs the checks of all parts, each time that somebody asks.

    :param of_life: the checks for ``alive``, by the names of the parts; none of them may wait.
    :param checks: the further checks for ``ready``.
    """

    log = Logger()

    _of_life: Mapping[str, Callable[[], str]]
    _checks: Mapping[str, Check]

    def alive(self) -> Sequence[PartState]:
        return [self._state_now(part, check) for part, check in self._of_life.items()]

    async def ready(self) -> Sequence[PartState]:
        states = list(self.alive())
        for part, check in self._checks.items():
            try:
                found = check()
                text = await found if inspect.isawaitable(found) else found
                states.append(PartState(part, works=True, text=text))
            except Exception as error:
                states.append(self._failed_state(part, error))
        return states

    def _state_now(self, part: str, check: Callable[[], str]) -> PartState:
        try:
            return PartState(part, works=True, text=check())
        except Exception as error:
            return self._failed_state(part, error)

    def _failed_state(self, part: str, error: Exception) -> PartState:
        if not isinstance(error, Unavailable):  # a bug of the check: log it
            self.log.failure("The health of {part} could not be checked.", part=part)
            return PartState(part, works=False, text="It could not be checked; the log says why.")
        return PartState(part, works=False, text=sentence(str(error)))


def event_loop(loop: LoopDelay) -> str:
    """Say how late the event loop is; that it answers at all shows that it works."""
    return f"The event loop answers; it was last late by {loop.latest:.3f} s."


class Database:
    """A check that writes to the database and commits.

    If the database hangs, the check gives up after ``DATABASE_TIMEOUT``, but the write stays
    queued.  So at most one such write is under way, and further checks wait for the same one.
    """

    def __init__(self, store: Store, clock: IReactorTime) -> None:
        self._store = store
        self._clock = clock
        self._waiting: list[Deferred[None]] | None = None

    async def __call__(self) -> str:
        began_at = self._clock.seconds()
        done: Deferred[None] = Deferred()
        if self._waiting is None:
            self._waiting = [done]
            Deferred.fromCoroutine(self._write())
        else:
            self._waiting[:] = [*(each for each in self._waiting if not each.called), done]
        done.addTimeout(DATABASE_TIMEOUT, self._clock)
        try:
            await done
        except TimedOut:
            raise Unavailable(
                f"the database has not committed a write within {DATABASE_TIMEOUT:g} seconds: look "
                "for another process that holds a lock, a slow disk, or a server that is down"
            ) from None
        return f"The database committed a write within {self._clock.seconds() - began_at:.3f} s."

    async def _write(self) -> None:
        """Write to the database, and fire all checks that wait for that."""
        error: Exception | None = None
        try:
            await self._store.check_writable()
        except Exception as problem:
            error = problem
        waiting, self._waiting = self._waiting or [], None
        for done in waiting:
            if not done.called:  # it has not timed out
                done.callback(None) if error is None else done.errback(error)


def writer(store: Store) -> str:
    """Check that the writer of the store is not stuck."""
    busy_for, waiting = store.busy_for(), store.writes_waiting()
    # Ten seconds: SQLite and PostgreSQL wait up to 30 for a lock, but a group of operations takes a
    # fraction of a second.
    if busy_for > 10.0:
        raise Unavailable(
            f"the writer has worked on one transaction for {busy_for:.0f} seconds, and "
            f"{waiting:,} operations wait: look for another process that holds a lock on the "
            "database, or a disk that hangs"
        )
    return f"The writer works; {waiting:,} operations wait."


def clock(store: Store) -> str:
    """Check the computer's clock, which never fails: the broker follows the database's."""
    ahead = store.clock_ahead
    if abs(ahead) <= CLOCK_TOLERANCE:
        return "The clock of this computer is in step with that of the database."
    return f"The clock of this computer is {clock_sentence(ahead)}."


def disk(space: DiskSpace) -> str:
    """Check that the disk of the data directory has room."""
    space.check()
    return "The disk of the data directory has room."


def bus(event_bus: EventBus) -> str:
    """Check that no sink is far behind."""
    fill = event_bus.fill_levels()
    # How full the queue of a sink may be.
    behind = sorted(name for name, part in fill.items() if part >= 0.9)
    if behind:
        raise Unavailable(
            f"the queues of these sinks are nearly full: {', '.join(behind)}; they lose no "
            "data, but are late: the log says what keeps them"
        )
    return f"The fullest queue of a sink is at {max(fill.values(), default=0.0):.0%}."


def names(resolver: Resolver) -> str:
    """Check that host names can be looked up."""
    resolver.check()
    return f"Host names can be looked up; {resolver.lookups:,} lookups are under way."


def listeners(services: Sequence[IService]) -> str:
    """Check that the broker still accepts connections everywhere."""
    closed = sum(not service.running for service in services)
    if closed:
        raise Unavailable(
            f"{closed} of {len(services)} endpoints are closed, as the broker starts or stops"
        )
    return f"The broker listens at all of its endpoints ({len(services)})."
