"""Circuit breakers: the broker stops calling what does not answer, for a while.

There is a breaker for each host, such as ``reader.example``, and one for each port of a host,
such as ``reader.example:8000``.  A call that times out says something of the host.  A call
that is refused says something of its port only: the host is there, and other ports of it may
be well.

A breaker opens after a few calls in a row without an answer.  The broker makes no call for a
minute then.  After that it lets one call through, the *probe*.  If that has no answer either,
the pause doubles, up to an hour.  Any answer, even a refusal, closes the breaker.

The states are in the store, so that a start does not begin with calling every dead host again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from attrs import define
from twisted.logger import Logger

from rsscloud_broker.counters import Counters
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.model import Callback, Outcome
from rsscloud_broker.records import HostState

#: Calls in a row without an answer after which a breaker opens.
THRESHOLD = 5

#: Seconds for which it is open at first, unless an option says otherwise, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0

#: Hosts and ports whose failures are remembered.
REMEMBERED = 100_000

#: Seconds after which the failures of a host that nobody called again are forgotten, at a start.
FORGOTTEN_AFTER = 86_400.0


@define
class _Breaker:
    """What is known of a host or a port that did not answer.

    :ivar failures: calls without an answer, in a row.
    :ivar retry_at: when a probe may be made, by the monotonic clock.
    :ivar probe: the caller that was let through, until it is known what came of its call.
    """

    failures: int = 0
    retry_at: float = 0.0
    probe: object | None = None

    @property
    def is_open(self) -> bool:
        return self.failures >= THRESHOLD


class Breakers:
    """The circuit breakers of all hosts.

    :param first_pause: seconds for which a breaker is open at first.
    :param changed: called when there is something new to be stored.
    :param closed: called with a host that answers again, and, if only one port of it did not
        answer, that as ``host:port``.
    """

    log = Logger()

    def __init__(
        self,
        clock: IClock,
        counters: Counters,
        changed: Callable[[], None],
        closed: Callable[[str, str], None] = lambda host, origin: None,
        first_pause: float = FIRST_PAUSE,
    ) -> None:
        self._clock = clock
        self._first_pause = first_pause
        self._tell_changed = changed
        self._tell_closed = closed
        self._breakers: OrderedDict[str, _Breaker] = OrderedDict()
        self._changed: dict[str, HostState] = {}
        counters.open_hosts.set_function(self._count_open)

    def _count_open(self) -> int:
        return sum(breaker.is_open for breaker in self._breakers.values())

    def restore(self, states: Iterable[HostState]) -> None:
        """Take in the states that were stored; what is known by now goes before."""
        now, wall = self._clock.seconds(), self._clock.wall_seconds()
        for one in states:
            if one.host in self._breakers:
                continue
            if one.retry_at < wall - FORGOTTEN_AFTER:
                self._forget(one.host)
                continue
            self._breakers[one.host] = _Breaker(one.failures, now + one.retry_at - wall)
            self._forget_the_oldest()

    def ask(self, callback: Callback, caller: object) -> float | None:
        """Ask to call a callback.

        Where the pause of a breaker is over, the first caller that asks is let through as the
        probe, and others not before it is known what came of its call.

        :returns: None if the caller may call; or when to ask again, by the monotonic clock.
        """
        opened = self._open(callback)
        if not opened:
            return None
        now = self._clock.seconds()
        until = max(breaker.retry_at for breaker in opened)
        if until > now:
            return until
        for breaker in opened:
            breaker.probe = caller
            breaker.retry_at = now + self._pause(breaker.failures)
        return None

    def stops(self, callback: Callback, caller: object) -> float | None:
        """Whether a breaker has opened since a caller was let through.

        :returns: None if the caller may still call; or when to ask again.
        """
        stopping = [one.retry_at for one in self._open(callback) if one.probe is not caller]
        return max(stopping, default=None)

    def give_back(self, callback: Callback, caller: object) -> None:
        """Say that a caller that was let through has not called: another one may, at once.

        For a caller that is not the probe, and after its call, this does nothing.
        """
        for breaker in self._open(callback):
            if breaker.probe is caller:
                breaker.probe = None
                breaker.retry_at = self._clock.seconds()

    def answered(self, callback: Callback) -> None:
        """Say that a callback gave an answer, whatever it was."""
        if self._breakers:
            self._close(callback.host, callback.host)
            self._close(callback.origin, callback.host, callback.origin)

    def failed(self, callback: Callback, outcome: Outcome) -> None:
        """Say that a callback gave no answer."""
        if outcome.port_only:
            self._close(callback.host, callback.host)  # it is there, and refused
        name = callback.origin if outcome.port_only else callback.host
        breaker = self._breakers.get(name)
        if breaker is None:
            breaker = self._breakers[name] = _Breaker()
            self._forget_the_oldest()
        elif breaker.is_open and breaker.probe is None:
            return  # that call was under way when the breaker opened
        self._breakers.move_to_end(name)
        breaker.failures += 1
        breaker.probe = None
        if breaker.is_open:
            pause = self._pause(breaker.failures)
            breaker.retry_at = self._clock.seconds() + pause
            until = self._clock.wall_seconds() + pause
            self.log.warn(
                "Stopped calling {name} after {failures} failures in a row ({reason}); next try "
                "at {until:%H:%M:%S} UTC.",
                name=name,
                failures=breaker.failures,
                reason=outcome.reason,
                until=datetime.fromtimestamp(until, UTC),
            )
            self._change(HostState(name, breaker.failures, until))

    def take_changes(self) -> list[HostState]:
        """What is to be stored since the last time this was asked."""
        changed, self._changed = self._changed, {}
        return list(changed.values())

    def _open(self, callback: Callback) -> list[_Breaker]:
        """The open breakers of a callback.  Asked for each notification, so it is quick where
        there are none.
        """
        if not self._breakers:
            return []
        found = (self._breakers.get(name) for name in (callback.host, callback.origin))
        return [breaker for breaker in found if breaker is not None and breaker.is_open]

    def _close(self, name: str, host: str, origin: str = "") -> None:
        breaker = self._breakers.pop(name, None)
        if breaker is not None and breaker.is_open:
            self.log.info("{name} answers again: it is called as before.", name=name)
            self._forget(name)
            self._tell_closed(host, origin)

    def _forget_the_oldest(self) -> None:
        if len(self._breakers) > REMEMBERED:
            name, breaker = self._breakers.popitem(last=False)
            if breaker.is_open:
                self._forget(name)

    def _forget(self, name: str) -> None:
        self._change(HostState(name, failures=0, retry_at=0.0))

    def _change(self, state: HostState) -> None:
        self._changed[state.host] = state
        self._tell_changed()

    def _pause(self, failures: int) -> float:
        doublings = min(failures - THRESHOLD, 10)
        return min(self._first_pause * 2.0**doublings, LONGEST_PAUSE)
