"""Reads topics again that could not be read.

The store remembers that such a topic waits to be read; here is when that is tried again.  A
topic without subscribers is not read again: there is nobody to be told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rsscloud_broker.core.topic_reader import NOT_READ
from rsscloud_broker.errors import TopicEnded, TopicUnreadable
from rsscloud_broker.interfaces import IClock, IStore
from rsscloud_broker.store_retry import UNAVAILABLE_PAUSE, StoreRetry

#: Seconds until a topic is read again that could not be read, for each further attempt.
RETRIES = (5.0, 30.0, 120.0)

#: Seconds until a topic that could not be read is read again because of a ping, at the least.
SOONEST = 1.0


@define(eq=False)
class Retry:
    """A topic that could not be read, and waits to be read again.

    :ivar failed_at: when it was read the last time.
    :ivar delays: seconds to wait before the further attempts that are left.
    :ivar sources: who asked for it; see ``Turn.join``.
    :ivar pinged: whether somebody said that it changed, which no reading has answered.
    :ivar asked_again: whether it was asked for since it was read the last time.
    """

    url: str
    failed_at: float
    delays: Iterator[float]
    sources: set[str]
    pinged: bool
    asked_again: bool = False
    timer: IDelayedCall | None = field(default=None, init=False)


class Retries:
    """The topics that wait to be read again, each once.

    A ping may tell of a change: a topic that waits is read soon after the ping, and all its
    retries are ahead of it again.

    :param read: reads a topic again, and takes the retry first.
    :param delays: as for ``ChangeDetector``.
    """

    log = Logger()

    def __init__(
        self,
        store: IStore,
        clock: IClock,
        store_retry: StoreRetry,
        read: Callable[[str], object],
        delays: Sequence[float],
    ) -> None:
        self._store = store
        self._clock = clock
        self._store_retry = store_retry
        self._read = read
        self._delays = delays
        self._waiting: dict[str, Retry] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, url: str) -> bool:
        return url in self._waiting

    def failed(self, failed: Retry, error: TopicUnreadable, asked_until: float) -> None:
        """Plan the next attempt of a topic that could not be read, or give it up.

        :param asked_until: the checks that were requested until this time are given up.
        """
        if self._add(failed) is failed:
            Deferred.fromCoroutine(self._see_to(failed, error, asked_until))

    def later(self, retry: Retry) -> None:
        """Read a topic again after the first of the delays that are left."""
        if self._add(retry) is retry:
            self._wait(retry, next(retry.delays))

    def put_off(self, retry: Retry) -> None:
        """Read a topic again when the store may be there again."""
        if self._add(retry) is retry:
            self._wait(retry, UNAVAILABLE_PAUSE)

    def hear_of(self, url: str, source: str, *, pinged: bool) -> bool:
        """A topic is asked for.  True if it waits here: then it is read soon."""
        retry = self._waiting.get(url)
        if retry is None:
            return False
        retry.pinged |= pinged
        retry.sources.add(source)
        retry.asked_again = True
        if retry.timer is not None:
            retry.timer.cancel()
            self._read_soon(retry)
        return True

    def take(self, url: str) -> Retry | None:
        """Take a topic over that waits to be read again, since it is read now."""
        retry = self._waiting.pop(url, None)
        if retry is not None and retry.timer is not None and retry.timer.active():
            retry.timer.cancel()
        return retry

    def fresh(self) -> Iterator[float]:
        """The delays of a topic that was not tried yet."""
        return iter(self._delays)

    def stop(self) -> None:
        """Read nothing again; the store remembers."""
        for url in tuple(self._waiting):
            self.take(url)

    def _add(self, retry: Retry) -> Retry:
        """The retry of that topic that waits now: if there was one, it stays."""
        waiting = self._waiting.setdefault(retry.url, retry)
        waiting.pinged |= retry.pinged
        waiting.sources |= retry.sources
        return waiting

    async def _see_to(self, retry: Retry, error: TopicUnreadable, asked_until: float) -> None:
        try:
            delay = await self._store_retry(partial(self._next_delay, retry, error), retry.url)
            if delay is None and not retry.asked_again:
                drop = partial(self._store.drop_check, retry.url, asked_until)
                await self._store_retry(drop, retry.url)
        except CancelledError:
            return  # the service stops; the store remembers
        except Exception:  # a bug must not go unseen; the topic is looked up again later
            self.log.failure("Reading {url} again could not be planned.", url=retry.url)
            self._waiting.pop(retry.url, None)
            return
        if self._waiting.get(retry.url) is not retry:
            return  # it is read now, for another reason
        if retry.asked_again:
            self._read_soon(retry)
        elif delay is None:
            del self._waiting[retry.url]
        else:
            self._wait(retry, delay)

    async def _next_delay(self, retry: Retry, error: TopicUnreadable) -> float | None:
        """Seconds until a topic is tried again; None if it is given up."""
        if not (error.refused or isinstance(error, TopicEnded)):
            topic = await self._store.topic(retry.url)
            if topic is None or not topic.subscribers:
                self.log.debug("{error}; nobody subscribes to it.", error=error)
                return None
            delay = next(retry.delays, None)
            if delay is not None:
                self.log.warn(
                    "{error}; it is read again in {delay:.0f} s.", error=error, delay=delay
                )
                return delay
        if error.reason == NOT_READ:  # nobody has pinged it, or else that was refused
            return None
        self.log.warn("{error}; given up: its subscribers are not told of this ping.", error=error)
        return None

    def _read_soon(self, retry: Retry) -> None:
        retry.delays = self.fresh()
        self._wait(retry, max(retry.failed_at + SOONEST - self._clock.seconds(), 0.0))

    def _wait(self, retry: Retry, delay: float) -> None:
        retry.timer = self._clock.callLater(delay, self._read, retry.url)
