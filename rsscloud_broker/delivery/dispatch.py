"""Decides when a notification may begin.

The dispatcher has a number of slots in total, and each host has a small number of its own.  A
notification without a slot waits in a queue: in the queue of its host as long as the host has no
slot for it, and then in the common queue.  In the common queue topics take turns, so that a topic
with many subscribers does not delay the other topics.

A host that answers quickly and without errors earns further slots, one after another.  It loses
all that it earned at its first failure or slow answer.  A job that was not carried out, for lack of
the broker's own means, changes neither.

A notification that has no answer after a moment becomes *slow*: it goes on, but gives its slot in
the total to the next notification.  The number of slow notifications is limited.  The dispatcher
never cancels a notification because others wait.

Thousands of hosts that never answer cannot take every slot.  Hosts that answered quickly the last
time have slots that no other host can take: half as many as the total, beside the total.  A
quarter of ``max_slow`` is reserved for them too.  They go first, but after ``IN_A_ROW`` of them the
next free slot goes to another host, so that nobody waits until the last of them is called.

Decisions 0016 and 0033 (``docs/decisions``) say why the core's `HostLimiter` does not fit here, and
what would be lost without each of these limits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import ceil
from typing import Any

from attrs import define, field
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rsscloud_broker.counters import Counters
from rsscloud_broker.util.caches import BoundedDict

#: The most slots that one host can earn.
MOST_PER_HOST = 16

#: Seconds after which a notification without an answer is slow, and between two looks for those.
SLOW_AFTER, TICK = 0.1, 0.05

#: How many times a call may wait for those who make it to get round to it, by TLS and with names to
#: look up.  If they are late by more than a tenth of a second, only so much counts.
TURNS = 10

#: How many jobs for hosts that answered quickly begin in a row while others wait for a slot.
IN_A_ROW = 7


@define(eq=False)
class Job:
    """One notification to be made.

    :ivar host: the host that the notification calls, and whose slot it needs.
    :ivar topic: the topic that has changed; topics take turns.
    :ivar begin: is called with the job, begins the notification, and calls ``Dispatcher.end`` when
        it is over; it raises nothing.
    :ivar begun: whether the notification has begun.
    :ivar behind_its_host: whether it waits because its host has no free slot.
    :ivar went_well: whether it succeeded, once it is over; None if it says nothing of its host.
    :ivar _quick: whether its host answered quickly the last time before it was enqueued.
    :ivar _began_at: when it began.
    """

    host: str
    topic: str
    begin: Callable[[Any], None]
    begun: bool = field(default=False, init=False)
    behind_its_host: bool = field(default=False, init=False)
    went_well: bool | None = field(default=None, init=False)
    _quick: bool = field(default=False, init=False)
    _began_at: float = field(default=0.0, init=False)


class _Queue:
    """Jobs that wait.  Topics take turns; the jobs of one topic keep their order.

    :ivar length: how many wait.
    """

    def __init__(self) -> None:
        self._topics: OrderedDict[str, OrderedDict[Job, None]] = OrderedDict()
        self.length = 0

    def add(self, job: Job) -> None:
        self._topics.setdefault(job.topic, OrderedDict())[job] = None
        self.length += 1

    def discard(self, job: Job) -> bool:
        """Remove a job.  Returns whether it was in this queue."""
        jobs = self._topics.get(job.topic)
        if jobs is None or job not in jobs:
            return False
        del jobs[job]
        if not jobs:
            del self._topics[job.topic]
        self.length -= 1
        return True

    def pop(self) -> Job:
        """Remove and return the first job of the topic whose turn it is."""
        topic, jobs = self._topics.popitem(last=False)
        job, _ = jobs.popitem(last=False)
        if jobs:
            self._topics[topic] = jobs  # behind the other topics
        self.length -= 1
        return job


@define
class _Host:
    """A host that has jobs.

    :ivar slots: how many of its jobs may be under way or in the common queue.  The fraction is
        the part of the next slot that the host has already earned.
    :ivar slots_in_use: how many of its jobs are under way or in the common queue.
    """

    slots: float
    slots_in_use: int = 0


class Dispatcher:
    """Begins jobs as slots become free.

    :param slots: the most jobs under way at a time, not counting slow jobs.
    :param per_host: how many slots a host has before it has earned any.
    :param max_slow: how many jobs may be slow at a time.
    :param lateness: returns by how many seconds those who make the calls are late.
    """

    def __init__(
        self,
        clock: IReactorTime,
        counters: Counters,
        *,
        slots: int = 200,
        per_host: int = 4,
        max_slow: int = 2000,
        lateness: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._clock = clock
        self._lateness = lateness
        self._counters = counters
        self._limits = (slots, per_host, max_slow, MOST_PER_HOST)
        self._slots = slots
        self._per_host = per_host
        self._max_slow = max_slow
        self._most_per_host = MOST_PER_HOST
        self._timer: IDelayedCall | None = None
        self._hosts: dict[str, _Host] = {}
        # By host, the jobs that wait for a slot of their host.
        self._behind: dict[str, OrderedDict[Job, None]] = {}
        # How many hosts that answered quickly are remembered.
        self._quick_hosts: BoundedDict[str, float] = BoundedDict(20_000)  # and their slots
        self._quick_queue, self._queue = _Queue(), _Queue()
        # The jobs under way, in the order in which they began; how many are for quick hosts; and
        # the slow jobs.
        self._active: OrderedDict[Job, None] = OrderedDict()
        self._active_quick = 0
        self._quick_in_a_row = 0  # how many began since one for another host
        self._slow: set[Job] = set()
        self._is_beginning = False
        counters.in_flight.set_function(lambda: len(self._active) + len(self._slow))
        counters.slow.set_function(lambda: len(self._slow))
        counters.queued.set_function(self._queued)

    def _queued(self) -> int:
        behind_hosts = sum(map(len, self._behind.values()))
        return self._quick_queue.length + self._queue.length + behind_hosts

    def set_node_count(self, nodes: int) -> None:
        """Divide the limits, which hold for all nodes together, among this many live nodes.

        Jobs under way stay so, and hosts that are being called keep the slots that they have.
        """
        self._slots, self._per_host, self._max_slow, self._most_per_host = (
            max(1, limit // nodes) for limit in self._limits
        )

    def submit(self, job: Job) -> None:
        """Begin a job, now or as soon as a slot is free for it."""
        host = self._hosts.get(job.host)
        job._quick = job.host in self._quick_hosts
        if host is None:
            slots = self._quick_hosts[job.host] if job._quick else self._per_host
            host = self._hosts[job.host] = _Host(slots)
        if host.slots_in_use < int(host.slots):
            host.slots_in_use += 1
            (self._quick_queue if job._quick else self._queue).add(job)
            if not self._is_beginning:
                self._begin_jobs()
        else:
            job.behind_its_host = True
            self._behind.setdefault(job.host, OrderedDict())[job] = None

    def withdraw(self, job: Job) -> bool:
        """Remove a job from the queue in which it waits.  Returns whether it waited in one."""
        if self._quick_queue.discard(job) or self._queue.discard(job):
            self._leave_host(job)
            return True
        behind = self._behind.get(job.host)
        if behind is None or job not in behind:
            return False
        del behind[job]
        if not behind:
            del self._behind[job.host]
        return True

    def end(self, job: Job) -> None:
        """Give the slots of a job that is over to others."""
        quick = False
        if job in self._active:
            quick = self._clock.seconds() - job._began_at < SLOW_AFTER
            del self._active[job]
            self._active_quick -= job._quick
        else:
            self._slow.discard(job)
        host = self._hosts[job.host]
        if quick and job.went_well:  # so its host earns a part of another slot
            if host.slots < self._most_per_host:
                host.slots += 1 / host.slots  # one with N slots needs N successes for the next
            self._quick_hosts[job.host] = host.slots
        elif job.went_well is not None:  # its host loses all that it has earned
            host.slots = self._per_host
            self._quick_hosts.pop(job.host, 0)
        self._leave_host(job)
        if not self._is_beginning and (self._quick_queue.length or self._queue.length):
            self._begin_jobs()

    def stop(self) -> None:
        """Stop the timer.  The caller has stopped all jobs before."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def queued_for(self, host: str) -> int:
        """How many jobs wait because their host has no free slot."""
        return len(self._behind.get(host, ()))

    @property
    def most_retries(self) -> int:
        """How many retries may be under way, so that they leave room for first attempts."""
        return self._slots + self._max_slow // 4

    def is_quick(self, host: str) -> bool:
        """Whether a host answered quickly the last time."""
        return host in self._quick_hosts

    def _begin_jobs(self) -> None:
        """Begin jobs as long as slots are free; not called while it runs, as by jobs that end at
        once.
        """
        self._is_beginning = True
        try:
            while job := self._next_job():
                job.begun = True
                job._began_at = self._clock.seconds()
                self._active[job] = None
                self._active_quick += job._quick
                self._quick_in_a_row = self._quick_in_a_row + 1 if job._quick else 0
                job.begin(job)
        finally:
            self._is_beginning = False
        if self._timer is None and (self._quick_queue.length or self._queue.length):
            self._timer = self._clock.callLater(TICK, self._make_room)

    def _next_job(self) -> Job | None:
        """Take the job that may begin from its queue; None if no slot is free for any job."""
        queue, quick_queue = self._queue, self._quick_queue
        is_free = len(self._active) < self._slots
        if queue.length and is_free and self._quick_in_a_row >= IN_A_ROW:
            return queue.pop()
        if quick_queue.length and (is_free or self._active_quick < (self._slots + 1) // 2):
            return quick_queue.pop()
        return queue.pop() if queue.length and is_free else None

    def _leave_host(self, job: Job) -> None:
        """Give back a slot of a host, and give its free slots to the jobs in its queue."""
        host = self._hosts[job.host]
        host.slots_in_use -= 1
        behind = self._behind.get(job.host)
        while behind and host.slots_in_use < int(host.slots):
            following, _ = behind.popitem(last=False)
            following.behind_its_host = False
            following._quick = self.is_quick(job.host)
            host.slots_in_use += 1
            (self._quick_queue if following._quick else self._queue).add(following)
            if not behind:
                del self._behind[job.host]
        if not host.slots_in_use:
            del self._hosts[job.host]

    def _make_room(self) -> None:
        """Let slow jobs give up their slots to those that wait."""
        self._timer = None
        self._free_slots_of_slow()
        self._begin_jobs()

    def _free_slots_of_slow(self) -> None:
        """Count those jobs as slow, as far as there may be more, that have no answer after a
        moment.
        """
        patience = SLOW_AFTER + TURNS * min(self._lateness(), 0.1)
        slow_since = self._clock.seconds() - patience
        for job in list(self._active):
            if job._began_at > slow_since:
                break  # the jobs are in the order in which they began
            # The part of ``max_slow`` that jobs may fill whose hosts did not answer quickly the
            # last time.
            share = 1.0 if job._quick else 3 / 4
            if len(self._slow) < ceil(self._max_slow * share):
                del self._active[job]
                self._active_quick -= job._quick
                self._slow.add(job)
