"""Fetches a topic once more that somebody asked for while it was fetched.

Whether a check was requested after a fetch began is seen by two times, and these may be of two
clocks: that of a node, or of a followed list, may be ahead.  Then every fetch would seem to have
begun too early.  So the first fetch more follows at once, and further ones after a pause.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from rsscloud_broker.core.waiting_checks import WaitingChecks
from rsscloud_broker.interfaces import IClock, IStore
from rsscloud_broker.records import Check, FetchRecord
from rsscloud_broker.store_retry import StoreRetry

#: Seconds until a topic is fetched that was asked for during each of two fetches.
PAUSE: Final = 1.0


class Again:
    """Sees to the checks that were requested while their topics were fetched.

    :param take: begins the fetch of a claimed check.
    """

    def __init__(
        self,
        store: IStore,
        clock: IClock,
        store_retry: StoreRetry,
        waiting: WaitingChecks,
        take: Callable[[Check], object],
    ) -> None:
        self._store = store
        self._clock = clock
        self._store_retry = store_retry
        self._waiting = waiting
        self._take = take
        self._fetched_again: set[str] = set()

    async def see_to(self, url: str, record: FetchRecord | None) -> None:
        """Have a topic fetched again if its check was requested meanwhile.

        :param url: the topic, which was fetched.
        :param record: what was recorded; None if nothing was.
        """
        check = None if record is None else record.asked_again
        if check is None:
            self._fetched_again.discard(url)
        elif url in self._fetched_again:
            self._fetched_again.discard(url)
            until = self._clock.wall_seconds() + PAUSE
            await self._store_retry(
                partial(self._store.put_off_check, url, 0, until), "topics that wait"
            )
            self._waiting.wake_at(until)
        else:
            self._fetched_again.add(url)
            self._waiting.add(url, "")
            self._take(check)
