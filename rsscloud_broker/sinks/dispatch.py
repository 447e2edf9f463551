"""Decides when a notification may begin.

There is a number of slots in all, and a small number for each host.  A notification that gets
no slot waits in line: in the line of its host, or in the line of all.  Topics take turns in the
line of all, so that a topic with many subscribers does not hold up the others.

A host that answers quickly and without errors earns more slots for itself, one after another; it
loses them at the first failure or slow answer.

A notification without an answer after a moment *lingers*: it goes on, but gives its slot to
the next in line.  How many may linger is limited.  None is ever called off because others wait.

So that thousands of hosts that say nothing cannot take every slot, hosts that answered quickly
the last time have slots of their own: half of the number in all, beside the others.  And
some of those that may linger are theirs alone.  How many slots there are follows ``Pace``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rsscloud_broker.bounded_dict import BoundedDict
from rsscloud_broker.counters import Counters
from rsscloud_broker.sinks.pace import Pace

#: The most slots that one host can earn.
MOST_PER_HOST = 16

#: Hosts of which it is remembered that they answered quickly.
REMEMBERED = 20_000


@define(eq=False)
class Job(ABC):
    """One notification; a subclass says how it is made.

    :ivar host: the host whose slot it needs.
    :ivar topic: what takes turns with other topics.
    :ivar begun: whether it has begun.
    :ivar behind_its_host: whether it waits for others of the same host.
    :ivar went_well: whether it succeeded; its ``begin`` says so.
    """

    host: str
    topic: str
    begun: bool = field(default=False, init=False)
    behind_its_host: bool = field(default=False, init=False)
    went_well: bool = field(default=False, init=False)
    _quick: bool = field(default=False, init=False)
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


class _Queue:
    """Jobs that wait: topics take turns, and the jobs of each keep their order."""

    def __init__(self) -> None:
        self._topics: OrderedDict[str, OrderedDict[Job, None]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, job: Job) -> None:
        self._topics.setdefault(job.topic, OrderedDict())[job] = None
        self._length += 1

    def discard(self, job: Job) -> bool:
        """Take a job out.  False if it is not here."""
        jobs = self._topics.get(job.topic)
        if jobs is None or job not in jobs:
            return False
        del jobs[job]
        if not jobs:
            del self._topics[job.topic]
        self._length -= 1
        return True

    def pop(self) -> Job:
        """Take out the first job of the topic whose turn it is."""
        topic, jobs = next(iter(self._topics.items()))
        job, _ = jobs.popitem(last=False)
        if jobs:
            self._topics.move_to_end(topic)
        else:
            del self._topics[topic]
        self._length -= 1
        return job


@define
class _Host:
    """A host that jobs are of.

    :ivar slots: jobs that it may have under way, or in the line of all; a part of a slot
        is one that is not earned yet.
    :ivar taken: those that it has.
    :ivar line: jobs that wait for a slot of the host.
    """

    slots: float
    taken: int = 0
    line: OrderedDict[Job, None] = field(factory=OrderedDict)


class Dispatcher:
    """Begins jobs as slots become free.

    :param slots: jobs under way at a time, in all, but for those that linger.
    :param per_host: jobs under way at a time for one host, at first.
    :param max_slow: jobs that may linger.
    """

    def __init__(
        self,
        clock: IReactorTime,
        counters: Counters,
        *,
        slots: int = 200,
        per_host: int = 4,
        max_slow: int = 2000,
    ) -> None:
        self._clock = clock
        self._counters = counters
        self._per_host = per_host
        self._max_slow = max_slow
        self._pace = Pace(clock, slots, self._look)
        self._hosts: dict[str, _Host] = {}
        self._quick_hosts: BoundedDict[str, float] = BoundedDict(REMEMBERED)  # and their slots
        self._quick_queue, self._queue = _Queue(), _Queue()
        self._active: OrderedDict[Job, None] = OrderedDict()
        self._young_quick = 0
        self._slow: set[Job] = set()
        self._behind = 0
        self._beginning = False
        counters.in_flight.set_function(lambda: len(self._active) + len(self._slow))
        counters.slow.set_function(lambda: len(self._slow))
        counters.queued.set_function(self._queued)

    def _queued(self) -> int:
        return len(self._quick_queue) + len(self._queue) + self._behind

    def submit(self, job: Job) -> None:
        """Begin a job, now or when there is a slot for it."""
        host = self._hosts.get(job.host)
        slots = self._quick_hosts.get(job.host, 0)
        if host is None:
            host = self._hosts[job.host] = _Host(slots or self._per_host)
        job._quick = slots > 0
        if host.taken < int(host.slots):
            host.taken += 1
            self._enqueue(job)
            self._begin()
        else:
            job.behind_its_host = True
            host.line[job] = None
            self._behind += 1

    def withdraw(self, job: Job) -> bool:
        """Take a job out of the line.  False if it is in none."""
        if self._quick_queue.discard(job) or self._queue.discard(job):
            self._leave_host(job)
            return True
        host = self._hosts.get(job.host)
        if host is None or job not in host.line:
            return False
        del host.line[job]
        self._behind -= 1
        return True

    def stop(self) -> None:
        """Leave no timer behind: nothing is under way any more."""
        self._pace.stop()

    def in_line_of(self, host: str) -> int:
        """How many jobs wait for a slot of a host."""
        found = self._hosts.get(host)
        return 0 if found is None else len(found.line)

    def is_quick(self, host: str) -> bool:
        """Whether a host answered quickly the last time."""
        return self._quick_hosts.get(host, 0) > 0

    def _enqueue(self, job: Job) -> None:
        (self._quick_queue if job._quick else self._queue).add(job)

    def _begin(self) -> None:
        """Begin jobs as long as there are slots."""
        if self._beginning:  # a job that is over at once leads back here
            return
        self._beginning = True
        while (line := self._next_queue()) is not None:
            job = line.pop()
            job.begun = True
            job._since = self._pace.time()
            self._active[job] = None
            self._young_quick += job._quick
            began_at = self._clock.seconds()
            job._running = running = job.begin()
            running.addBoth(self._over, job, began_at)
        self._beginning = False
        if self._active:
            self._pace.start()

    def _next_queue(self) -> _Queue | None:
        """The line whose first job has a slot; None if there is no slot for any."""
        window = self._pace.window
        if self._quick_queue and (
            len(self._active) < window or self._young_quick < (window + 1) // 2
        ):
            return self._quick_queue
        if self._queue and len(self._active) < window:
            return self._queue
        if self._quick_queue or self._queue:
            self._pace.filled = True
        return None

    def _over(self, result: object, job: Job, began_at: float) -> None:
        job._running = None
        seconds = self._clock.seconds() - began_at
        quick = job in self._active and self._pace.time() - job._since < self._pace.slow_after
        self._remove(job)
        if quick:
            self._pace.took(seconds)
        self._judge(job, well=quick and job.went_well)
        self._leave_host(job)
        self._begin()

    def _remove(self, job: Job) -> None:
        if job in self._active:
            del self._active[job]
            self._young_quick -= job._quick
        else:
            self._slow.discard(job)

    def _judge(self, job: Job, *, well: bool) -> None:
        """Let a host earn another slot, or lose those that it has earned."""
        host = self._hosts[job.host]
        if not well:
            host.slots = self._per_host
            self._quick_hosts.pop(job.host, 0)
            return
        if host.slots < MOST_PER_HOST:
            host.slots += 1 / host.slots  # so it takes as many successes as it has slots
        self._quick_hosts[job.host] = host.slots

    def _leave_host(self, job: Job) -> None:
        """Give back a slot of a host, and let those in its line have the free ones."""
        host = self._hosts[job.host]
        host.taken -= 1
        while host.line and host.taken < int(host.slots):
            following, _ = host.line.popitem(last=False)
            following.behind_its_host = False
            following._quick = self.is_quick(job.host)
            self._behind -= 1
            host.taken += 1
            self._enqueue(following)
        if not host.taken:
            del self._hosts[job.host]

    def _look(self) -> bool:
        """Let jobs linger that are slow, where others wait; whether to look again."""
        if self._quick_queue or self._queue:
            self._let_linger()
            self._begin()
        return bool(self._active)

    def _let_linger(self) -> None:
        slow_since = self._pace.time() - self._pace.slow_after
        for job in list(self._active):
            if job._since > slow_since:
                break  # they are in the order in which they began
            room = self._max_slow if job._quick else self._max_slow * 3 // 4
            if len(self._slow) < room:
                self._remove(job)
                self._slow.add(job)
