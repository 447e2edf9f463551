"""The newest pings, for pages that show them to people.

Anybody may open such a page as often as they like.  So the store is asked once a second at most,
and all who ask meanwhile get the same answer.
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

#: Seconds for which an answer of the store is used.
FRESH: Final = 1.0


class RecentPings:
    """Reads the newest pings from the store, and remembers them for a second."""

    def __init__(self, store: IStore, clock: IClock) -> None:
        self._store = store
        self._clock = clock
        self._known: Sequence[Ping] = ()
        self._read_at = float("-inf")
        self._waiting: list[Deferred[Sequence[Ping]]] = []

    async def newest(self) -> Sequence[Ping]:
        """The newest pings, newest first; the same tuple until they are read again.

        :raises Unavailable: the store cannot be read.
        """
        if self._clock.seconds() - self._read_at < FRESH:
            return self._known
        waiter: Deferred[Sequence[Ping]] = Deferred()
        self._waiting.append(waiter)
        if len(self._waiting) == 1:
            Deferred.fromCoroutine(self._read())
        return await waiter

    async def _read(self) -> None:
        failed: Exception | None = None
        try:
            # A ping of this very moment is among them, however times are rounded.
            until = self._clock.wall_seconds() + 1
            self._known = tuple(await self._store.pings(0, until, None, RECENT))
            self._read_at = self._clock.seconds()
        except Exception as error:  # whoever waits is told
            failed = error
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(self._known if failed is None else Failure(failed))
