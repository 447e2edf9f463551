"""Limits how many calls to strangers are under way, and shares them fairly.

Anybody may have the broker read a topic or verify a callback at any host, and a host may take
any time to answer.  So each such call waits for a slot:

- Slots go round the sources that wait, and for each source round the hosts that it wants
  called.  A source is the address of whoever asked, or its network: see ``bucket_of``.  What
  the broker does on its own is one more source.
- Urgent calls go first; but one slot in ``SHARE`` is for the others.
- A call without an answer after ``SLOW_AFTER`` seconds gives its slot to the next, and goes on.
- A source has no more calls under way than are free for all others, in all and at one host.
  So a source whose calls take long waits for itself: the first has at most half of all, and
  there is room for the next one.

No call that is under way is called off because others wait.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import NamedTuple

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rsscloud_broker.sources import bucket_of

#: Calls that hold a slot at a time, and calls under way in all.  A call may hold as many bytes
#: as a topic may have.
SLOTS, UNDER_WAY = 20, 200

#: Seconds after which a call without an answer gives its slot to the next.
SLOW_AFTER = 0.1

#: Seconds until the limiter looks again, at the least, and how many calls give their slots
#: away at a time.  Where the process itself is slow, the answers of many may have arrived:
#: to call still more would make it slower.
LEAST_PAUSE, AT_A_TIME = 0.01, 3

#: Sources that are looked at together for one that may call.  Where many thousands wait for
#: one busy host, the process has other things to do in between.
LOOK = 100

#: One slot in so many goes to a call that is not urgent, if one waits.
SHARE = 8


class HostQuota(NamedTuple):
    """How many calls of one kind may be under way at one host.

    :ivar kind: what the calls are for; each kind is counted by itself.
    :ivar limit: calls of that kind that may be under way there at a time.
    """

    kind: str
    host: str
    limit: int


@define(eq=False)
class Turn:
    """The turn of one call, for the sake of one source or of several.

    :ivar begun: whether the call has a slot, or had.
    :ivar sources: for whose sake; the keys of their buckets.
    """

    begun: bool = field(default=False, init=False)
    sources: dict[str, None] = field(factory=dict, init=False)
    _enqueue: Callable[[str], None] | None = field(default=None, init=False)

    @classmethod
    def of(cls, source: str) -> Turn:
        """A turn for the sake of one source."""
        turn = cls()
        turn.join(source)
        return turn

    def join(self, source: str) -> None:
        """Make the call for the sake of another source, too: it begins when the first of them
        has its turn.

        :param source: the address of whoever asked; empty for the broker itself.
        """
        key = bucket_of(source)
        if key in self.sources:
            return
        self.sources[key] = None
        if self._enqueue is not None:
            self._enqueue(key)


@define(eq=False)
class _Waiting:
    """A call that waits.  ``slot`` fires with the source whose turn it was."""

    turn: Turn
    quota: HostQuota
    slot: Deferred[str] = field(factory=Deferred, init=False)


class _Queue:
    """Calls that wait: round the sources, and round the quotas of each source."""

    def __init__(self) -> None:
        self._sources: OrderedDict[str, OrderedDict[HostQuota, dict[_Waiting, None]]] = (
            OrderedDict()
        )

    def __len__(self) -> int:
        return len(self._sources)

    def add(self, source: str, waiting: _Waiting) -> None:
        quotas = self._sources.setdefault(source, OrderedDict())
        quotas.setdefault(waiting.quota, {})[waiting] = None

    def remove(self, waiting: _Waiting) -> None:
        for source in waiting.turn.sources:
            quotas = self._sources.get(source)
            calls = quotas.get(waiting.quota) if quotas else None
            if not quotas or not calls or waiting not in calls:
                continue
            del calls[waiting]
            if not calls:
                del quotas[waiting.quota]
            if not quotas:
                del self._sources[source]

    def next(
        self, may_call: Callable[[str], bool], may_call_at: Callable[[str, HostQuota], bool]
    ) -> tuple[str, _Waiting] | None:
        """The call whose turn it is, and its source; None if none is found among the next
        ``LOOK`` sources.
        """
        for _ in range(min(len(self._sources), LOOK)):
            source, quotas = next(iter(self._sources.items()))
            self._sources.move_to_end(source)
            for _ in range(len(quotas) if may_call(source) else 0):
                quota, calls = next(iter(quotas.items()))
                quotas.move_to_end(quota)
                if may_call_at(source, quota):
                    return source, next(iter(calls))
        return None


class FairLimiter:
    """Gives slots to calls.

    :param slots: calls that hold a slot at a time.
    :param under_way: calls under way at a time, with those that gave their slots away.
    """

    def __init__(self, clock: IReactorTime, slots: int = SLOTS, under_way: int = UNDER_WAY) -> None:
        self._clock = clock
        self._slots = slots
        self._most = under_way
        self._holding: OrderedDict[Turn, float] = OrderedDict()  # slots, since when
        self._total = 0  # calls under way
        self._count: Counter[Hashable] = Counter()  # of each source, at each quota, and both
        self._urgent, self._others = _Queue(), _Queue()
        self._given = 0
        self._may_leave = 0  # slots that may be given away now
        self._alarm: IDelayedCall | None = None
        self._giving = False

    def __len__(self) -> int:
        """How much is kept of sources and quotas that have calls."""
        return len(self._count) + len(self._urgent) + len(self._others)

    @asynccontextmanager
    async def slot(
        self, turn: Turn, quota: HostQuota, *, urgent: bool = True
    ) -> AsyncIterator[None]:
        """Wait for a slot, and then make a call for as long as the context lasts.

        :param turn: one that has not waited yet.
        """
        waiting, queue = _Waiting(turn, quota), self._urgent if urgent else self._others

        def enqueue(source: str) -> None:
            queue.add(source, waiting)
            self._give()

        for source in turn.sources:
            queue.add(source, waiting)
        turn._enqueue = enqueue
        self._give()
        try:
            source = await waiting.slot
        except CancelledError:
            turn._enqueue = None
            queue.remove(waiting)
            raise
        try:
            yield
        finally:
            self._end(turn, source, quota)

    def _give(self) -> None:
        """Give slots to those whose turn it is, as long as there are any."""
        if self._giving:  # a call that is over at once leads back here
            return
        self._giving = True
        try:
            while (self._urgent or self._others) and self._has_room():
                found = self._next()
                if found is None:
                    if max(len(self._urgent), len(self._others)) > LOOK:
                        self._wake_after(LEAST_PAUSE)
                    break
                self._begin(*found)
        finally:
            self._giving = False

    def _next(self) -> tuple[str, _Queue, _Waiting] | None:
        queues = [self._urgent, self._others]
        if self._given % SHARE == SHARE - 1:
            queues.reverse()
        for queue in queues:
            found = queue.next(self._may_call, self._may_call_at)
            if found is not None:
                source, waiting = found
                return source, queue, waiting
        return None

    def _may_call(self, source: str) -> bool:
        return self._count[source] < self._most - self._total

    def _may_call_at(self, source: str, quota: HostQuota) -> bool:
        return self._count[source, quota] < quota.limit - self._count[quota]

    def _begin(self, source: str, queue: _Queue, waiting: _Waiting) -> None:
        turn = waiting.turn
        queue.remove(waiting)
        turn._enqueue = None
        turn.begun = True
        self._given += 1
        self._total += 1
        self._count.update((source, waiting.quota, (source, waiting.quota)))
        self._holding[turn] = self._clock.seconds()
        waiting.slot.callback(source)

    def _end(self, turn: Turn, source: str, quota: HostQuota) -> None:
        self._holding.pop(turn, None)
        self._total -= 1
        for key in (source, quota, (source, quota)):
            self._count[key] -= 1
            if not self._count[key]:
                del self._count[key]
        self._give()

    def _has_room(self) -> bool:
        """Whether there is a slot, or one that the call which has held it longest gives up."""
        if self._total >= self._most:
            return False
        if len(self._holding) < self._slots:
            return True
        longest, since = next(iter(self._holding.items()))
        left = since + SLOW_AFTER - self._clock.seconds()
        if left > 0 or not self._may_leave:
            self._wake_after(left)
            return False
        self._may_leave -= 1
        del self._holding[longest]
        return True

    def _wake_after(self, seconds: float) -> None:
        if self._alarm is None:
            self._alarm = self._clock.callLater(max(seconds, LEAST_PAUSE), self._wake)

    def _wake(self) -> None:
        self._alarm = None
        self._may_leave = AT_A_TIME
        self._give()
        self._may_leave = 0
