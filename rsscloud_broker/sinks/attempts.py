"""Makes attempts to notify subscribers, and decides what to store of each.

``Walk`` and ``Retries`` submit attempts.  The result of each is a ``Delivery``, which says what to
store: the notification is delivered, or it failed and waits for another attempt, or it was not
tried (the breaker of its host is open, or the broker stops) and waits.

Runs at most one attempt per subscription.  If another is submitted while one is running, the
second ends together with the first, and the first decides what is stored.  If the topic changes
during an attempt, the subscriber may have fetched it just before the change, so the subscriber is
notified again afterwards.

If a topic changes again while the notification of an earlier change fails, that notification gets
a fresh schedule of retries.  Its next attempt comes no sooner than the first retry after the last
attempt, and not before the time that the subscriber asked for.  A notification that fails for
longer than ``OVERDUE`` times a whole schedule is given up all the same.

Pushed contents are not merged: each waits until those before it are delivered or given up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from random import random

from attrs import define, evolve, field
from prometheus_client import Counter
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import IBlocks, IClock, INotifier
from rsscloud_broker.model import Callback, Content, Denial, Notification, Outcome, Subscription
from rsscloud_broker.records import Delivery
from rsscloud_broker.sinks.attempt import (
    NOT_KEPT,
    Attempt,
    Began,
    Done,
    leave_to_the_store,
    nobody_asks,
    of_follower,
    put_off,
)
from rsscloud_broker.sinks.breakers import Breakers
from rsscloud_broker.sinks.contents import Contents
from rsscloud_broker.sinks.dispatch import Dispatcher

#: Seconds until an attempt that was not made, or was interrupted, is made again.
SOON = 5.0

#: Seconds until a pushed content is tried again if an attempt for its subscriber is running.
AFTER_ANOTHER = 1.0

#: A notification that gets fresh schedules may fail for this many times the length of one.
OVERDUE = 1.5

#: The longest pause in seconds between two looks whether a missing content is there.
LONGEST_WAIT = 600.0

#: Seconds until a notification to a blocked host is due again, unless the block is lifted.
BLOCKED = 3600.0

#: The part of a delay that is added at random at most, so that retries do not come together.
JITTER = 0.2


@define(eq=False)
class Attempts:
    """Runs attempts: submits them to the dispatcher, calls the notifiers, reports deliveries.

    :param notifiers: the enabled notifiers, by protocol.
    :param contents: reads the contents that notifications carry.
    :param blocks: the hosts that administrators have blocked; None if none ever are.
    :param jitter: returns a random number from 0 to 1.
    :param delivered: is called when a subscriber has accepted a notification, with the time.
    :ivar stopping: the broker stops, so no attempt begins any more.
    """

    _notifiers: Mapping[str, INotifier]
    _clock: IClock
    _dispatcher: Dispatcher
    _breakers: Breakers
    _counters: Counters
    _contents: Contents
    _blocks: IBlocks | None = None
    _jitter: Callable[[], float] = random
    _delivered: Callable[[Subscription, float], object] = lambda subscription, at: None
    stopping: bool = field(default=False, init=False)
    _under_way: dict[int, Attempt] = field(factory=dict, init=False)
    _logged_unavailable_at: float = field(default=float("-inf"), init=False)
    _deliveries: Callable[[str, str], Counter] = field(init=False)
    _waiting_for_idle: list[Deferred[None]] = field(factory=list, init=False)
    log = Logger()

    def __attrs_post_init__(self) -> None:
        # Cached, since looking a counter up by its labels is slow.
        self._deliveries = cache(self._counters.deliveries.labels)

    @property
    def under_way(self) -> list[Attempt]:
        """The attempts that are not over."""
        return list(self._under_way.values())

    def submit(
        self,
        subscription: Subscription,
        done: Done,
        *,
        changed: bool,
        began: Began = nobody_asks,
        content: Content | None = None,
        content_id: int | None = None,
    ) -> Attempt:
        """Notify a subscriber as soon as there is a slot.

        :param done: see ``Done``; may be called before this returns.
        :param changed: True if the topic has changed; False to retry a pending notification.
        :param began: see ``Began``; may be called before this returns.
        :param content: the content to carry; None for the newest.
        :param content_id: the store's key of the content, if it was pushed.
        """
        host = subscription.callback.host
        if not subscription.wants_content or subscription.ended:
            content_id = None
        attempt = Attempt(
            host, subscription.topic, subscription, self._make, done, began, content, content_id
        )
        instead = self._instead(attempt, changed=changed)
        if instead is not None:
            self._finish(attempt, instead)
            return attempt
        earlier = self._under_way.get(subscription.id)
        if earlier is not None:
            earlier.changed_again = earlier.changed_again or (changed and earlier.begun)
            earlier.followers.append(attempt)
            attempt.begun = attempt.follows = True
            began()
            return attempt
        until = self._breakers.ask(subscription.callback, attempt)
        if until is not None:
            self._finish(attempt, self._hold_back(attempt, until))
            return attempt
        attempt.submitted_at = self._clock.seconds()
        self._under_way[subscription.id] = attempt
        self._dispatcher.submit(attempt)
        return attempt

    def _instead(self, attempt: Attempt, *, changed: bool) -> Delivery | None:
        """What to store instead of making an attempt; None to make it."""
        subscription, content_id = attempt.subscription, attempt.content_id
        now = self._clock.wall_seconds()
        if self.stopping:
            return self._put_off(subscription, SOON, content_id)
        if subscription.lease.expires_at <= now:  # the sweeper deletes it within the hour
            return Delivery(subscription, None, now)
        held = self._held(subscription, content_id)
        if held is not None:
            return held
        earlier = subscription.id in self._under_way
        if content_id is not None:
            waits = earlier or (changed and subscription.attempts is not None)
            pause = AFTER_ANOTHER if earlier else 0.0
            return self._put_off(subscription, pause, content_id) if waits else None
        failing = subscription.attempts or subscription.failing_since is not None
        if changed and failing and not earlier:
            return self._add_change(subscription, now)
        return None

    def withdraw(self, attempt: Attempt, seconds: float = SOON) -> None:
        """Put an attempt off for ``seconds``, unless it has begun."""
        if not attempt.over and self._dispatcher.withdraw(attempt):
            self._finish(attempt, self._put_off(attempt.subscription, seconds, attempt.content_id))

    def disown(self, attempt: Attempt) -> None:
        """Let others make attempts for its subscription, since its outcome is not recorded."""
        if self._under_way.get(attempt.subscription.id) is attempt:
            del self._under_way[attempt.subscription.id]

    def is_quick(self, host: str) -> bool:
        """Whether a host answered quickly the last time it was called."""
        return self._dispatcher.is_quick(host)

    def queued_for(self, host: str) -> int:
        """How many attempts wait for slots of a host."""
        return self._dispatcher.queued_for(host)

    def withdraw_of(self, topic: str, callback: Callback) -> None:
        """Put off the attempt of a removed subscription if it has not begun.

        When it is due, the store finds no subscription for it.
        """
        for attempt in self.under_way:
            subscription = attempt.subscription
            if subscription.callback == callback and subscription.topic == topic:
                self.withdraw(attempt)

    def withdraw_outdated(self, stored: Subscription) -> None:
        """Put off the attempt of a replaced subscription if it has not begun and the subscription's
        options changed.
        """
        attempt = self._under_way.get(stored.id)
        if attempt is not None and attempt.subscription.options != stored.options:
            self.withdraw(attempt, 0.0)

    def withdraw_all(self) -> None:
        """Put off all attempts that have not begun, until the next start; begin no more."""
        self.stopping = True
        for attempt in self.under_way:
            self.withdraw(attempt)

    def call_off(self) -> None:
        """Cancel the attempts that have begun, and put them off until the next start."""
        for attempt in self.under_way:
            attempt.call_off()
            self._finish(attempt, self._put_off(attempt.subscription, SOON, attempt.content_id))

    async def idle(self) -> None:
        """Return when no attempt waits or runs."""
        if self._under_way:
            idle: Deferred[None] = Deferred()
            self._waiting_for_idle.append(idle)
            await idle

    async def _make(self, attempt: Attempt) -> None:
        attempt.began()
        subscription = attempt.subscription
        until = self._breakers.stops(subscription.callback, attempt)
        if until is not None:
            self._finish(attempt, self._hold_back(attempt, until))
            return
        held = self._held(subscription, attempt.content_id)
        if held is not None:  # it was blocked since the attempt was submitted
            self._finish(attempt, held)
            return
        try:
            delivery = await self._notify(subscription, attempt.content, attempt.content_id)
        except CancelledError:  # the broker stops
            delivery = self._put_off(subscription, SOON, attempt.content_id)
        except Unavailable as error:  # the broker's own want, not the subscriber's fault
            self._log_unavailable(error)
            self._count(subscription, "unavailable")
            delivery = self._put_off(subscription, SOON, attempt.content_id)
        attempt.went_well = delivery.outcome is not None and delivery.outcome.success
        if attempt.changed_again and delivery.outcome and not delivery.outcome.gone:
            delivery = self._again(delivery, delivery.outcome)
        self._finish(attempt, delivery)

    def _again(self, delivery: Delivery, outcome: Outcome) -> Delivery:
        """Schedule another notification for a change during the attempt, unless the attempt is
        retried anyway.
        """
        if delivery.retry_at is not None:
            return delivery
        pause = 0.0 if outcome.success else SOON * self._stretch()
        return evolve(delivery, attempts=0, retry_at=delivery.at + pause)

    def _finish(self, attempt: Attempt, delivery: Delivery) -> None:
        if attempt.over:
            return  # it was called off, and ended by itself afterwards
        attempt.over = True
        self._breakers.give_back(attempt.subscription.callback, attempt)
        if not attempt.begun:
            attempt.began()
        for follower in attempt.followers:
            follower.over = True
        self.disown(attempt)
        attempt.done(delivery)
        for follower in attempt.followers:
            follower.done(of_follower(delivery, follower.subscription))
        if not self._under_way:
            waiting, self._waiting_for_idle = self._waiting_for_idle, []
            for idle in waiting:
                idle.callback(None)

    def _add_change(self, subscription: Subscription, now: float) -> Delivery:
        notifier = self._notifiers.get(subscription.callback.protocol)
        retries = notifier.retries if notifier else ()
        return leave_to_the_store(subscription, now, retries[0] if retries else SOON)

    async def _notify(
        self, subscription: Subscription, content: Content | None, content_id: int | None
    ) -> Delivery:
        callback = subscription.callback
        tried = (subscription.attempts or 0) + 1
        notifier = self._notifiers.get(callback.protocol)
        if notifier is None:
            nobody = Outcome(False, f"no notifier for {callback.protocol} runs here")
            now = self._clock.wall_seconds()
            return Delivery(subscription, nobody, now, attempts=tried, content_id=content_id)
        outcome = await self._call(notifier, subscription, content, content_id)
        now = self._clock.wall_seconds()
        if outcome is None:
            if subscription.attempts is None:
                return self._put_off(subscription, SOON)
            # The longer a subscriber has waited for a content, the longer the pause.
            age = now - subscription.lease.granted_at
            return self._put_off(subscription, min(max(age, SOON), LONGEST_WAIT))
        if tried > 1:
            self._counters.retries.inc()
        delivery = Delivery(
            subscription, outcome, now, notifier.drop_after_failures, tried, content_id=content_id
        )
        if outcome.success and not subscription.ended:
            self._count(subscription, "delivered")
            self._delivered(subscription, now)
            return delivery
        last = outcome.success or outcome.gone or self._is_used_up(notifier, subscription, now)
        if not last:
            asked = outcome.retry_after
            delay = max(notifier.retries[tried - 1], asked or 0.0)
            delivery = evolve(
                delivery,
                retry_at=now + delay * self._stretch(),
                not_before=None if asked is None else now + asked,
            )
        elif subscription.ended:
            return self._ended(delivery, outcome)
        self._log_failure(delivery, outcome)
        return delivery

    def _is_used_up(self, notifier: INotifier, subscription: Subscription, now: float) -> bool:
        """Whether a notification has no attempt left after this one.

        A further change starts a fresh schedule, so the time since the first failure counts too.
        """
        since = subscription.failing_since
        longest = OVERDUE * sum(notifier.retries)
        overdue = since is not None and now - since > longest
        return overdue or (subscription.attempts or 0) >= len(notifier.retries)

    async def _call(
        self,
        notifier: INotifier,
        subscription: Subscription,
        content: Content | None,
        content_id: int | None,
    ) -> Outcome | None:
        """The outcome of a call; None if the store has no content of the topic yet."""
        topic, callback, options = (
            subscription.told_topic,
            subscription.callback,
            subscription.options,
        )
        try:
            if subscription.ended:
                outcome = await notifier.deny(Denial(topic, callback, subscription.ended, options))
            else:
                if subscription.wants_content and content is None:
                    content = await self._fetch_content(subscription, content_id)
                    if content is None:
                        return None if content_id is None else NOT_KEPT
                carried = content if subscription.wants_content else None
                notification = Notification(topic, callback, options, carried)
                outcome = await self._send(notifier, notification)
        except (CancelledError, Unavailable):
            raise
        except Exception as error:  # a notifier's bug must not end the walk
            self.log.failure("Notifier {protocol} failed.", protocol=notifier.protocol)
            return Outcome(False, f"the notifier failed: {error}")  # and no breaker counts it
        if outcome.answered:
            self._breakers.answered(callback)
        elif not (outcome.success or outcome.refused):
            self._breakers.failed(callback, outcome)
        return outcome

    async def _send(self, notifier: INotifier, notification: Notification) -> Outcome:
        content, host = notification.content, notification.callback.host
        if content is None:
            return await notifier.notify(notification)
        is_quick = self._dispatcher.is_quick(host)
        with self._contents.under_way.sending(content, to_quick_host=is_quick):
            return await notifier.notify(notification)

    async def _fetch_content(
        self, subscription: Subscription, content_id: int | None
    ) -> Content | None:
        """The content that a notification carries; None if the store does not keep it.

        :raises Unavailable: the store cannot be used.
        """
        if content_id is not None:
            return await self._contents.pushed(content_id)
        return await self._contents.newest(subscription.moved_to or subscription.topic)

    def _ended(self, delivery: Delivery, outcome: Outcome) -> Delivery:
        """End a subscription whose topic has ended, whether or not its subscriber could be told."""
        subscription = delivery.subscription
        self._count(subscription, "gone")
        unheard = "" if outcome.success else f"; it was not told: {outcome.reason}"
        self.log.info(
            "The subscription of {callback} to {topic} ends with the topic: {reason}",
            callback=subscription.callback.url,
            topic=subscription.topic,
            reason=f"{subscription.ended}{unheard}",
        )
        return evolve(delivery, outcome=Outcome(False, subscription.ended, gone=True))

    def _log_failure(self, delivery: Delivery, outcome: Outcome) -> None:
        subscription = delivery.subscription
        protocol = subscription.callback.protocol
        self._count(subscription, "gone" if outcome.gone else "failed")
        if outcome.gone:
            what_next = "it is gone for good, so the subscription ends"
        elif delivery.retry_at is not None:
            what_next = f"it is tried again in {delivery.retry_at - delivery.at:.0f} s"
        else:
            self._counters.given_up.labels(protocol).inc()
            what_next = f"given up, after {subscription.consecutive_errors} errors in a row"
        self.log.warn(
            "{callback} was not told of {topic} by {protocol}: {reason}; {what_next}",
            callback=subscription.callback.url,
            topic=subscription.topic,
            protocol=protocol,
            reason=outcome.reason,
            what_next=what_next,
        )

    def _log_unavailable(self, error: Unavailable) -> None:
        """Log what the broker lacks, once in ``SOON`` seconds and not for each subscriber."""
        now = self._clock.seconds()
        if now >= self._logged_unavailable_at + SOON:
            self._logged_unavailable_at = now
            self.log.error("Notifications are put off: {error}", error=error)

    def _hold_back(self, attempt: Attempt, until: float) -> Delivery:
        """Put an attempt off until the open breaker of its host lets it through."""
        self._count(attempt.subscription, "put_off")
        seconds = (until - self._clock.seconds()) * self._stretch()
        return self._put_off(attempt.subscription, seconds, attempt.content_id)

    def _held(self, subscription: Subscription, content_id: int | None) -> Delivery | None:
        """Put a notification off if an administrator has blocked its host; else return None."""
        if self._blocks is None or not self._blocks.of_host(subscription.callback.host):
            return None
        return self._put_off(subscription, BLOCKED * self._stretch(), content_id)

    def _put_off(
        self, subscription: Subscription, seconds: float, content_id: int | None = None
    ) -> Delivery:
        now = self._clock.wall_seconds()
        due = now if self.stopping else now + seconds
        return put_off(subscription, now, due, content_id)

    def _stretch(self) -> float:
        return 1.0 + JITTER * self._jitter()

    def _count(self, subscription: Subscription, outcome: str) -> None:
        self._deliveries(subscription.callback.protocol, outcome).inc()
