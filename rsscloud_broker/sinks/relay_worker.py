"""Passes pings on to one target of the relay.

The pings are read from the store, after the last one that was begun with, whose id the store keeps.
They are begun with in the order in which they were recorded, and several may be under way at the
same time.  A ping that the target does not accept now is passed on again, by itself, after the
waits of notifications; later pings go on meanwhile.  The store keeps which pings wait, together
with that id.  So a restart goes on where the last process ended: each ping is passed on at least
once, and only those of the last second twice.

After five failures in a row the target is left alone as hosts of callbacks are, for a minute and
then for longer and longer.  Pings that have become too old meanwhile are left out.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rsscloud_broker.delivery.breakers import FIRST_PAUSE, LONGEST_PAUSE, THRESHOLD
from rsscloud_broker.delivery.outcomes import JITTER
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import PingRelayed, RelayFailed, RelaySkipped
from rsscloud_broker.interfaces import SinkParts
from rsscloud_broker.model import Callback, Ping
from rsscloud_broker.model.shared import RelayProgress
from rsscloud_broker.sinks.relay_calls import RelayAnswer
from rsscloud_broker.sinks.relay_waiting import WaitingPings
from rsscloud_broker.storage import Store
from rsscloud_broker.util.backoff import backoff
from rsscloud_broker.util.caches import BoundedDict
from rsscloud_broker.util.deferreds import returns_deferred
from rsscloud_broker.util.retry import UNAVAILABLE_PAUSE, StoreRetry
from rsscloud_broker.wire.origin import has_passed

#: How many pings are read from the store at a time.
BATCH: Final = 200

#: Seconds between two reads while there are pings; and at most, while there are none.
PAUSE, LOOK = 0.1, 2.0

#: Seconds by which a call may begin early, so that no timer is needed for so little; and seconds
#: for which a target is called more often that was called late, since other work was done.
SOON, CREDIT = 0.001, 0.1

#: If a timer is late by this many seconds, the process has too much to do, and notifications go
#: first: then the next call waits for this many times as long, but at most for some seconds.  After
#: that some calls are made at once, for ``CREDIT``, so that a target is never left out.
LATE, REST, LONGEST_REST = 0.05, 10.0, 1.0

#: Seconds after which a ping is not passed on any more: by then it is no news.
MAX_AGE: Final = 3600.0

#: Seconds to wait before each further attempt to pass a ping on, all of them within ``MAX_AGE``.
RETRIES: Final = (5.0, 30.0, 120.0, 600.0, 1800.0)


class Worker:
    """Passes pings on to one target.

    :param progress: how far the pings were passed on.
    :param target: the URL that is called, and by which protocol, for logs and counters.
    :param label: the target in counters and logs.
    :param call: passes one ping on; returns None if it has published what came of it.
    :param wants: whether the target is to get a ping.
    :param rate: calls a second, at most.
    :param at_once: how many calls may be under way.
    :param window: seconds within which a repeat of a ping is not passed on.
    """

    log = Logger()

    def __init__(
        self,
        progress: RelayProgress,
        target: Callback,
        label: str,
        call: Callable[[Ping], Awaitable[RelayAnswer | None]],
        parts: SinkParts,
        *,
        wants: Callable[[Ping], bool],
        rate: float,
        at_once: int,
        window: float,
    ) -> None:
        self.target = target
        self._progress = progress
        self._call = call
        self._wants, self._rate, self._at_once, self._window = wants, rate, at_once, window
        self._store: Store = parts.store
        self._bus = parts.bus
        self._clock = parts.clock
        self._counter_of = partial(parts.counters.relays.labels, label)
        parts.counters.begin_target(label)
        self._where = target.url or label
        self._store_retry = StoreRetry(parts.clock, "Relaying")
        # How many pings are remembered by each target, to find repeats.
        self._recent: BoundedDict[tuple[str, str, str], float] = BoundedDict(20_000)
        self._last_begun = progress.ping_id
        self._upcoming: deque[Ping] = deque()
        longest = max(RETRIES, default=0.0) * (1 + JITTER)
        self._waiting = WaitingPings(parts.clock, progress.waiting, longest)
        # Whether the last ping was one that was due again; whether the log says that too many wait.
        self._was_due_again = self._is_full = False
        self._calls: set[Deferred[None]] = set()
        self._call_over: Deferred[None] | None = None
        self._sleeping: Deferred[None] | None = None
        self._saved_at = self._read_at = self._next_at = 0.0
        self._failures = progress.failures
        self._not_before = self._resumed_pause(progress.retry_at)
        self._too_old = 0
        self._run: Deferred[None] | None = None
        self._work_over: Deferred[None] = Deferred()

    def _resumed_pause(self, retry_at: float | None) -> float:
        """Until when the target is left alone, by the monotonic clock.

        :param retry_at: the stored time, by the wall clock; None if it may be called.
        """
        left = 0.0 if retry_at is None else retry_at - self._clock.wall_seconds()
        return self._clock.seconds() + min(max(left, 0.0), LONGEST_PAUSE)

    def start(self) -> None:
        """Begin to pass pings on."""
        self._run = Deferred.fromCoroutine(self._work())

    @returns_deferred
    async def stop(self) -> None:
        """Stop the work, then cancel the calls that are under way, and store the progress."""
        self._store_retry.stop()
        if self._run is not None:
            self._run.cancel()
        await self._work_over
        for call in tuple(self._calls):  # they are made again after the next start
            call.cancel()
        self._store_retry.stopped = True
        with suppress(CancelledError):  # the store is unavailable: some pings are passed on again
            await self._save()

    def wake(self) -> None:
        """Look for new pings now."""
        sleeping, self._sleeping = self._sleeping, None
        if sleeping is not None:
            sleeping.callback(None)

    def free(self) -> None:
        """Call the target as if it had not failed, since an administrator says so."""
        self._failures, self._not_before = 0, 0.0

    async def _work(self) -> None:
        """Begin to pass on one ping after the other until the service stops."""
        try:
            while True:
                try:
                    await self._begin_one()
                except CancelledError:
                    raise
                except Unavailable as error:
                    self._log_put_off(error)
                    await deferLater(self._clock, UNAVAILABLE_PAUSE)
                except Exception:  # log a bug, and go on
                    self.log.failure("Relaying to {url} failed.", url=self._where)
                    await deferLater(self._clock, LOOK)
        except CancelledError:
            pass  # the service stops
        finally:
            self._work_over.callback(None)

    async def _begin_one(self) -> None:
        """Begin to pass one more ping on."""
        while len(self._calls) >= self._at_once:
            self._call_over = Deferred()
            await self._call_over
        ping = await self._wait_for_next()
        await self._wait_for_turn()
        if self._is_too_old(ping):
            self._waiting.done(ping.id)
            return
        call = Deferred.fromCoroutine(self._pass_on(ping))
        self._calls.add(call)
        call.addBoth(self._end_call, call)
        await self._save_now_and_then()

    def _end_call(self, result: object, call: Deferred[None]) -> None:
        """Forget a call that is over, and look for the next ping."""
        self._calls.discard(call)
        over, self._call_over = self._call_over, None
        if over is not None:
            over.callback(None)
        self.wake()  # the ping may be due again, or there is room for another

    # --- the next ping

    async def _wait_for_next(self) -> Ping:
        """Wait for the next ping.  Pings that are due again take turns with new ones."""
        while True:
            is_turn_of_new = self._was_due_again and bool(self._upcoming)
            ping = None if is_turn_of_new else await self._read_due()
            self._was_due_again = ping is not None
            ping = ping or await self._read_new()
            if ping is not None:
                self._waiting.begin(ping.id)
                return ping
            self._report_too_old()
            await self._save_now_and_then()
            await self._sleep()

    async def _read_due(self) -> Ping | None:
        """A ping that is to be passed on again now; None if there is none."""
        while (key := self._waiting.due()) is not None:
            read = partial(self._store.pings_by_id, [key])
            for ping in await self._store_retry(read, f"to {self._where}"):
                if not self._is_too_old(ping):
                    return ping
            self._waiting.done(key)  # it is too old, or was deleted
        return None

    async def _read_new(self) -> Ping | None:
        """A new ping; None if there is none, or if there is no room for one."""
        if self._waiting.is_full:
            if not self._is_full:  # it is logged once until there is room
                self._is_full = True
                self.log.warn(
                    "As many pings wait for {url} as may; newer ones are passed on when some of "
                    "these are done with.",
                    url=self._where,
                )
            return None
        self._is_full = False
        if not self._upcoming and self._clock.seconds() >= self._read_at:
            read = partial(self._store.pings_after, self._last_begun, BATCH)
            self._upcoming.extend(await self._store_retry(read, f"to {self._where}"))
            # So that pings that come one by one are not read one by one.
            pause = PAUSE if len(self._upcoming) < BATCH else 0.0
            self._read_at = self._clock.seconds() + pause
        while self._upcoming:
            ping = self._upcoming.popleft()
            self._last_begun = ping.id
            if self._is_wanted(ping):
                return ping
        return None

    async def _sleep(self) -> None:
        """Wait until there may be a ping: a new one, or one that is due again."""
        pause = self._read_at - self._clock.seconds()
        if pause > 0:
            await deferLater(self._clock, pause)
            return
        self._sleeping = Deferred()
        self._sleeping.addTimeout(
            min(LOOK, self._waiting.until_due()),
            self._clock,
            onTimeoutCancel=lambda result, timeout: None,
        )
        try:
            await self._sleeping
        finally:
            self._sleeping = None

    def _log_put_off(self, error: Unavailable) -> None:
        self.log.error("Relaying to {url} is put off: {error}", url=self._where, error=error)

    async def _save_now_and_then(self) -> None:
        # Seconds between two times that the progress is stored.
        if self._clock.seconds() - self._saved_at >= 1.0:
            await self._save()

    async def _save(self) -> None:
        """Store the progress, if it differs from what is stored."""
        retry_at = None
        if self._failures:
            left = max(self._not_before - self._clock.seconds(), 0.0)
            retry_at = self._clock.wall_seconds() + left
        progress = RelayProgress(
            self._progress.name, self._last_begun, self._failures, retry_at, self._waiting.stored()
        )
        if _outstanding(progress) == _outstanding(self._progress):
            return  # at about the same times
        now = self._clock.wall_seconds()
        await self._store_retry(partial(self._store.record_relay, progress, now))
        self._progress, self._saved_at = progress, self._clock.seconds()

    # --- which pings

    def _is_wanted(self, ping: Ping) -> bool:
        """Whether a new ping is passed on.  If so, it counts for the next repeats."""
        if not self._wants(ping):
            return False
        if has_passed(ping.origin, self.target.url):
            self._counter_of("came_from_there").inc()
            return False
        if self._is_too_old(ping):
            return False
        key = (ping.name, ping.url, ping.rss_url)
        if abs(ping.received_at - self._recent.get(key, float("-inf"))) < self._window:
            self._counter_of("repeated").inc()
            return False
        self._recent[key] = ping.received_at
        return True

    def _is_too_old(self, ping: Ping) -> bool:
        """Whether a ping is no news any more; then it is counted."""
        if self._clock.wall_seconds() - ping.received_at <= MAX_AGE:
            return False
        self._counter_of("too_old").inc()
        self._too_old += 1
        return True

    def _report_too_old(self) -> None:
        """Log how many pings were too old since the last report, and publish an event."""
        if not self._too_old:
            return
        count, self._too_old = self._too_old, 0
        reason = f"they were more than {MAX_AGE:g} seconds old"
        self.log.warn(
            "{count} pings were not passed on to {url}: {reason}.",
            count=count,
            url=self._where,
            reason=reason,
        )
        self._bus.publish(RelaySkipped(self.target, reason, count, self._clock.wall_seconds()))

    # --- one ping

    async def _pass_on(self, ping: Ping) -> None:
        """Pass a ping on once, and say what is to become of it."""
        began = self._clock.seconds()
        try:
            answer = await self._call(ping)
        except CancelledError:
            return  # the service stops
        except Unavailable as error:
            self._log_put_off(error)
            self._waiting.put_off(ping.id, UNAVAILABLE_PAUSE, failed=False)
            return
        except Exception:  # log a bug; the next pings may be passed on
            self.log.failure("Relaying to {url} failed.", url=self._where)
            self._waiting.done(ping.id)
            return
        if answer is None:
            self._waiting.done(ping.id)
            return
        if answer.healthy:
            if self._failures >= THRESHOLD:
                self.log.info("{url} answers again: pings are passed on to it.", url=self._where)
            self._failures = 0
        if answer.accepted:
            self._waiting.done(ping.id)
            self._counter_of("delivered").inc()
            now = self._clock.wall_seconds()
            took = self._clock.seconds() - began
            url = ping.rss_url or ping.url
            self._bus.publish(PingRelayed(url, self.target, answer.text, took, now))
            return
        self._counter_of("failed").inc()
        if not answer.healthy:
            self._note_failure(answer)
        self._try_again(ping, answer)

    def _try_again(self, ping: Ping, answer: RelayAnswer) -> None:
        """Put a ping off that was not accepted, or give it up."""
        now, url = self._clock.wall_seconds(), ping.rss_url or ping.url
        waits = RETRIES[self._waiting.attempts(ping.id) :]
        if not answer.again or not waits:
            self._waiting.done(ping.id)
            self._counter_of("given_up" if answer.again else "refused").inc()
            self._bus.publish(RelayFailed(url, self.target, answer.text, now))
            return
        pause = waits[0] * random.uniform(1, 1 + JITTER)  # noqa: S311 # no secret
        self._waiting.put_off(ping.id, pause, failed=True)
        left = max(pause, self._not_before - self._clock.seconds())
        self._bus.publish(RelayFailed(url, self.target, answer.text, now, now + left))

    async def _wait_for_turn(self) -> None:
        """Wait until the target may be called, for its rate and after its failures."""
        while True:
            now = self._clock.seconds()
            begin = max(self._not_before, self._next_at)
            if begin <= now + SOON:
                self._next_at = max(now - CREDIT, self._next_at) + 1 / self._rate
                return
            pause = min(begin - now, LOOK)
            await deferLater(self._clock, pause)
            late = self._clock.seconds() - now - pause
            if late > LATE:
                await deferLater(self._clock, min(late * REST, LONGEST_REST))

    def _note_failure(self, answer: RelayAnswer) -> None:
        """Note a call without a proper answer; leave the target alone after several in a row."""
        now = self._clock.seconds()
        if self._not_before > now:
            return  # this call was under way when another one failed
        self._failures += 1
        if answer.retry_after is not None:
            self._not_before = now + answer.retry_after
        if self._failures < THRESHOLD:
            return
        pause = backoff(FIRST_PAUSE, self._failures - THRESHOLD, LONGEST_PAUSE)
        pause = max(pause, answer.retry_after or 0.0)
        self._not_before = now + pause
        self.log.warn(
            "Stopped passing pings on to {url} after {failures} failures in a row ({reason}); "
            "next try at {until:%H:%M:%S} UTC.",
            url=self._where,
            failures=self._failures,
            reason=answer.text,
            until=datetime.fromtimestamp(self._clock.wall_seconds() + pause, UTC),
        )


def _outstanding(progress: RelayProgress) -> tuple[object, ...]:
    """What is to be done, no matter when."""
    waiting = [(each.ping_id, each.attempts) for each in progress.waiting]
    return progress.ping_id, progress.failures, waiting
