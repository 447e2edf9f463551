"""Limits how often an account may do something."""

from __future__ import annotations

from collections import deque
from math import ceil

from rsscloud_broker.errors import TooMany
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.wire.units import MINUTE


class PerMinuteLimit:
    """Allows each account this many actions in any minute.

    :param actions: a name of the actions, in the plural, for the sentence of a refusal.
    """

    def __init__(self, clock: IClock, per_minute: int, actions: str) -> None:
        self._clock = clock
        self._per_minute = per_minute
        self._actions = actions
        # When each account acted.  The operator makes accounts, so there are never many.
        self._times: dict[int, deque[float]] = {}

    def take(self, account_id: int) -> None:
        """Count an action.

        :raises TooMany: there were too many in the last minute; this one is not counted.
        """
        now = self._clock.seconds()
        times = self._times.setdefault(account_id, deque())
        while times and times[0] <= now - MINUTE:
            times.popleft()
        if len(times) >= self._per_minute:
            wait = ceil(times[0] + MINUTE - now)
            raise TooMany(f"there were {self._per_minute} {self._actions} in the last minute", wait)
        times.append(now)
