"""Remembers the pings that a target did not accept yet, and when each is passed on again.

It has their ids only; the pings are in the store.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define

from rsscloud_broker.interfaces import IClock
from rsscloud_broker.model.shared import WaitingPing


@define
class _Waiting:
    """A ping that waits, or that is being passed on.

    :ivar attempts: how many have failed.
    :ivar due: when it is passed on again, by the monotonic clock.
    """

    attempts: int
    due: float
    under_way: bool = False


class WaitingPings:
    """The pings of one target that are not done with.

    :param stored: those that the last process left.
    :param longest: the most seconds that one of them has to wait.
    """

    def __init__(self, clock: IClock, stored: Sequence[WaitingPing], longest: float) -> None:
        self._clock = clock
        now, wall = clock.seconds(), clock.wall_seconds()
        self._pings = {
            each.ping_id: _Waiting(
                each.attempts, now + min(max(each.retry_at - wall, 0.0), longest)
            )
            for each in stored
        }

    @property
    def is_full(self) -> bool:
        """Whether as many wait as may."""
        # Of more pings the newer ones stay in the store.
        return len(self._pings) >= 500

    def due(self) -> int | None:
        """The id of a ping that is to be passed on again now; None if none is."""
        now = self._clock.seconds()
        idle = ((each.due, key) for key, each in self._pings.items() if not each.under_way)
        due, key = min(idle, default=(now, 0))
        return key if due < now else None

    def until_due(self) -> float:
        """Seconds until the next one is due; infinite if none waits."""
        dues = (each.due for each in self._pings.values() if not each.under_way)
        return max(min(dues, default=float("inf")) - self._clock.seconds(), 0.0)

    def begin(self, ping_id: int) -> None:
        """Note that a ping is being passed on."""
        waiting = self._pings.setdefault(ping_id, _Waiting(0, self._clock.seconds()))
        waiting.under_way = True

    def attempts(self, ping_id: int) -> int:
        """How many attempts to pass a ping on have failed."""
        return self._pings[ping_id].attempts

    def put_off(self, ping_id: int, seconds: float, *, failed: bool) -> None:
        """Note that a ping is to be passed on again.

        :param seconds: until then.
        :param failed: whether the attempt counts as one that failed.
        """
        waiting = self._pings[ping_id]
        waiting.attempts += failed
        waiting.due = self._clock.seconds() + seconds
        waiting.under_way = False

    def done(self, ping_id: int) -> None:
        """Forget a ping, which was passed on or given up."""
        del self._pings[ping_id]

    def stored(self) -> tuple[WaitingPing, ...]:
        """What a later process needs to know.  What is under way counts as not yet tried."""
        ahead = self._clock.wall_seconds() - self._clock.seconds()
        return tuple(
            WaitingPing(key, each.attempts, each.due + ahead) for key, each in self._pings.items()
        )
