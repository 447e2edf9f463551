"""Remembers when the visits to the river began, so that what is new stays marked during a visit.

A visit ends when its account has not loaded the page for half an hour.  Until then the line stays
where it was, however often the page is loaded.  This is kept in memory only: after a restart of the
broker, a visit begins anew.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from attrs import frozen

from rsscloud_broker.interfaces import IClock

#: Seconds after which a visit is over.
VISIT: Final = 1800.0

#: How many visits are remembered; the oldest are forgotten.
MAX_VISITS: Final = 10_000


@frozen
class _Visit:
    """A visit.

    :ivar seen: the id of the newest item that was seen before it.
    :ivar at: when the page was last loaded.
    """

    seen: int
    at: float


class Visits:
    """The visits of all accounts."""

    def __init__(self, clock: IClock) -> None:
        self._clock = clock
        self._visits: OrderedDict[int, _Visit] = OrderedDict()

    def seen_before(self, account_id: int, seen: int) -> int:
        """What an account had seen before its visit, which begins now or goes on.

        :param seen: the id of the newest item that it has seen by now.
        """
        now = self._clock.seconds()
        visit = self._visits.pop(account_id, None)
        if visit is not None and now - visit.at <= VISIT:
            seen = visit.seen
        self._visits[account_id] = _Visit(seen, now)
        if len(self._visits) > MAX_VISITS:
            self._visits.popitem(last=False)
        return seen
