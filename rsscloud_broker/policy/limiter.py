"""Limits how many calls to strangers are under way, and shares them fairly.

Anybody may have the broker fetch a topic or verify a callback at any host, and a host may take
any time to answer.  So each such call waits for a slot:

- Slots go to the waiting sources in turn, and within a source to the hosts that it wants called,
  in turn.  A source is the address of the caller, or its network (see ``bucket_of``).  The
  calls that the broker makes on its own account count as one more source.
- Urgent calls go first, but one slot in ``SHARE`` goes to a call that is not urgent.
- A call that has no answer after a tenth of a second gives its slot to the next call, and
  goes on.
- A source never has more calls under way than are free for all others (see ``HostLimiter``).  So
  a source whose calls take long waits for its own calls, and delays nobody else.

The limiter never cancels a call because other calls wait.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractAsyncContextManager

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rsscloud_broker.policy.addresses import bucket_of
from rsscloud_broker.policy.host_limiter import HostLimiter, HostQuota

#: How many calls hold a slot at a time, and how many are under way in all.  Each call may hold a
#: whole topic in memory.
SLOTS, UNDER_WAY = 20, 200

#: The shortest time in seconds until the limiter looks again, and how many calls give their slots
#: away at each look.  When the process itself is slow, many answers may have arrived that it has
#: not read yet; further calls would make it still slower.
LEAST_PAUSE, AT_A_TIME = 0.01, 3

#: How many sources are examined at a time in search of one that may call.  When many thousands
#: wait for one busy host, the process does other work between the examinations.
LOOK = 100

#: One slot in ``SHARE`` goes to a call that is not urgent, if one waits.
SHARE = 8


@define(eq=False)
class Turn:
    """The place of one call in the queue.  Several sources may want the same call.

    :ivar begun: whether the call has been given a slot.
    :ivar withdrawn: whether the call is not wanted any more.
    :ivar sources: the sources that want the call; the keys of their buckets.
    """

    begun: bool = field(default=False, init=False)
    withdrawn: bool = field(default=False, init=False)
    sources: dict[str, None] = field(factory=dict, init=False)
    _call: _Call | None = field(default=None, init=False)  # which waits for a slot

    @classmethod
    def of(cls, source: str) -> Turn:
        """A turn of a call that one source wants."""
        turn = cls()
        turn.join(source)
        return turn

    def join(self, source: str) -> None:
        """Let another source want the call too.  The call begins when the first of its sources
        has its turn.

        :param source: the address of the caller; empty for the broker itself.
        """
        key = bucket_of(source)
        if key in self.sources:
            return
        self.sources[key] = None
        if self._call is not None:
            self._call.wait_for(key)

    def withdraw(self) -> None:
        """Say that the call is not wanted any more.  If it has not begun, it never begins: anyone
        who waits for its slot gets ``CancelledError``.
        """
        self.withdrawn = True
        if self._call is not None:
            self._call.slot.cancel()


class _Queue:
    """The calls that wait.  Sources take turns, and within a source its quotas take turns."""

    def __init__(self) -> None:
        self._sources: OrderedDict[str, OrderedDict[HostQuota, dict[_Call, None]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sources)

    def add(self, source: str, call: _Call) -> None:
        quotas = self._sources.setdefault(source, OrderedDict())
        quotas.setdefault(call.quota, {})[call] = None

    def remove(self, call: _Call) -> None:
        for source in call.turn.sources:
            quotas = self._sources.get(source)
            calls = quotas.get(call.quota) if quotas else None
            if not quotas or not calls or call not in calls:
                continue
            del calls[call]
            if not calls:
                del quotas[call.quota]
            if not quotas:
                del self._sources[source]

    def next(self, under_way: HostLimiter) -> tuple[str, _Call] | None:
        """The call whose turn it is, and its source.

        :param under_way: says which sources may call, and where.
        :returns: None if none of the next ``LOOK`` sources may call.
        """
        for _ in range(min(len(self._sources), LOOK)):
            source, quotas = next(iter(self._sources.items()))
            self._sources.move_to_end(source)
            if not under_way.has_capacity(source):
                continue
            for _ in range(len(quotas)):
                quota, calls = next(iter(quotas.items()))
                quotas.move_to_end(quota)
                if under_way.has_capacity_at(quota, source):
                    return source, next(iter(calls))
        return None


class FairLimiter:
    """Gives slots to calls.

    :param slots: how many calls hold a slot at a time.
    :param under_way: how many calls are under way at a time, including the slow calls that gave
        their slots away.
    """

    def __init__(self, clock: IReactorTime, slots: int = SLOTS, under_way: int = UNDER_WAY) -> None:
        self._clock = clock
        self._slots = self._all_slots = slots
        self._under_way = HostLimiter(under_way)
        self._holding: OrderedDict[Turn, float] = OrderedDict()  # who holds a slot, since when
        self._urgent, self._others = _Queue(), _Queue()
        self._number_given = 0
        self._may_leave = 0  # how many slots may be given away now
        self._alarm: IDelayedCall | None = None
        self._is_giving = False

    def set_node_count(self, nodes: int) -> None:
        """Divide the limits, which hold for all nodes together, among this many live nodes."""
        self._slots = max(1, self._all_slots // nodes)
        self._under_way.nodes = nodes
        self._give_slots()

    def __len__(self) -> int:
        """How many counts and sources are kept; 0 when no call waits or is under way."""
        return len(self._under_way) + len(self._urgent) + len(self._others)

    def slot(
        self, turn: Turn, quota: HostQuota, *, urgent: bool = True
    ) -> AbstractAsyncContextManager[None]:
        """Wait for a slot.  The call that gets it is under way for as long as the context lasts.

        :param turn: a turn that has not waited yet.
        :param quota: how many calls of this kind the host may have.
        """
        return _Call(self, turn, quota, self._urgent if urgent else self._others)

    def _give_slots(self) -> None:
        if self._is_giving:  # a call that ends at once calls this method again
            return
        self._is_giving = True
        try:
            while (self._urgent or self._others) and self._has_free_slot():
                found = self._find_next()
                if found is None:
                    if max(len(self._urgent), len(self._others)) > LOOK:
                        self._wake_after(LEAST_PAUSE)
                    break
                self._give_slot(*found)
        finally:
            self._is_giving = False

    def _find_next(self) -> tuple[str, _Call] | None:
        """The call whose turn it is, and its source; None if none may begin."""
        # One slot in ``SHARE`` is offered first to calls that are not urgent.
        if self._number_given % SHARE == SHARE - 1:
            return self._others.next(self._under_way) or self._urgent.next(self._under_way)
        return self._urgent.next(self._under_way) or self._others.next(self._under_way)

    def _give_slot(self, source: str, call: _Call) -> None:
        turn = call.turn
        call.queue.remove(call)
        turn._call = None
        turn.begun = True
        self._number_given += 1
        self._under_way.begin(call.quota, source)
        self._holding[turn] = self._clock.seconds()
        call.slot.callback(source)

    def _end_call(self, call: _Call) -> None:
        """Take the slot of a call that is over, if it still has one, and give it to others."""
        self._holding.pop(call.turn, None)
        self._under_way.release(call.quota, call.source)
        self._give_slots()

    def _has_free_slot(self) -> bool:
        """Whether a slot is free; if not, the slow call that has held one longest gives it up."""
        if not self._under_way.has_capacity():
            return False
        if len(self._holding) < self._slots:
            return True
        longest, since = next(iter(self._holding.items()))
        left = since + 0.1 - self._clock.seconds()  # until it is slow: after a tenth of a second
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
        """Look for slots of slow calls, of which ``AT_A_TIME`` may be given away now."""
        self._alarm = None
        self._may_leave = AT_A_TIME
        self._give_slots()
        self._may_leave = 0


@define(eq=False)
class _Call(AbstractAsyncContextManager[None]):
    """The context in which a call waits for its slot and is under way.

    It is not a generator: if the coroutine that waits here is dropped, Python may close the
    generator before the coroutine, which then fails.

    :ivar queue: where the call waits.
    :ivar slot: fires with the source whose turn it was, which is ``source`` from then on.
    """

    limiter: FairLimiter
    turn: Turn
    quota: HostQuota
    queue: _Queue
    slot: Deferred[str] = field(factory=Deferred, init=False)
    source: str = field(default="", init=False)

    async def __aenter__(self) -> None:
        turn = self.turn
        if turn.withdrawn:
            raise CancelledError
        for source in turn.sources:
            self.queue.add(source, self)
        turn._call = self
        self.limiter._give_slots()
        try:
            self.source = await self.slot
        except CancelledError:
            turn._call = None
            self.queue.remove(self)
            raise

    def wait_for(self, source: str) -> None:
        """Let another source wait for the same call: see ``Turn.join``."""
        self.queue.add(source, self)
        self.limiter._give_slots()

    async def __aexit__(self, *_: object) -> None:
        self.limiter._end_call(self)
