"""Fetches a topic once more that somebody asked for while it was fetched.

Whether a check was requested after a fetch began is seen by two times, and these may be of two
clocks: that of a node, or of a followed list, may be ahead.  Then every fetch would seem to have
begun too early.  So the first fetch more follows at once, and further ones after a pause.
"""

from __future__ import annotations

from functools import partial

from rsscloud_broker.core.waiting_checks import WaitingChecks
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.model.work import FetchRecord
from rsscloud_broker.storage import Store
from rsscloud_broker.util.caches import BoundedDict
from rsscloud_broker.util.retry import StoreRetry


class Refetches:
    """Has topics fetched again whose checks were requested while they were fetched."""

    def __init__(
        self,
        store: Store,
        clock: IClock,
        store_retry: StoreRetry,
        waiting: WaitingChecks,
    ) -> None:
        self._store = store
        self._clock = clock
        self._store_retry = store_retry
        self._waiting = waiting
        # Whether a topic was just fetched once more, so that a further fetch waits; and the number
        # of topics that are remembered.
        self._fetched_again: BoundedDict[str, bool] = BoundedDict(10_000)

    async def fetch_if_asked_again(self, url: str, record: FetchRecord | None) -> None:
        """Have a topic fetched again if its check was requested meanwhile.

        :param url: the topic, which was fetched.
        :param record: what was recorded; None if nothing was.
        """
        check = None if record is None else record.asked_again
        is_second = self._fetched_again.get(url, False)
        if is_second or check is not None:
            self._fetched_again[url] = check is not None and not is_second
        if check is None:
            return
        if not is_second:
            self._waiting.take(check)
            return
        # Seconds until a topic is fetched that was asked for during each of two fetches.
        until = self._clock.wall_seconds() + 1.0
        await self._store_retry(
            partial(self._store.put_off_check, url, 0, until), "topics that wait"
        )
        self._waiting.wake_at(until)
