"""Decides when a notification may begin: places in all, and for each host.

There is a number of places in all, and a small number for each host; who gets
no place waits in line.  So a slow host fills its own places and nothing else.

A host that takes its time, without being one of many at the same address, would
still hold one of the places in all.  So a notification that has no answer after
a moment *lingers*: it goes on, but gives its place to the next in line.  How
many may linger is limited too; beyond that, the one that has lingered longest
is called off, to be tried again later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import TypeAlias

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rsscloud_broker.counters import Counters

#: Seconds after which a notification without an answer lingers.
PATIENCE = 0.1

#: Seconds that a notification may linger, at the least, before it is called off.
LINGER = 2.0

#: Seconds to wait for a job to be old enough, at the least: an age is a difference
#: of floats, and may be short of its mark by less than the clock can tell.
LEAST_PAUSE = 0.001


@define(eq=False)
class Job(ABC):
    """One notification; a subclass says how it is made.

    :ivar host: whose place it needs.
    :ivar begun: whether it has begun.
    :ivar behind_its_host: whether it waits for others of the same host.
    """

    host: str
    begun: bool = field(default=False, init=False)
    behind_its_host: bool = field(default=False, init=False)
    _since: float = field(default=0.0, init=False)
    _running: Deferred[None] | None = field(default=None, init=False)

    @abstractmethod
    def begin(self) -> Deferred[None]:
        """Begin it.  The Deferred fires when it is over, and never fails; to cancel the
        Deferred calls it off.
        """

    def call_off(self) -> None:
        """Stop it, if it is under way."""
        if self._running is not None:
            self._running.cancel()


#: Jobs in the order in which they came.
Line: TypeAlias = "OrderedDict[Job, None]"


class Dispatcher:
    """Begins jobs as places become free.

    :param places: jobs under way at a time, in all, but for those that linger.
    :param per_host: jobs under way at a time for one host.
    :param lingering: jobs that may linger.
    """

    def __init__(
        self,
        clock: IReactorTime,
        counters: Counters,
        *,
        places: int = 200,
        per_host: int = 4,
        lingering: int = 2000,
    ) -> None:
        self._clock = clock
        self._counters = counters
        self._places = places
        self._per_host = per_host
        self._may_linger = lingering
        self._taken: dict[str, int] = {}  # the places of each host that are
        self._behind: dict[str, Line] = {}  # those in line for a place of each host
        self._line: Line = OrderedDict()  # these have a place of their host already
        self._young: Line = OrderedDict()
        self._lingering: Line = OrderedDict()
        self._alarm: IDelayedCall | None = None
        self._beginning = False
        counters.in_flight.set_function(lambda: len(self._young) + len(self._lingering))
        counters.lingering.set_function(lambda: len(self._lingering))
        counters.queued.set_function(self._queued)

    def submit(self, job: Job) -> None:
        """Begin a job, now or when there is a place for it."""
        taken = self._taken.get(job.host, 0)
        if taken < self._per_host:
            self._taken[job.host] = taken + 1
            self._line[job] = None
            self._begin()
        else:
            job.behind_its_host = True
            self._behind.setdefault(job.host, OrderedDict())[job] = None

    def withdraw(self, job: Job) -> bool:
        """Take a job out of the line.  False if it is in none."""
        if job in self._line:
            del self._line[job]
            self._leave_host(job)
            return True
        behind = self._behind.get(job.host)
        if behind is None or job not in behind:
            return False
        del behind[job]
        if not behind:
            del self._behind[job.host]
        return True

    def _queued(self) -> int:
        return len(self._line) + sum(map(len, self._behind.values()))

    def _begin(self) -> None:
        """Begin what is first in line, for as long as there are places."""
        if self._beginning:  # a job that is over at once leads back here
            return
        self._beginning = True
        while self._line and (len(self._young) < self._places or self._make_place()):
            job, _ = self._line.popitem(last=False)
            job.begun = True
            job._since = self._clock.seconds()
            self._young[job] = None
            job._running = running = job.begin()
            running.addBoth(self._over, job)
        self._beginning = False

    def _over(self, result: object, job: Job) -> None:
        job._running = None
        if job in self._young:
            del self._young[job]
        else:
            del self._lingering[job]
        self._leave_host(job)
        self._begin()

    def _leave_host(self, job: Job) -> None:
        """Give a host's place to the next in its line."""
        behind = self._behind.get(job.host)
        if behind is not None:
            following, _ = behind.popitem(last=False)
            following.behind_its_host = False
            self._line[following] = None
            if not behind:
                del self._behind[job.host]
            return
        self._taken[job.host] -= 1
        if not self._taken[job.host]:
            del self._taken[job.host]

    def _make_place(self) -> bool:
        """Let the oldest job linger, if it is old enough."""
        oldest = next(iter(self._young))
        age = self._clock.seconds() - oldest._since
        if age < PATIENCE:
            self._wake_after(PATIENCE - age)
            return False
        if not self._may_linger:
            return False
        if len(self._lingering) >= self._may_linger:
            longest = next(iter(self._lingering))
            lingered = self._clock.seconds() - longest._since
            if lingered < LINGER:
                self._wake_after(LINGER - lingered)
                return False
            longest.call_off()
            if longest in self._lingering:  # it does not let itself be called off
                self._lingering.move_to_end(longest)
                self._wake_after(PATIENCE)
                return False
        del self._young[oldest]
        self._lingering[oldest] = None
        return True

    def _wake_after(self, seconds: float) -> None:
        seconds = max(seconds, LEAST_PAUSE)
        if self._alarm is not None:
            if self._alarm.getTime() <= self._clock.seconds() + seconds:
                return
            self._alarm.cancel()
        self._alarm = self._clock.callLater(seconds, self._wake)

    def _wake(self) -> None:
        self._alarm = None
        self._begin()
