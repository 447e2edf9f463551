"""Decides when to fetch a topic again whose fetch failed, and whether at all.

The store keeps the check of the topic until the next attempt: see ``storage.checks``.  So the
attempts go on as planned after a restart, or by another node.  The broker does not retry a topic
without subscribers, because it would have nobody to notify.

Decision 0016 (``docs/decisions``) says why intents and notifications have schedulers of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from attrs import define
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from rsscloud_broker.core.topic_reader import NOT_READ
from rsscloud_broker.errors import EndedTopic, TopicUnreadable, Unavailable
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.storage import Store
from rsscloud_broker.util.retry import UNAVAILABLE_PAUSE, StoreRetry

#: Seconds before each further attempt to fetch a topic.
RETRIES = (5.0, 30.0, 120.0)


@define(eq=False)
class FetchRetries:
    """Puts off the checks of topics whose fetch failed, or withdraws them.

    When somebody pings a topic that waits, it may have changed.  So the store brings its next
    attempt forward, and it has all its attempts ahead of it again.

    :param wake_at: is called with the time at which a check is due.
    """

    log = Logger()

    _store: Store
    _clock: IClock
    _store_retry: StoreRetry
    _wake_at: Callable[[float], object]

    def plan(
        self, url: str, error: TopicUnreadable | Unavailable, failures: int, asked_until: float
    ) -> None:
        """Plan the next attempt to fetch a topic, or give the topic up if no attempt remains.

        :param error: why the fetch failed.
        :param failures: how many attempts had failed before.
        :param asked_until: when somebody last asked for the fetch, by the wall clock.  A topic that
            was asked for since is not given up, and is fetched soon.
        """
        if isinstance(error, Unavailable):  # no attempt has failed
            self.log.error("Reading {url} is put off: {error}", url=url, error=error)
            work = self._put_off(url, failures, UNAVAILABLE_PAUSE, asked_until)
        else:
            work = self._put_off_or_give_up(url, error, failures, asked_until)
        self._begin(url, work)

    def put_off(self, url: str) -> None:
        """Plan the next attempt to fetch a topic after the first one, which has just failed."""
        now = self._clock.wall_seconds()
        self._begin(url, self._put_off(url, 1, RETRIES[0], asked_until=now))

    def fetch_once_more(self, url: str, began_at: float) -> None:
        """Have a topic fetched again that was requested while it was fetched.

        That is seen by two times, which may be of two clocks: that of another node may be ahead,
        and then every fetch seems to have begun too early.  So a second passes from the begin of
        one fetch to the next.

        :param began_at: when the fetch began, by the wall clock.
        """
        delay = 1.0 + min(began_at - self._clock.wall_seconds(), 0.0)
        self._begin(url, self._put_off(url, 0, delay, began_at))

    def _begin(self, url: str, work: Coroutine[Deferred[Any], Any, None]) -> None:
        """Do some work in the store, for which nobody waits."""

        async def plan() -> None:
            try:
                await work
            except CancelledError:
                pass  # the service stops; the topic is fetched after the next start
            except Exception:  # log a bug; the check is found in the store again later
                self.log.failure("Reading {url} again could not be planned.", url=url)

        Deferred.fromCoroutine(plan())

    async def _put_off_or_give_up(
        self, url: str, error: TopicUnreadable, failures: int, asked_until: float
    ) -> None:
        """Put a check off until the next attempt; withdraw it if none remains."""
        delay = await self._store_retry(partial(self._next_delay, url, error, failures), url)
        if delay is None:
            await self._store_retry(partial(self._store.drop_check, url, asked_until), url)
            self._wake_at(self._clock.wall_seconds())  # it stays if it was asked for since
        else:
            await self._put_off(url, failures + 1, delay, asked_until)

    async def _put_off(self, url: str, failures: int, delay: float, asked_until: float) -> None:
        """Let the store keep a check until its next attempt, and how many attempts have failed."""
        until = self._clock.wall_seconds() + delay
        put_off = partial(self._store.put_off_check, url, failures, until, asked_until)
        due_at = await self._store_retry(put_off, url)
        if due_at is not None:
            self._wake_at(due_at)

    async def _next_delay(self, url: str, error: TopicUnreadable, failures: int) -> float | None:
        """Seconds until the next attempt to fetch a topic; None if it is given up."""
        if not (error.refused or isinstance(error, EndedTopic)):
            topic = await self._store.topic(url)
            if topic is None or not topic.subscribers:
                self.log.debug("{error}; nobody subscribes to it.", error=error)
                return None
            if failures < len(RETRIES):
                delay = max(RETRIES[failures], error.retry_after or 0.0)
                self.log.warn(
                    "{error}; it is read again in {delay:.0f} s.", error=error, delay=delay
                )
                return delay
        if error.reason == NOT_READ:  # nobody pinged it: the broker refuses such pings
            return None
        self.log.warn("{error}; given up: its subscribers do not hear of it.", error=error)
        return None
