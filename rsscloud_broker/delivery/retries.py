"""Tries pending notifications again: those that failed, and those that were put off.

The store keeps at most one pending notification for each subscription, with the time at which it
is due.  This module claims the due notifications in batches and submits an attempt for each, so
only a limited number is in memory however many are due.  When a process ends, the notifications
that it had claimed are free for the next process.

Retries call hosts that mostly did not answer before, so they leave slots for the attempts of
walks.  An attempt that waits in memory behind a slow host goes back to the store when other
attempts need its place in memory.

Decision 0016 (``docs/decisions``) says why this module shares no scheduler with
``core/retrying.py`` and ``core/intents.py``, and why the core's `HostLimiter` does not fit here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rsscloud_broker.counters import Counters
from rsscloud_broker.delivery.attempt import Attempt, OutdatedSubscriptions, delayed
from rsscloud_broker.delivery.attempts import SOON, Attempts
from rsscloud_broker.events import Event, NotificationFailed
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.model import Callback, Subscription, SubscriptionOptions
from rsscloud_broker.model.work import MAX_QUEUED, Delivery, History, Recorded
from rsscloud_broker.storage import Store
from rsscloud_broker.util.retry import StoreRetry

#: How many attempts may wait in memory behind others of their hosts, and how many are claimed at
#: once.
AT_A_TIME, BATCH_SIZE = 500, 100

#: When one host has this many attempts in memory, no more of its notifications are claimed, so that
#: a slow host does not keep out all others.
OF_A_HOST = 100

#: How many deliveries are saved in one transaction.
AT_ONCE = 1000


class Retries:
    """Submits the attempts that are due, and saves what came of them.

    :param publish: is called with an event when a failed notification is saved.
    :param history: says which contents are in a feed; None if there are no feeds.
    :param is_unsaved: whether a walk has just called a subscriber, given by the id of its
        subscription, and has not saved the outcome yet.
    """

    log = Logger()

    def __init__(
        self,
        store: Store,
        clock: IClock,
        attempts: Attempts,
        store_retry: StoreRetry,
        counters: Counters,
        publish: Callable[[Event], object] = lambda event: None,
        history: History | None = None,
        is_unsaved: Callable[[int], bool] = lambda key: False,
    ) -> None:
        self._store = store
        self._publish = publish
        self._history = history or History()
        self._is_unsaved = is_unsaved
        self._clock = clock
        self._attempts = attempts
        self._store_retry = store_retry
        self._dropped_counter = counters.dropped_contents
        self._outdated = OutdatedSubscriptions()  # among the batch that is being claimed
        self._lost_claims = False  # since a batch began to be claimed
        self._in_memory: dict[int, Attempt] = {}  # by the id of the subscription
        self._slow: dict[str, float] = {}  # hosts for which nothing is claimed until a time
        self._alarm: IDelayedCall | None = None
        self._look: Deferred[None] | None = None
        self._must_look_again = False
        # What is to be saved next, by the id of the subscription and the key of a pushed content.
        self._finished: dict[tuple[int, int | None], Delivery] = {}
        self._unsaved: list[Delivery] = []  # deliveries that a bug kept from being saved
        self._saving: Deferred[None] = succeed(None)
        self._is_save_planned = False

    def wake_at(self, when: float) -> None:
        """Look for due notifications at a time, or earlier.

        :param when: a time of the wall clock.
        """
        if self._store_retry.stopped:
            return
        # Notifications that are due at about the same time are claimed together.
        pause = max(0.2, when - self._clock.wall_seconds())
        if self._alarm is not None:
            if self._alarm.getTime() <= self._clock.seconds() + pause:
                return
            self._alarm.cancel()
        self._alarm = self._clock.callLater(pause, self._look_for_due)

    def note_saved(self, deliveries: Sequence[Delivery], recorded: Recorded) -> None:
        """Take note of deliveries that were saved.

        The next look is when the first of them is due.  If the store dropped a pushed content
        because a subscription's queue was full, that is logged and counted.
        """
        for one in deliveries:
            self._publish_failure(one)
        due = [one.retry_at for one in deliveries if one.retry_at and not one.claimed]
        if recorded.due:
            due.append(self._clock.wall_seconds())
        if due:
            self.wake_at(min(due))
        for subscription in recorded.dropped:
            self._dropped_counter.inc()
            self._log_dropped(subscription)

    def _log_dropped(self, subscription: Subscription) -> None:
        """Log that a subscriber misses a pushed content, and where the content is."""
        facts: dict[str, object] = {
            "callback": subscription.callback.url,
            "topic": subscription.topic,
            "limit": MAX_QUEUED,
        }
        feed = self._history.feed_of(subscription.moved_to or subscription.topic)
        if feed:
            self.log.error(
                "{callback} misses a pushed content of {topic}: its queue is full ({limit}). "
                "The content is in {feed}",
                feed=feed,
                **facts,
            )
        else:
            self.log.error(
                "{callback} misses a pushed content of {topic}: its queue is full ({limit}).",
                **facts,
            )

    def _publish_failure(self, delivery: Delivery) -> None:
        """Publish that a notification failed, if it did."""
        outcome = delivery.outcome
        if outcome is not None and not outcome.success:
            self._publish(
                NotificationFailed(
                    delivery.subscription,
                    outcome.reason,
                    delivery.at,
                    retry_at=delivery.retry_at,
                    ends=outcome.gone,
                )
            )

    def record(self, deliveries: Sequence[Delivery]) -> None:
        """Save deliveries soon, together with others that are ready by then."""
        for one in deliveries:
            if one.outcome is not None or one.retry_at is not None:
                key = one.subscription.id, one.content_id
                self._finished.pop(key, None)  # a later delivery goes to the end
                self._finished[key] = one
        if self._finished and not self._is_save_planned:
            self._is_save_planned = True
            self._saving = Deferred.fromCoroutine(self._save_finished(after=self._saving))

    async def when_saved(self) -> None:
        """Return when the deliveries that were recorded until now have been saved."""
        await self._saving

    def reconsider(
        self, topic: str, callback: Callback, options: SubscriptionOptions | None
    ) -> None:
        """Take note that a subscription was stored or removed while a batch is being claimed,
        which may still hold the subscription as it was before.

        :param options: the options that it was stored with; None if it was removed.
        """
        self._outdated.add(topic, callback, options)

    def lose_claims(self) -> None:
        """Take note that other nodes have taken this one's claims over.

        The attempts in memory are withdrawn by others.  A batch that is being claimed may have been
        claimed before; so all of it is given back, as far as this node has it.
        """
        self._lost_claims = True
        self.wake_at(self._clock.wall_seconds())

    def stop(self) -> None:
        """Cancel the next look."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def when_idle(self) -> None:
        """Return when neither a look nor a save is under way."""
        if self._look is not None:
            await self._look
        await self._saving

    def _look_for_due(self) -> None:
        """Claim the notifications that are due; if that is under way, do it once more after it."""
        self._alarm = None
        if self._look is not None:
            self._must_look_again = True
        else:
            self._must_look_again = False
            looking: Deferred[None] = Deferred()
            self._look = looking
            Deferred.fromCoroutine(self._claim_due()).addBoth(looking.callback)

    async def _claim_due(self) -> None:
        """Claim the notifications that are due, submit them, and plan the next look."""
        unsaved, self._unsaved = self._unsaved, []
        self.record(unsaved)
        try:
            while not self._store_retry.stopped and (capacity := self._capacity()) > 0:
                now = self._clock.wall_seconds()
                self._outdated, self._lost_claims = OutdatedSubscriptions(), False
                claim = partial(self._store.claim_due, now, capacity, self._busy_hosts())
                due = await self._store_retry(claim)
                for subscription in due:
                    self._submit(subscription)
                if len(due) < BATCH_SIZE:  # else each attempt that ends would cause a claim of one
                    break
            following = await self._store_retry(self._store.next_due)
        except CancelledError:
            return
        except Exception:  # a bug must not stop all retries until the next start
            self.log.failure("Looking for notifications that are due failed.")
            following = None
        finally:
            self._look = None
        if self._must_look_again:  # this look may have missed what was saved meanwhile
            following = self._clock.wall_seconds()
        # The longest time in seconds between two looks at the store: somebody may set the wall
        # clock.
        latest = self._clock.wall_seconds() + 2.0
        self.wake_at(latest if following is None else min(following, latest))

    def _submit(self, subscription: Subscription) -> None:
        """Submit an attempt, or give the notification back if it is outdated by now."""
        content_id = subscription.content_id
        # The next look claims it as it is then, if it is still there and not claimed elsewhere.
        is_outdated = subscription in self._outdated or self._is_unsaved(subscription.id)
        if self._lost_claims or is_outdated:
            now = self._clock.wall_seconds()
            self.record([delayed(subscription, now, now, content_id)])
            return
        attempt = self._attempts.submit(
            subscription, self._take_delivery, changed=False, content_id=content_id
        )
        if not attempt.over:
            attempt.submitted_at = self._clock.seconds()
            self._in_memory[subscription.id] = attempt

    def _capacity(self) -> int:
        """How many more attempts may be claimed, at most a batch.

        If too many wait, those that waited long enough behind a slow host are withdrawn.
        """
        behind = [one for one in self._in_memory.values() if one.behind_its_host]
        running = len(self._in_memory) - len(behind)
        capacity = min(self._attempts.most_retries - running, BATCH_SIZE)
        if capacity <= 0 or len(behind) < AT_A_TIME:
            return capacity
        now = self._clock.seconds()
        # Seconds for which an attempt may wait behind others of its host, before it may have to go
        # back to the store.
        waited = [one for one in behind if one.submitted_at + 0.5 <= now]
        for attempt in waited:
            self._attempts.withdraw(attempt, 0.0)
            self._slow[attempt.host] = now + SOON
        return capacity if len(behind) - len(waited) < AT_A_TIME else 0

    def _busy_hosts(self) -> list[str]:
        """The hosts for which nothing is claimed now: they have enough attempts in memory, or some
        were withdrawn a moment ago.
        """
        now = self._clock.seconds()
        self._slow = {host: until for host, until in self._slow.items() if until > now}
        hosts = Counter(one.host for one in self._in_memory.values())
        return [*self._slow, *(host for host, count in hosts.items() if count >= OF_A_HOST)]

    def _take_delivery(self, delivery: Delivery) -> None:
        """Forget an attempt that is over, and save its delivery soon."""
        attempt = self._in_memory.pop(delivery.subscription.id, None)
        if attempt is not None and attempt.begun:  # so its host has a free slot
            self._slow.pop(attempt.host, None)
        self.record([delivery])

    async def _save_finished(self, after: Deferred[None]) -> None:
        """Save the deliveries that are ready, after the save before."""
        await after
        self._is_save_planned = False
        finished, self._finished = list(self._finished.values()), {}
        try:
            for start in range(0, len(finished), AT_ONCE):
                await self._save_or_keep(finished[start : start + AT_ONCE])
        except CancelledError:
            pass  # the notifications are due again after the next start

    async def _save_or_keep(self, deliveries: Sequence[Delivery]) -> None:
        """Save deliveries, or keep them in memory if a bug keeps them from being saved.

        The next look tries those again.  This process has claimed them, so otherwise they would
        wait until the next start.
        """
        try:
            await self._save(deliveries)
            return
        except CancelledError:
            raise
        except Exception:
            self.log.failure("What came of some notifications could not be saved.")
        for one in deliveries:  # perhaps only one of them cannot be saved
            try:
                await self._save([one])
            except CancelledError:
                raise
            except Exception:  # already logged above
                self._unsaved.append(one)

    async def _save(self, deliveries: Sequence[Delivery]) -> None:
        record = partial(self._store.record_deliveries, deliveries)
        self.note_saved(deliveries, await self._store_retry(record))
