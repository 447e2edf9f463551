"""Tries again what waits: notifications that failed, or were put off.

The store has at most one of them for each subscription, with the time at which
it is due.  What is due is claimed in portions, so that however many wait, only
a bounded number is in memory; what a process had claimed is free again when it has
ended.  What has begun is bounded by the slots that there are, and not counted;
what waits in memory behind a slow host goes back when others need the room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rsscloud_broker.counters import Counters
from rsscloud_broker.interfaces import IClock, IStore
from rsscloud_broker.model import Subscription, SubscriptionOptions
from rsscloud_broker.records import Delivery, Recorded
from rsscloud_broker.sinks.attempt import Attempt, put_off
from rsscloud_broker.sinks.attempts import SOON, Attempts
from rsscloud_broker.sinks.outdated import OutdatedSubscriptions
from rsscloud_broker.store_retry import StoreRetry

#: Retries in memory at a time that have not begun, and how many are claimed at once.
AT_A_TIME, PORTION = 500, 100

#: Retries of one host in memory, after which no more of them are claimed, so that
#: the many of a slow host do not keep out all others.
OF_A_HOST = 100

#: Seconds for which a retry may wait behind others of its host, at the least.
MOMENT = 0.5

#: Deliveries that are saved at once.
AT_ONCE = 1000

#: Seconds between two looks at the most: somebody may have set the wall clock.
LOOK = 2.0

#: Seconds between two looks at the least, so that what is due at about the same
#: time is claimed together.
LEAST_PAUSE = 0.2


class Retries:
    """Makes the attempts that are due."""

    log = Logger()

    def __init__(
        self,
        store: IStore,
        clock: IClock,
        attempts: Attempts,
        store_retry: StoreRetry,
        counters: Counters,
    ) -> None:
        self._store = store
        self._clock = clock
        self._attempts = attempts
        self._store_retry = store_retry
        self._dropped = counters.dropped_contents
        self._outdated = OutdatedSubscriptions()  # of what is being claimed
        self._in_memory: dict[int, Attempt] = {}
        self._slow: dict[str, float] = {}  # hosts, and until when nothing of theirs is claimed
        self._alarm: IDelayedCall | None = None
        self._looking: Deferred[None] | None = None
        self._look_again = False
        self._finished: dict[tuple[int, int | None], Delivery] = {}
        self._unsaved: list[Delivery] = []  # what a bug kept from being saved
        self._saving: Deferred[None] = succeed(None)
        self._to_be_saved = False

    def wake_at(self, when: float) -> None:
        """Look for what is due at a time, or earlier."""
        if self._store_retry.stopped:
            return
        pause = max(LEAST_PAUSE, when - self._clock.wall_seconds())
        if self._alarm is not None:
            if self._alarm.getTime() <= self._clock.seconds() + pause:
                return
            self._alarm.cancel()
        self._alarm = self._clock.callLater(pause, self._look)

    def saved(self, deliveries: Sequence[Delivery], recorded: Recorded) -> None:
        """Look again when the first of some deliveries is due that were saved; tell of what
        was left out.
        """
        due = [one.retry_at for one in deliveries if one.retry_at and not one.claimed]
        if recorded.due:
            due.append(self._clock.wall_seconds())
        if due:
            self.wake_at(min(due))
        for subscription in recorded.dropped:
            self._dropped.inc()
            self.log.error(
                "{callback} is not told of something that was pushed for {topic}: as much waits "
                "for it as may.",
                callback=subscription.callback.url,
                topic=subscription.topic,
            )

    def record(self, deliveries: Sequence[Delivery]) -> None:
        """Save deliveries by themselves, together with others that are ready."""
        for one in deliveries:
            if one.outcome is not None or one.retry_at is not None:
                key = one.subscription.id, one.content_id
                self._finished.pop(key, None)  # what is later goes behind
                self._finished[key] = one
        if self._finished and not self._to_be_saved:
            self._to_be_saved = True
            self._saving = Deferred.fromCoroutine(self._save_finished(after=self._saving))

    async def recorded(self) -> None:
        """Return when those have been saved that were to be saved by now."""
        await self._saving

    def reconsider(
        self, topic: str, callback_url: str, options: SubscriptionOptions | None
    ) -> None:
        """A subscription was stored with some options, or removed if there are none; what is being
        claimed may have it as it was.
        """
        self._outdated.add(topic, callback_url, options)

    def stop(self) -> None:
        """Look for nothing any more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def idle(self) -> None:
        """Return when nothing of this is going on any more."""
        if self._looking is not None:
            await self._looking
        await self._saving

    def _look(self) -> None:
        self._alarm = None
        if self._looking is not None:
            self._look_again = True
        else:
            self._look_again = False
            looking: Deferred[None] = Deferred()
            self._looking = looking
            Deferred.fromCoroutine(self._claim_due()).addBoth(looking.callback)

    async def _claim_due(self) -> None:
        unsaved, self._unsaved = self._unsaved, []
        self.record(unsaved)
        try:
            while not self._store_retry.stopped and self._has_room():
                now = self._clock.wall_seconds()
                self._outdated = OutdatedSubscriptions()
                claim = partial(self._store.claim_due, now, PORTION, self._busy_hosts())
                due = await self._store_retry(claim)
                for subscription in due:
                    self._submit(subscription)
                if len(due) < PORTION:
                    break
            following = await self._store_retry(self._store.next_due)
        except CancelledError:
            return
        except Exception:  # a bug must not end the retries until the next start
            self.log.failure("Looking for notifications that are due failed.")
            following = None
        finally:
            self._looking = None
        if self._look_again:  # what was saved meanwhile may not have been seen
            following = self._clock.wall_seconds()
        latest = self._clock.wall_seconds() + LOOK
        self.wake_at(latest if following is None else min(following, latest))

    def _submit(self, subscription: Subscription) -> None:
        content_id = subscription.content_id
        if subscription in self._outdated:  # it is claimed again as it is now, if it is there
            now = self._clock.wall_seconds()
            self.record([put_off(subscription, now, now, content_id)])
            return
        attempt = self._attempts.submit(
            subscription, self._done, changed=False, content_id=content_id
        )
        if not attempt.over:
            self._in_memory[subscription.id] = attempt

    def _has_room(self) -> bool:
        """Whether more may wait in memory; makes room if there is none."""
        in_line = [one for one in self._in_memory.values() if not one.begun]
        if len(in_line) < AT_A_TIME:
            return True
        now = self._clock.seconds()
        waited = [
            one for one in in_line if one.behind_its_host and one.submitted_at + MOMENT <= now
        ]
        for attempt in waited:
            self._attempts.withdraw(attempt, 0.0)
            self._slow[attempt.host] = now + SOON
        return len(in_line) - len(waited) < AT_A_TIME

    def _busy_hosts(self) -> list[str]:
        """Those of which enough is in memory, or of which too much was."""
        now = self._clock.seconds()
        self._slow = {host: until for host, until in self._slow.items() if until > now}
        hosts = Counter(one.host for one in self._in_memory.values())
        return [*self._slow, *(host for host, count in hosts.items() if count >= OF_A_HOST)]

    def _done(self, delivery: Delivery) -> None:
        attempt = self._in_memory.pop(delivery.subscription.id, None)
        if attempt is not None and attempt.begun:  # so there is a slot at its host
            self._slow.pop(attempt.host, None)
        self.record([delivery])

    async def _save_finished(self, after: Deferred[None]) -> None:
        await after
        self._to_be_saved = False
        finished, self._finished = list(self._finished.values()), {}
        try:
            for start in range(0, len(finished), AT_ONCE):
                await self._save_or_keep(finished[start : start + AT_ONCE])
        except CancelledError:
            pass  # they come up again after the next start

    async def _save_or_keep(self, deliveries: Sequence[Delivery]) -> None:
        """Save deliveries.  Those that a bug keeps from being saved are tried again at the next
        look: this process has claimed them, so they would not come up before the next start.
        """
        try:
            await self._save(deliveries)
            return
        except CancelledError:
            raise
        except Exception:
            self.log.failure("What came of some notifications could not be saved.")
        for one in deliveries:  # perhaps the fault is with one of them
            try:
                await self._save([one])
            except CancelledError:
                raise
            except Exception:  # it was told of
                self._unsaved.append(one)

    async def _save(self, deliveries: Sequence[Delivery]) -> None:
        record = partial(self._store.record_deliveries, deliveries)
        self.saved(deliveries, await self._store_retry(record))
