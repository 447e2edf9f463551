"""Remembers when the visits to the river began, so that what is new stays marked during a visit.

A visit ends when its account has not loaded the page for half an hour.  Until then the line stays
where it was, however often the page is loaded.  This is kept in memory only: after a restart of the
broker, a visit begins anew.
"""

from __future__ import annotations

from typing import Final

from rsscloud_broker.interfaces import IClock
from rsscloud_broker.util.caches import BoundedDict

#: Seconds after which a visit is over.
VISIT: Final = 1800.0

#: How many visits are remembered; the oldest are forgotten.
MAX_VISITS: Final = 10_000


class Visits:
    """The visits of all accounts."""

    def __init__(self, clock: IClock) -> None:
        self._clock = clock
        # What each account had seen before its visit, and when the page was last loaded.
        self._visits: BoundedDict[int, tuple[int, float]] = BoundedDict(MAX_VISITS)

    def seen_before(self, account_id: int, seen: int) -> int:
        """What an account had seen before its visit, which begins now or goes on.

        :param seen: the id of the newest item that it has seen by now.
        """
        now = self._clock.seconds()
        before, at = self._visits.get(account_id, (seen, now))
        if now - at > VISIT:
            before = seen
        self._visits[account_id] = before, now
        return before
