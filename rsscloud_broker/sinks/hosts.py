"""Remembers hosts that do not answer, and leaves them alone for a while.

A circuit breaker for each host: after a few calls in a row without any answer
the host is not called for a minute, then one call may try; if that has no
answer either, the pause doubles, up to an hour.  Any answer, even a refusal,
ends it.  The states are in the store, so that a restart does not begin with
calling every dead host again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from attrs import define

from rsscloud_broker.counters import Counters
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.model import HostState

#: Calls in a row without an answer after which a host is left alone.
THRESHOLD = 5

#: Seconds for which it is left alone at first, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0

#: Hosts whose failures are remembered.
REMEMBERED = 100_000

#: Seconds after which a host that nobody called again is forgotten, at a start.
FORGOTTEN_AFTER = 86_400.0


@define
class _Failing:
    """What is remembered of a host that did not answer.

    :ivar failures: calls without an answer, in a row.
    :ivar retry_at: when it may be called again.
    :ivar alone_since: when it was found that it is to be left alone, or when the
        last one was let through to try.
    :ivar tried: who was let through, while it is not known what came of that.
    """

    failures: int = 0
    retry_at: float = 0.0
    alone_since: float = 0.0
    tried: object | None = None

    @property
    def left_alone(self) -> bool:
        return self.failures >= THRESHOLD


class Hosts:
    """The hosts that do not answer.

    :param changed: called when there is something new to be stored.
    """

    def __init__(self, clock: IClock, counters: Counters, changed: Callable[[], None]) -> None:
        self._clock = clock
        self._tell = changed
        self._states: OrderedDict[str, _Failing] = OrderedDict()
        self._changed: dict[str, HostState] = {}
        counters.open_hosts.set_function(self._count_open)

    def _count_open(self) -> int:
        return sum(state.left_alone for state in self._states.values())

    def restore(self, states: Iterable[HostState]) -> None:
        """Take in the states that were stored; what is known by now goes before."""
        now, wall = self._clock.seconds(), self._clock.wall_seconds()
        for one in states:
            if one.host in self._states:
                continue
            if one.retry_at < wall - FORGOTTEN_AFTER:
                self._change(HostState(one.host, failures=0, retry_at=0.0))
                continue
            self._states[one.host] = _Failing(one.failures, now + one.retry_at - wall, now)
            self._forget_the_oldest()

    def closed_until(self, host: str, caller: object) -> float | None:
        """When a host may be called again; None if it may be called now.

        Where the pause of a host is over, one caller is let through, and others
        not before it is known what came of that, or that nothing did.
        """
        state = self._states.get(host)
        if state is None or not state.left_alone:
            return None
        now = self._clock.seconds()
        if state.retry_at > now:
            return state.retry_at
        state.tried = caller
        state.alone_since = now
        state.retry_at = now + _pause(state.failures)
        return None

    def closed_since(self, host: str, when: float) -> float | None:
        """As ``closed_until``, if that was found only after a time; lets nobody through."""
        state = self._states.get(host)
        if state is None or not state.left_alone or state.alone_since <= when:
            return None
        return state.retry_at

    def give_back(self, host: str, caller: object) -> None:
        """Who was let through has not called: another may, at once.

        For others, and after ``answered`` or ``failed``, this does nothing.
        """
        state = self._states.get(host)
        if state is not None and state.tried is caller:
            state.tried = None
            state.retry_at = self._clock.seconds()

    def answered(self, host: str) -> None:
        """A host gave an answer, whatever it was."""
        state = self._states.pop(host, None)
        if state is not None and state.left_alone:
            self._change(HostState(host, failures=0, retry_at=0.0))

    def failed(self, host: str) -> None:
        """A host gave no answer."""
        state = self._states.get(host)
        if state is None:
            state = self._states[host] = _Failing()
            self._forget_the_oldest()
        elif state.left_alone and state.tried is None:
            return  # that call was under way when the host was found not to answer
        self._states.move_to_end(host)
        state.failures += 1
        state.tried = None
        if state.left_alone:
            state.alone_since = self._clock.seconds()
            state.retry_at = state.alone_since + _pause(state.failures)
            pause = _pause(state.failures)
            self._change(HostState(host, state.failures, self._clock.wall_seconds() + pause))

    def _forget_the_oldest(self) -> None:
        if len(self._states) > REMEMBERED:
            host, state = self._states.popitem(last=False)
            if state.left_alone:
                self._change(HostState(host, failures=0, retry_at=0.0))

    def _change(self, state: HostState) -> None:
        self._changed[state.host] = state
        self._tell()

    def take_changes(self) -> list[HostState]:
        """What is to be stored since the last time this was asked."""
        changed, self._changed = self._changed, {}
        return list(changed.values())


def _pause(failures: int) -> float:
    doublings = min(failures - THRESHOLD, 10)
    return min(FIRST_PAUSE * 2.0**doublings, LONGEST_PAUSE)
