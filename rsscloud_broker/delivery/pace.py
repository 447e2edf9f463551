"""Says how many calls may be under way at a time, and after how many seconds a call is slow.

A call takes long for one of two reasons.  Its host may be slow: then other calls should not wait
for it.  Or this process may lack processor time: then every call takes long, and further calls
make the process still slower.  A timer tells the two apart, because it fires late if and only if
the process is slow.

So the number of calls at a time, the *window*, follows the timer as congestion control follows
lost packets.  The window shrinks by a third when the timer was late.  It grows by a quarter when
the timer was on time and calls had to wait.  While the window is smaller than its maximum, a call
is slow only if it takes several times as long as calls usually take at that time.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

#: Seconds between two looks.
TICK = 0.05

#: Seconds after which a call without an answer is slow: usually, and at most when the process
#: itself is slow.
SLOW_AFTER, SLOW_AFTER_AT_MOST = 0.1, 2.0

#: The window shrinks when the timer is late by more than this many seconds, and may grow when the
#: timer is late by less than half of them.
LATE = 0.05

#: The smallest window, unless even fewer calls are allowed, and the window at the start.
LEAST, FIRST = 16, 64


class AdaptiveWindow:
    """Adapts the window and the limit for slow calls.

    From ``start`` on, the timer fires every ``TICK`` seconds for as long as ``on_tick`` returns
    true.

    :param most: the largest window.
    :param on_tick: called each time that the timer fires; returns whether the timer goes on.
    :ivar window: how many calls may be under way at a time.
    :ivar slow_after: seconds, measured by ``time``, after which a call is slow.
    :ivar filled: whether a call had to wait for others since the timer last fired; the user of
        this class sets it.
    """

    def __init__(self, clock: IReactorTime, most: int, on_tick: Callable[[], bool]) -> None:
        self._clock = clock
        self._most = most
        self._least = min(LEAST, most)
        self._on_tick = on_tick
        self._timer: IDelayedCall | None = None
        # When the timer last fired: by the clock of ``time``, and by ``clock``.
        self._time = self._ticked_at = 0.0
        # How long a call usually takes; and, since the last tick, the sum for that many calls.
        self._usual = 0.0
        self._seconds = 0.0
        self._calls = 0
        self.window = min(FIRST, most)
        self.slow_after = SLOW_AFTER
        self.filled = False

    def limit(self, most: int) -> None:
        """Change the largest window."""
        self._most = most
        self._least = min(LEAST, most)
        self.window = min(self.window, most)

    def time(self, now: float) -> float:
        """Seconds on a clock that stands still while this process is too slow for the timer.

        The age of a call by this clock says how slow the called host is.

        :param now: what the clock shows.
        """
        if self._timer is None:
            return self._time
        return self._time + min(now - self._ticked_at, TICK)

    def start(self) -> None:
        """Start the timer."""
        if self._timer is None:
            self._ticked_at = self._clock.seconds()
            self._timer = self._clock.callLater(TICK, self._tick)

    def stop(self) -> None:
        """Stop the timer."""
        self._time = self.time(self._clock.seconds())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note_duration(self, seconds: float) -> None:
        """Add the duration of a call that was not slow to the usual duration."""
        self._seconds += seconds
        self._calls += 1

    def _tick(self) -> None:
        """Adapt the window and the limit for slow calls, by how late the timer is."""
        now = self._clock.seconds()
        self._time = self.time(now)
        late = now - self._ticked_at - TICK
        self._timer = None
        if late > LATE:
            self.window = max(self._least, self.window * 2 // 3)
        elif self.filled and late < LATE / 2:
            self.window = min(self._most, self.window + max(1, self.window // 4))
        self.filled = False
        if self._calls:
            lately = self._seconds / self._calls
            self._usual = 0.7 * self._usual + 0.3 * lately if self._usual else lately
            self._seconds, self._calls = 0.0, 0
        slow = self.window < self._most
        # When the process is slow, a call is slow after this many times the usual duration of a
        # call.
        usual = 4.0 * self._usual if slow else 0.0
        self.slow_after = min(max(SLOW_AFTER, usual), SLOW_AFTER_AT_MOST)
        if self._on_tick():
            self.start()
