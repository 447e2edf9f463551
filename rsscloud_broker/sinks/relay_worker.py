"""Passes pings on to one target of the relay, in the order in which they were recorded.

The pings are read from the store, after the last one that is done with, whose id the store keeps.
So nothing waits in memory but the few pings that are just being passed on, and a restart goes on
where the last process ended: each ping is passed on at least once, and only those of the last
second twice.

A target that does not answer is called again after the waits of notifications, and all later pings
wait behind.  After five failures in a row it is left alone as hosts of callbacks are, for a minute
and then for longer and longer.  Pings that have become too old meanwhile are left out.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Final

from attrs import field, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rsscloud_broker.bounded_dict import BoundedDict
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import PingRelayed, RelayFailed, RelaySkipped
from rsscloud_broker.interfaces import SinkParts
from rsscloud_broker.model import Callback, Ping
from rsscloud_broker.records import RelayProgress
from rsscloud_broker.sinks.breakers import FIRST_PAUSE, LONGEST_PAUSE, THRESHOLD
from rsscloud_broker.sinks.relay_calls import Answer
from rsscloud_broker.store_retry import UNAVAILABLE_PAUSE, StoreRetry
from rsscloud_broker.together import together
from rsscloud_broker.wire.origin import has_passed

#: How many pings are read from the store at a time.
BATCH: Final = 200

#: Seconds between two reads while there are pings; and at most, while there are none.
PAUSE, LOOK = 0.1, 2.0

#: Seconds between two times that the progress is stored.
SAVE_EACH: Final = 1.0

#: How many pings are remembered by each target, to find repeats.
REMEMBERED: Final = 20_000

#: A call may begin so many seconds early, so that no timer is needed for so little; and a target
#: that was called late, since other work was done, is called more often for so many seconds.
SOON, CREDIT = 0.001, 0.1

#: A wait is longer by up to this part of it, at random.
JITTER: Final = 0.2


@frozen
class Rules:
    """Which pings are passed on to a target, and how.

    :ivar wants: whether the target is to be told of a ping, by the patterns of the operator.
    :ivar rate: calls a second, at most.
    :ivar at_once: how many calls may be under way.
    :ivar window: seconds within which a repeat of a ping is not passed on.
    :ivar max_age: seconds after which a ping is not passed on any more.
    :ivar retries: seconds to wait before each further attempt.
    """

    wants: Callable[[Ping], bool] = field(default=lambda ping: True)
    rate: float = 5.0
    at_once: int = 1
    window: float = 60.0
    max_age: float = 3600.0
    retries: tuple[float, ...] = (5.0, 30.0, 120.0, 600.0, 1800.0)


class Worker:
    """Passes pings on to one target.

    :param progress: how far the pings were passed on.
    :param target: the URL that is called, and by which protocol, for logs and counters.
    :param label: the target in counters and logs.
    :param call: passes one ping on; returns None if it has told itself what came of it.
    :param news: returns a Deferred that fires when there may be new pings.
    """

    log = Logger()

    def __init__(
        self,
        progress: RelayProgress,
        target: Callback,
        label: str,
        call: Callable[[Ping], Awaitable[Answer | None]],
        rules: Rules,
        parts: SinkParts,
        news: Callable[[], Deferred[None]],
    ) -> None:
        self.target = target
        self._progress = progress
        self._call = call
        self._rules = rules
        self._store = parts.store
        self._bus = parts.bus
        self._clock = parts.clock
        self._counted = partial(parts.counters.relays.labels, label)
        self._news = news
        self._where = target.url or label
        self._store_retry = StoreRetry(parts.clock, "Relaying")
        self._recent: BoundedDict[tuple[str, str, str], tuple[float, int]] = BoundedDict(REMEMBERED)
        self._done = progress.ping_id
        self._saved_at = self._next_at = 0.0
        self._failures = progress.failures
        self._not_before = self._restored(progress.retry_at)
        self._too_old = 0
        self._run: Deferred[None] | None = None
        self._over: Deferred[None] = Deferred()

    def _restored(self, retry_at: float | None) -> float:
        left = 0.0 if retry_at is None else retry_at - self._clock.wall_seconds()
        return self._clock.seconds() + min(max(left, 0.0), LONGEST_PAUSE)

    def start(self) -> None:
        """Begin to pass pings on."""
        self._run = Deferred.fromCoroutine(self._work())

    def stop(self) -> Deferred[None]:
        """Stop; the Deferred fires when the progress is stored."""
        self._store_retry.stop()
        if self._run is not None:
            self._run.cancel()
        return Deferred.fromCoroutine(self._end())

    async def _end(self) -> None:
        await self._over
        self._store_retry.stopped = True
        with suppress(CancelledError):  # the store is unavailable: some pings are passed on again
            await self._save()

    def free(self) -> None:
        """Call the target as if it had not failed, since an administrator says so."""
        self._failures, self._not_before = 0, 0.0

    async def _work(self) -> None:
        try:
            while True:
                try:
                    await self._pass_on_some()
                except CancelledError:
                    raise
                except Unavailable as error:
                    self.log.error(
                        "Relaying to {url} is put off: {error}", url=self._where, error=error
                    )
                    await deferLater(self._clock, UNAVAILABLE_PAUSE)
                except Exception:  # log a bug, and go on
                    self.log.failure("Relaying to {url} failed.", url=self._where)
                    await deferLater(self._clock, LOOK)
        except CancelledError:
            pass  # the service stops
        finally:
            self._over.callback(None)

    async def _pass_on_some(self) -> None:
        read = partial(self._store.pings_after, self._done, BATCH)
        pings = await self._store_retry(read, f"to {self._where}")
        if pings:
            await self._pass_on(pings)
        self._tell_too_old()
        if not pings:
            await self._save()
            await self._wait_for_news()
        if len(pings) < BATCH:  # so that pings that come one by one are not read one by one
            await deferLater(self._clock, PAUSE)

    async def _wait_for_news(self) -> None:
        news = self._news()
        news.addTimeout(LOOK, self._clock, onTimeoutCancel=lambda result, timeout: None)
        await news

    async def _pass_on(self, pings: Sequence[Ping]) -> None:
        wanted: list[Ping] = []
        for ping in pings:
            if self._is_wanted(ping):
                wanted.append(ping)
            if len(wanted) == self._rules.at_once or ping is pings[-1]:
                await together([self._deliver(each) for each in wanted])
                wanted = []
                self._done = ping.id
                if self._clock.seconds() - self._saved_at >= SAVE_EACH:
                    await self._save()

    async def _save(self) -> None:
        retry_at = None
        if self._failures:
            left = max(self._not_before - self._clock.seconds(), 0.0)
            retry_at = self._clock.wall_seconds() + left
        progress = RelayProgress(self._progress.name, self._done, self._failures, retry_at)
        if (progress.ping_id, progress.failures) == (
            self._progress.ping_id,
            self._progress.failures,
        ):
            return
        now = self._clock.wall_seconds()
        await self._store_retry(partial(self._store.record_relay, progress, now))
        self._progress, self._saved_at = progress, self._clock.seconds()

    # --- which pings

    def _is_wanted(self, ping: Ping) -> bool:
        """Whether a ping is passed on.  If so, it counts for the next repeats."""
        if not self._rules.wants(ping):
            return False
        if has_passed(ping.origin, self.target.url):
            self._counted("came_from_there").inc()
            return False
        if self._is_too_old(ping):
            return False
        key = (ping.name, ping.url, ping.rss_url)
        at, number = self._recent.get(key, (float("-inf"), 0))
        # The same ping comes again if passing it on failed.
        if number != ping.id and abs(ping.received_at - at) < self._rules.window:
            self._counted("repeated").inc()
            return False
        self._recent[key] = ping.received_at, ping.id
        return True

    def _is_too_old(self, ping: Ping) -> bool:
        if self._clock.wall_seconds() - ping.received_at <= self._rules.max_age:
            return False
        self._counted("too_old").inc()
        self._too_old += 1
        return True

    def _tell_too_old(self) -> None:
        if not self._too_old:
            return
        count, self._too_old = self._too_old, 0
        reason = f"they were more than {self._rules.max_age:g} seconds old"
        self.log.warn(
            "{count} pings were not passed on to {url}: {reason}.",
            count=count,
            url=self._where,
            reason=reason,
        )
        self._bus.publish(RelaySkipped(self.target, reason, count, self._clock.wall_seconds()))

    # --- one ping

    async def _deliver(self, ping: Ping) -> None:
        """Pass a ping on, or give it up in the end."""
        for wait in (*self._rules.retries, None):
            await self._turn()
            if self._is_too_old(ping):
                return
            began = self._clock.seconds()
            answer = await self._call(ping)
            if answer is None:
                return
            if answer.healthy:
                self._heard()
            now, url = self._clock.wall_seconds(), ping.rss_url or ping.url
            if answer.accepted:
                self._counted("delivered").inc()
                took = self._clock.seconds() - began
                self._bus.publish(PingRelayed(url, self.target, answer.text, took, now))
                return
            self._counted("failed").inc()
            if not answer.healthy:
                self._failed(answer)
            if not answer.again or wait is None:
                self._counted("given_up" if answer.again else "refused").inc()
                self._bus.publish(RelayFailed(url, self.target, answer.text, now))
                return
            longer = wait * random.uniform(1, 1 + JITTER)  # noqa: S311 # no secret
            pause = max(longer, answer.retry_after or 0.0)
            self._not_before = max(self._not_before, self._clock.seconds() + pause)
            left = self._not_before - self._clock.seconds()
            self._bus.publish(RelayFailed(url, self.target, answer.text, now, now + left))

    async def _turn(self) -> None:
        """Wait until the target may be called, for its rate and after its failures."""
        while True:
            now = self._clock.seconds()
            begin = max(self._not_before, self._next_at)
            if begin <= now + SOON:
                self._next_at = max(now - CREDIT, self._next_at) + 1 / self._rules.rate
                return
            await deferLater(self._clock, min(begin - now, LOOK))

    def _heard(self) -> None:
        if self._failures >= THRESHOLD:
            self.log.info("{url} answers again: pings are passed on to it.", url=self._where)
        self._failures = 0

    def _failed(self, answer: Answer) -> None:
        now = self._clock.seconds()
        if self._not_before > now:
            return  # this call was under way when another one failed
        self._failures += 1
        if self._failures < THRESHOLD:
            return
        pause = min(FIRST_PAUSE * 2.0 ** min(self._failures - THRESHOLD, 10), LONGEST_PAUSE)
        self._not_before = now + pause
        self.log.warn(
            "Stopped passing pings on to {url} after {failures} failures in a row ({reason}); "
            "next try at {until:%H:%M:%S} UTC.",
            url=self._where,
            failures=self._failures,
            reason=answer.text,
            until=datetime.fromtimestamp(self._clock.wall_seconds() + pause, UTC),
        )
