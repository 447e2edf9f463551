"""Decides when to fetch a topic again whose fetch failed.

The store remembers that the topic waits to be fetched.  This module keeps in memory when the broker
tries again, and how many attempts remain.  If very many topics wait for their next attempt, the
store keeps this for the others.  The broker does not retry a topic without subscribers, because it
would have nobody to notify.

After a restart every topic that waited in memory is read at once, with all attempts ahead of it: it
may have changed while the broker was down, and nobody knows when.

Decision 0016 (``docs/decisions``) says why intents and notifications have schedulers of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rsscloud_broker.core.topic_reader import NOT_READ
from rsscloud_broker.errors import EndedTopic, TopicUnreadable
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.model.ways import ChangeSource
from rsscloud_broker.storage import Store
from rsscloud_broker.util.retry import UNAVAILABLE_PAUSE, StoreRetry

#: Seconds before each further attempt to fetch a topic.
RETRIES = (5.0, 30.0, 120.0)


@define(eq=False)
class Retry:
    """A topic whose fetch failed, and that waits for the next attempt.

    :ivar failed_at: when its last fetch failed, on the monotonic clock.
    :ivar delays: the seconds before each remaining attempt.
    :ivar sources: the sources that requested the fetch; see ``Turn.join``.
    :ivar cause: why the topic is fetched; it has been pinged only if no fetch has succeeded since.
    :ivar asked_again: whether somebody requested a fetch of the topic since its last fetch.
    :ivar private: whether the topic has only private followers.
    """

    url: str
    failed_at: float
    delays: Iterator[float]
    sources: set[str]
    cause: ChangeSource
    asked_again: bool = False
    private: bool = False
    timer: IDelayedCall | None = field(default=None, init=False)


class FetchRetries:
    """The topics that wait for the next attempt to fetch them, each at most once.

    When somebody pings a topic that waits, it may have changed.  So the broker fetches it soon,
    and it has all its attempts ahead of it again.

    :param fetch: fetches a topic again; it first calls ``take``.
    :param delays: the seconds before each further attempt.
    :param put_off: is called with the time at which a check may be due that the store keeps.
    :param limit: how many topics wait in memory.
    """

    log = Logger()

    def __init__(
        self,
        store: Store,
        clock: IClock,
        store_retry: StoreRetry,
        fetch: Callable[[str], object],
        delays: Sequence[float],
        put_off: Callable[[float], object],
        limit: int = 2000,
    ) -> None:
        self._store = store
        self._note_due_at = put_off
        self._limit = limit
        self._clock = clock
        self._store_retry = store_retry
        self._fetch = fetch
        self._delays = delays
        self._waiting: dict[str, Retry] = {}  # by URL

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, url: str) -> bool:
        return url in self._waiting

    def __iter__(self) -> Iterator[str]:
        return iter(self._waiting)

    def plan_after_failure(self, failed: Retry, error: TopicUnreadable, asked_until: float) -> None:
        """Plan the next attempt to fetch a topic, or give the topic up if no attempt remains.

        :param asked_until: a topic that is given up no longer waits for the checks that were
            requested until this time of the wall clock.
        """
        if self._add(failed) is failed:
            Deferred.fromCoroutine(self._plan_or_give_up(failed, error, asked_until))

    def retry_later(self, retry: Retry) -> None:
        """Fetch a topic again after the first of its remaining delays."""
        if self._add(retry) is retry:
            self._set_timer(retry, next(retry.delays))

    def put_off(self, retry: Retry) -> None:
        """Fetch a topic again after a pause, because the store is unavailable."""
        if self._add(retry) is retry:
            self._set_timer(retry, UNAVAILABLE_PAUSE)

    def fetch_soon_if_waiting(self, url: str, source: str, cause: ChangeSource) -> bool:
        """Fetch a topic soon, if it waits here.

        :param source: the address of the client that requested the fetch.
        :param cause: why.
        :returns: whether the topic waits here, so that the caller need not fetch it.  Strangers are
            not notified that a topic waits for private followers: it is fetched for them at once.
        """
        retry = self._waiting.get(url)
        if retry is None or (retry.private and cause.way.is_open):
            return False
        retry.cause = retry.cause.joined(cause)
        retry.sources.add(source)
        retry.asked_again = True
        if retry.timer is not None:
            retry.timer.cancel()
            self._retry_soon(retry)
        return True

    def take(self, url: str) -> Retry | None:
        """Remove a topic from those that wait, because a fetch of it begins.

        :returns: the retry that was planned; None if the topic did not wait.
        """
        retry = self._waiting.pop(url, None)
        if retry is not None and retry.timer is not None and retry.timer.active():
            retry.timer.cancel()
        return retry

    def delays_after(self, failures: int) -> Iterator[float]:
        """The delays that are left after this many attempts have failed."""
        return iter(self._delays[failures:])

    def forget(self) -> None:
        """Cancel all retries.  The store remembers the topics that wait."""
        for url in tuple(self._waiting):
            self.take(url)

    def _add(self, retry: Retry) -> Retry:
        """Add a retry, unless its topic waits already: then the earlier retry stays.

        :returns: the retry that waits now.
        """
        waiting = self._waiting.setdefault(retry.url, retry)
        waiting.cause = waiting.cause.joined(retry.cause)
        waiting.sources |= retry.sources
        return waiting

    async def _plan_or_give_up(
        self, retry: Retry, error: TopicUnreadable, asked_until: float
    ) -> None:
        """Plan the next attempt after a failed fetch; withdraw the check if none remains.

        :param asked_until: when somebody last asked for the fetch that failed.
        """
        try:
            delay = await self._store_retry(partial(self._next_delay, retry, error), retry.url)
            if delay is None and not retry.asked_again:
                drop = partial(self._store.drop_check, retry.url, asked_until)
                await self._store_retry(drop, retry.url)
                self._note_due_at(self._clock.wall_seconds())  # it stays if it was asked for since
        except CancelledError:
            return  # the service stops; the store remembers the topic
        except Exception:  # a bug must be seen; the topic is looked up in the store again later
            self.log.failure("Reading {url} again could not be planned.", url=retry.url)
            self._waiting.pop(retry.url, None)
            return
        if self._waiting.get(retry.url) is not retry:
            return  # meanwhile the topic is fetched for another reason
        if retry.asked_again:
            self._retry_soon(retry)
        elif delay is None:
            del self._waiting[retry.url]
        elif len(self._waiting) > self._limit:
            del self._waiting[retry.url]
            await self._keep_in_store(retry, delay)
        else:
            self._set_timer(retry, delay)

    async def _keep_in_store(self, retry: Retry, delay: float) -> None:
        """Let the store keep a topic until its next attempt, and how many attempts have failed."""
        failures = len(self._delays) - len(tuple(retry.delays))
        due_at = self._clock.wall_seconds() + delay
        put_off = partial(self._store.put_off_check, retry.url, failures, due_at)
        with suppress(CancelledError):  # the service stops; the topic is read at its next start
            await self._store_retry(put_off, retry.url)
            self._note_due_at(due_at)

    async def _next_delay(self, retry: Retry, error: TopicUnreadable) -> float | None:
        """Seconds until the next attempt to fetch a topic; None if it is given up."""
        if not (error.refused or isinstance(error, EndedTopic)):
            topic = await self._store.topic(retry.url)
            if topic is None or not topic.subscribers:
                self.log.debug("{error}; nobody subscribes to it.", error=error)
                return None
            retry.private = not topic.is_public
            delay = next(retry.delays, None)
            if delay is not None:
                self.log.warn(
                    "{error}; it is read again in {delay:.0f} s.", error=error, delay=delay
                )
                return delay
        if error.reason == NOT_READ:  # nobody pinged it: the broker refuses such pings
            return None
        self.log.warn("{error}; given up: its subscribers do not hear of it.", error=error)
        return None

    def _retry_soon(self, retry: Retry) -> None:
        """Fetch a topic as soon as may be, with all its attempts ahead of it again."""
        retry.delays = self.delays_after(0)
        # A ping can cause the next fetch one second after a failed one.
        self._set_timer(retry, max(retry.failed_at + 1.0 - self._clock.seconds(), 0.0))

    def _set_timer(self, retry: Retry, delay: float) -> None:
        """Fetch a topic again after a delay."""
        retry.timer = self._clock.callLater(delay, self._fetch, retry.url)
