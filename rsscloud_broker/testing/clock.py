"""A clock that tests move, and that moves a little by itself."""

from __future__ import annotations

from twisted.internet import task
from zope.interface import implementer

from rsscloud_broker.interfaces import IClock

#: Seconds that pass at each reading: in the world two readings are never equal.
TICK = 1e-6


@implementer(IClock)
class Clock(task.Clock):
    """Twisted's test clock, with a wall clock beside the monotonic one.

    Each reading moves the time by ``TICK``, so code that needs two readings to be equal
    fails its tests.  The two clocks show different times, so code that mixes them up fails, too.

    :param wall: what the wall clock shows at first, in seconds since the epoch.
    """

    def __init__(self, wall: float = 1_000_000_000.0) -> None:
        super().__init__()
        self._wall = float(wall)

    def seconds(self) -> float:
        self.rightNow += TICK
        return self.rightNow

    def wall_seconds(self) -> float:
        """See ``IClock.wall_seconds``."""
        return self._wall + self.seconds()

    def set_wall(self, by: float) -> None:
        """Set the wall clock forward, or back if ``by`` is less than 0, as people do."""
        self._wall += by


class About(float):
    """A time that equals every time within a millisecond of it, for what tests expect.

    A time that is calculated from it by adding or subtracting seconds is such a time, too.
    """

    __hash__ = float.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int | float) and abs(float(self) - float(other)) < 0.001

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __add__(self, seconds: float) -> About:
        return About(float(self) + seconds)

    def __sub__(self, seconds: float) -> About:
        return About(float(self) - seconds)
