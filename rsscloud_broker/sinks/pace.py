"""How fast the broker may go: how many calls at a time, and from when on one of them is slow.

Calls take long for two reasons.  A host may be slow: then others should not wait for it.  Or
this process may be slow, for want of processor time: then every call takes long, and to begin
still more of them makes it worse.  A timer tells the two apart, as it fires late if and only if
the process is slow.

So the number of calls at a time, the *window*, follows the timer as congestion control follows
lost packets: it shrinks by a third when the timer was late, and grows by a quarter when
the timer was on time and calls had to wait.  While it is smaller than it may be, a call
is only slow if it takes several times as long as calls take just now.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

#: Seconds between two looks.
TICK = 0.05

#: Seconds after which a call without an answer is slow, where the process is not; and at most.
SLOW_AFTER, SLOW_AFTER_AT_MOST = 0.1, 2.0

#: How many times as long as others a call may take where the process is slow.
TIMES_THE_USUAL = 4.0

#: Seconds by which the timer may be late before the window shrinks; below half of them it grows.
LATE = 0.05

#: The smallest window, unless fewer calls are allowed, and the window at first.
LEAST, FIRST = 16, 64


class Pace:
    """Says how many calls there may be at a time, and how long one may take.

    It looks each ``TICK`` from ``start`` on, as long as there is anything to look at.

    :param most: the largest window.
    :param look: called at each look; whether to look again.
    :ivar window: how many calls there may be at a time.
    :ivar slow_after: seconds, by ``time``, after which a call is slow.
    :ivar filled: whether calls had to wait for others since the last look; the user sets it.
    """

    def __init__(self, clock: IReactorTime, most: int, look: Callable[[], bool]) -> None:
        self._clock = clock
        self._most = most
        self._least = min(LEAST, most)
        self._look = look
        self._timer: IDelayedCall | None = None
        self._time = 0.0  # at the last look
        self._looked_at = 0.0
        self._usual = 0.0
        self._seconds = 0.0
        self._calls = 0
        self.window = min(FIRST, most)
        self.slow_after = SLOW_AFTER
        self.filled = False

    def time(self) -> float:
        """The time, in seconds, less that in which this process was too slow to look.

        The age of a call by this time says how slow the other side is.
        """
        if self._timer is None:
            return self._time
        return self._time + min(self._clock.seconds() - self._looked_at, TICK)

    def start(self) -> None:
        """Look from now on."""
        if self._timer is None:
            self._looked_at = self._clock.seconds()
            self._timer = self._clock.callLater(TICK, self._tick)

    def stop(self) -> None:
        """Look no more."""
        self._time = self.time()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def took(self, seconds: float) -> None:
        """Take in how long a call took that was not slow."""
        self._seconds += seconds
        self._calls += 1

    def _tick(self) -> None:
        self._time = self.time()
        late = self._clock.seconds() - self._looked_at - TICK
        self._timer = None
        if late > LATE:
            self.window = max(self._least, self.window * 2 // 3)
        elif self.filled and late < LATE / 2:
            self.window = min(self._most, self.window + max(1, self.window // 4))
        self.filled = False
        if self._calls:
            now = self._seconds / self._calls
            self._usual = 0.7 * self._usual + 0.3 * now if self._usual else now
            self._seconds, self._calls = 0.0, 0
        slow = self.window < self._most
        usual = TIMES_THE_USUAL * self._usual if slow else 0.0
        self.slow_after = min(max(SLOW_AFTER, usual), SLOW_AFTER_AT_MOST)
        if self._look():
            self.start()
