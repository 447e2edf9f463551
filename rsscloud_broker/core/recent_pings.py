"""The newest pings, for pages that show them to people.

Anybody may open such a page as often as they like.  So the store is read once a second at most,
and all callers within that second get the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rsscloud_broker.interfaces import IClock, IStore
from rsscloud_broker.model import Ping

#: How many pings are shown.
RECENT: Final = 10

#: Seconds until the store is read again.
FRESH: Final = 1.0


class RecentPings:
    """Reads the newest pings from the store and caches them for ``FRESH`` seconds."""

    def __init__(self, store: IStore, clock: IClock) -> None:
        self._store = store
        self._clock = clock
        self._known: Sequence[Ping] = ()
        self._read_at = float("-inf")
        self._waiters: list[Deferred[Sequence[Ping]]] = []

    async def newest(self) -> Sequence[Ping]:
        """The newest pings, newest first; the same tuple until the store is read again.

        :raises Unavailable: the store cannot be read.
        """
        if self._clock.seconds() - self._read_at < FRESH:
            return self._known
        waiter: Deferred[Sequence[Ping]] = Deferred()
        self._waiters.append(waiter)
        if len(self._waiters) == 1:
            Deferred.fromCoroutine(self._read())
        return await waiter

    async def _read(self) -> None:
        failed: Exception | None = None
        try:
            # A second more, so that rounded times do not leave out a ping of this moment.
            until = self._clock.wall_seconds() + 1
            self._known = tuple(await self._store.pings(0, until, None, RECENT))
            self._read_at = self._clock.seconds()
        except Exception as error:  # each waiting caller gets it below
            failed = error
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.callback(self._known if failed is None else Failure(failed))
