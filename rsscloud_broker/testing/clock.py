"""The clock of tests: a test moves it, and each reading moves it a little too."""

from __future__ import annotations

from math import inf

from twisted.internet import task
from zope.interface import implementer

from rsscloud_broker.interfaces import IClock


@implementer(IClock)
class Clock(task.Clock):
    """Twisted's test clock, with a wall clock beside the monotonic one.

    Each reading moves the time by a microsecond, so code that needs two readings to be equal
    fails its tests.  The two clocks show different times, so code that mixes them up fails, too.

    :param wall: what the wall clock shows at first, in seconds since the epoch.
    """

    def __init__(self, wall: float = 1_000_000_000.0) -> None:
        super().__init__()
        self._wall = float(wall)

    def seconds(self) -> float:
        self.rightNow += 1e-6
        return self.rightNow

    def wall_seconds(self) -> float:
        """What the wall clock shows, in seconds since the epoch."""
        return self._wall + self.seconds()

    def advance_to_timer(self, least: float, most: float) -> None:
        """Let time pass until a timer is due.

        :param least: seconds that pass at least.
        :param most: seconds that pass at most.
        """
        due = min((call.getTime() for call in self.getDelayedCalls()), default=inf)
        self.advance(min(most, max(least, due - self.rightNow)))

    def set_wall(self, by: float) -> None:
        """Set the wall clock forward, or back if ``by`` is less than 0, as people do."""
        self._wall += by


class About(float):
    """An expected time in a test, which equals every time within a millisecond of it.

    To add or subtract seconds gives such a time again.
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
