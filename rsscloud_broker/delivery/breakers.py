"""Circuit breakers: for a while the broker stops calling hosts that do not answer.

There is a breaker for each host, such as ``reader.example``, and one for each port of a host,
such as ``reader.example:8000``.  A call that times out counts against the host.  A call that is
refused counts against the port only: the host is up, and its other ports may answer.

A breaker opens after ``THRESHOLD`` calls in a row without an answer, and the broker makes no call
for a minute.  After that pause one probe is let through; all other calls wait for its result.
If the probe has no answer, the pause doubles, up to an hour.  Any answer, even an error, closes
the breaker.

``Attempts`` asks the breakers before each call.  Their states are stored, so that a restarted
broker does not call every dead host again.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime

from attrs import define
from twisted.logger import Logger

from rsscloud_broker.counters import Counters
from rsscloud_broker.events import Event, HostReachable, HostUnreachable
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.model import Callback, Outcome
from rsscloud_broker.model.work import HostState
from rsscloud_broker.util.backoff import backoff

#: How many calls in a row without an answer open a breaker.
THRESHOLD = 5

#: Seconds for which a breaker is open: at first, unless an option says otherwise, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0

#: How many hosts and ports that failed are remembered.
REMEMBERED = 100_000


@define
class _Breaker:
    """The breaker of a host or a port that did not answer.

    :ivar failures: how many calls in a row had no answer.
    :ivar retry_at: when a probe may be made, by the monotonic clock.
    :ivar probe: the caller of the probe, until the result of its call is known.
    :ivar stored: whether the store has it, as far as this process knows.
    """

    failures: int = 0
    retry_at: float = 0.0
    probe: object | None = None
    stored: bool = False

    @property
    def is_open(self) -> bool:
        return self.failures >= THRESHOLD


class Breakers:
    """The circuit breakers of all hosts.

    :ivar failing: how many breakers there are of each host, its ports included.  Where it has none,
        ``ask`` and the like have nothing to do, and a notification need not call them.
    :param first_pause: seconds for which a breaker is open at first.
    :param changed: is called when ``take_changes`` has something to return.
    :param closed: is called when a breaker closes, with the host; and with ``host:port``
        if the breaker was that of a port, else with an empty string.
    :param publish: is called with an event when a breaker opens or closes.
    """

    log = Logger()

    def __init__(
        self,
        clock: IClock,
        counters: Counters,
        changed: Callable[[], None],
        closed: Callable[[str, str], None] = lambda host, origin: None,
        first_pause: float = FIRST_PAUSE,
        publish: Callable[[Event], object] = lambda event: None,
    ) -> None:
        self._clock = clock
        self._publish = publish
        self._first_pause = first_pause
        self._tell_changed = changed
        self._tell_closed = closed
        self._breakers: OrderedDict[str, _Breaker] = OrderedDict()
        self.failing: Counter[str] = Counter()
        # By ``host`` or ``host:port``: the changes that ``take_changes`` returns next, and
        # in how many saves each is; and the names that ``own_changes`` has returned, until
        # ``follow`` is called.
        self._changed: dict[str, HostState] = {}
        self._being_saved: Counter[str] = Counter()
        self._own: set[str] | None = None
        counters.open_hosts.set_function(self._count_open)

    def _count_open(self) -> int:
        return sum(breaker.is_open for breaker in self._breakers.values())

    def restore(self, states: Iterable[HostState]) -> None:
        """Use the stored states of hosts, except those whose breakers are open here."""
        now, wall = self._clock.seconds(), self._clock.wall_seconds()
        for one in states:
            known = self._breakers.get(one.host)
            if known is not None and known.is_open:
                continue
            # Nobody needs a state whose pause ended a day ago.
            if one.retry_at < wall - 86_400.0:
                self._forget(one.host)
                continue
            # The wall clock may have been set back since the state was stored.
            pause = min(one.retry_at - wall, LONGEST_PAUSE)
            self._keep(one.host, _Breaker(one.failures, now + pause, stored=True))

    def own_changes(self) -> Collection[str]:
        """The hosts and ports whose state the store does not have yet.  Those that change from now
        on are added, until ``follow`` or this is called.
        """
        self._own = {*self._changed, *self._being_saved}
        return self._own

    def follow(self, states: Sequence[HostState], own: Collection[str] = ()) -> bool:
        """Use the stored states of hosts, which other nodes have changed.

        :param own: see ``own_changes``, as called before the states were read.  Of these, what this
            process knows is newer.
        :returns: whether a breaker has closed, since the store has it no more.
        """
        self._own = None
        open_ones = {one.host for one in states}
        closed = [
            name
            for name, breaker in self._breakers.items()
            if breaker.stored and name not in open_ones and name not in own
        ]
        for name in closed:
            self._remove(name)
            self.log.info("{name} answers another node again: it is called as before.", name=name)
        self.restore([one for one in states if one.host not in own])
        return bool(closed)

    def saved(self, states: Iterable[HostState]) -> None:
        """Say that the store has these states, which ``take_changes`` returned."""
        for one in states:
            self._end_saving(one.host)
            if one.host in self._breakers:
                self._breakers[one.host].stored = one.failures > 0

    def not_saved(self, states: Iterable[HostState]) -> None:
        """Say that the store could not take these states, which ``take_changes`` returned.  It will
        return them once more, unless they change.
        """
        for one in states:
            self._end_saving(one.host)
            self._changed.setdefault(one.host, one)

    def _end_saving(self, name: str) -> None:
        """Note that a state is not being stored any more; it may be in several saves at a time."""
        _count_one_less(self._being_saved, name)

    def ask(self, callback: Callback, caller: object) -> float | None:
        """Ask whether a callback may be called.

        After the pause of a breaker the first caller that asks is let through as the probe; all
        others wait for its result.

        :returns: None if the caller may call; or when to ask again, by the monotonic clock.
        """
        opened = self._open_breakers_of(callback)
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
        """Ask whether a breaker has opened since ``ask`` let a caller through.

        :returns: None if the caller may still call; or when to ask again, by the monotonic
            clock.
        """
        opened = self._open_breakers_of(callback)
        stopping = [one.retry_at for one in opened if one.probe is not caller]
        return max(stopping, default=None)

    def give_back(self, callback: Callback, caller: object) -> None:
        """Say that the caller of a probe has not called, so that another may call at once.

        It does nothing for other callers, or after the call.
        """
        for breaker in self._open_breakers_of(callback):
            if breaker.probe is caller:
                breaker.probe = None
                breaker.retry_at = self._clock.seconds()

    def answered(self, callback: Callback) -> None:
        """Close the breakers of a callback, which has answered, even if with an error."""
        self._close(callback.host, callback.host)
        self._close(callback.origin, callback.host, callback.origin)

    def free(self, host: str) -> None:
        """Close the breakers of a host and of all its ports, since an administrator says so."""
        closed = [name for name in self._breakers if name == host or name.startswith(f"{host}:")]
        for name in closed:
            if self._remove(name).is_open:
                self._forget(name)
        if closed:
            self.log.info("An administrator had {host} called again.", host=host)

    def failed(self, callback: Callback, outcome: Outcome) -> None:
        """Count that a callback gave no answer, which may open the breaker of its host or port."""
        if outcome.interrupted:
            return  # that says nothing of the host
        if outcome.port_only:
            self._close(callback.host, callback.host)  # a refusal shows that the host is up
        name = callback.origin if outcome.port_only else callback.host
        breaker = self._breakers.get(name)
        if breaker is None:
            breaker = _Breaker()
            self._keep(name, breaker)
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
            self._note_change(HostState(name, breaker.failures, until))
            port = _port_of(callback.origin) if outcome.port_only else None
            now = self._clock.wall_seconds()
            self._publish(
                HostUnreachable(callback.host, port, outcome.reason, breaker.failures, until, now)
            )

    def take_changes(self) -> list[HostState]:
        """The states that changed since the last call; the caller stores them."""
        changed, self._changed = self._changed, {}
        self._being_saved.update(changed.keys())
        return list(changed.values())

    def _open_breakers_of(self, callback: Callback) -> Sequence[_Breaker]:
        """The open breakers of a callback."""
        found = (self._breakers.get(name) for name in (callback.host, callback.origin))
        return [breaker for breaker in found if breaker is not None and breaker.is_open]

    def _close(self, name: str, host: str, origin: str = "") -> None:
        """Close a breaker by its name, the host or the origin, if there is one.

        :param origin: ``host:port`` if it is the breaker of a port; empty if it is the host's.
        """
        if name in self._breakers and self._remove(name).is_open:
            self.log.info("{name} answers again: it is called as before.", name=name)
            self._forget(name)
            self._tell_closed(host, origin)
            port = _port_of(origin) if origin else None
            self._publish(HostReachable(host, port, self._clock.wall_seconds()))

    def _keep(self, name: str, breaker: _Breaker) -> None:
        """Remember a breaker by its name; forget the oldest if there are too many."""
        if name not in self._breakers:
            self.failing.update(_hosts_of(name))
        self._breakers[name] = breaker
        if len(self._breakers) > REMEMBERED:
            oldest = next(iter(self._breakers))
            if self._remove(oldest).is_open:
                self._forget(oldest)

    def _remove(self, name: str) -> _Breaker:
        for host in _hosts_of(name):
            _count_one_less(self.failing, host)
        return self._breakers.pop(name)

    def _forget(self, name: str) -> None:
        """Have the store forget a breaker: a state without failures says that."""
        self._note_change(HostState(name, failures=0, retry_at=0.0))

    def _note_change(self, state: HostState) -> None:
        """Remember a state that is to be stored, and say that there is one."""
        self._changed[state.host] = state
        if self._own is not None:
            self._own.add(state.host)
        self._tell_changed()

    def _pause(self, failures: int) -> float:
        """Seconds for which a breaker is open after this many failures in a row."""
        return backoff(self._first_pause, failures - THRESHOLD, LONGEST_PAUSE)


def _hosts_of(name: str) -> tuple[str, str]:
    """The host of a breaker, by its name.  An address with colons may be taken for ``host:port``,
    so there are two: to ask for a host that has no breaker does no harm.
    """
    return name, name.rpartition(":")[0]


def _count_one_less(counts: Counter[str], name: str) -> None:
    """Count a name once less, and forget it at zero."""
    counts[name] -= 1
    if counts[name] <= 0:
        del counts[name]


def _port_of(origin: str) -> int:
    """The port in ``host:port``."""
    return int(origin.rpartition(":")[2])
