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
longer than one and a half whole schedules is given up all the same.

Pushed contents are not merged: each waits until those before it are delivered or given up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from random import random

from attrs import define, evolve, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rsscloud_broker.counters import Counters
from rsscloud_broker.delivery.attempt import (
    NOT_KEPT,
    Attempt,
    Began,
    Begin,
    Done,
    begin_by,
    delayed,
    delivery_of_follower,
    ignore_begin,
    merged_change,
)
from rsscloud_broker.delivery.breakers import Breakers
from rsscloud_broker.delivery.contents import Contents
from rsscloud_broker.delivery.dispatch import Dispatcher
from rsscloud_broker.delivery.outcomes import Outcomes
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import IClock, INotifier
from rsscloud_broker.model import Callback, Content, Denial, Notification, Outcome, Subscription
from rsscloud_broker.model.work import Delivery
from rsscloud_broker.policy.blocks import Blocks
from rsscloud_broker.util.deferreds import BreakOff, run_with_callback

#: Seconds until an attempt that was not made, or was interrupted, is made again.
SOON = 5.0

#: Seconds until a notification is looked at again whose subscription has expired.
AFTER_LEASE = 600.0


@define(eq=False)
class Attempts:
    """Runs attempts: submits them to the dispatcher, calls the notifiers, reports deliveries.

    :ivar stopping: the broker stops, so no attempt begins any more.
    """

    _notifiers: Mapping[str, INotifier]
    _clock: IClock
    _dispatcher: Dispatcher
    _breakers: Breakers
    _counters: Counters
    _contents: Contents
    _blocks: Blocks = field(factory=Blocks)
    _jitter: Callable[[], float] = random
    _delivered: Callable[[Subscription, float], object] = lambda subscription, at: None
    stopping: bool = field(default=False, init=False)
    # The attempt of each subscription, by the subscription's id; later attempts follow it.
    _under_way: dict[int, Attempt] = field(factory=dict, init=False)
    _outcomes: Outcomes = field(init=False)
    _beginner: Callable[[str], Begin] = field(init=False)
    _idle_waiters: list[Deferred[None]] = field(factory=list, init=False)
    log = Logger()

    def __attrs_post_init__(self) -> None:
        self._outcomes = Outcomes(
            self._notifiers, self._clock, self._counters, self._jitter, self._delivered
        )
        for protocol in self._notifiers:
            self._counters.begin_protocol(protocol)
        # Cached, since asking what an object provides is slow.
        self._beginner = cache(lambda protocol: begin_by(self._notifiers[protocol]))

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
        began: Began = ignore_begin,
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
        callback = subscription.callback
        if not subscription.wants_content or subscription.ended:
            content_id = None
        attempt = Attempt(
            callback.host,
            subscription.topic,
            self._make,
            subscription,
            done,
            began,
            content,
            content_id,
        )
        earlier = self._under_way.get(subscription.id)
        instead = self._delivery_instead(attempt, earlier, changed=changed)
        if instead is not None:
            self._finish(attempt, instead)
            return attempt
        if earlier is not None:
            # A notification that is claimed again was freed by another node for a newer change.
            freed = subscription.claim is not None and earlier.subscription.claim is not None
            earlier.changed_again |= earlier.begun and (changed or freed)
            earlier.followers.append(attempt)
            attempt.begun = attempt.follows = True
            began(attempt)
            return attempt
        if attempt.host in self._breakers.failing:
            until = self._breakers.ask(callback, attempt)
            if until is not None:
                self._finish(attempt, self._delayed_by_breaker(attempt, until))
                return attempt
        self._under_way[subscription.id] = attempt
        self._dispatcher.submit(attempt)
        return attempt

    def _delivery_instead(
        self, attempt: Attempt, earlier: Attempt | None, *, changed: bool
    ) -> Delivery | None:
        """What to store instead of making an attempt; None to make it, or to follow the earlier."""
        subscription, content_id = attempt.subscription, attempt.content_id
        now = self._clock.wall_seconds()
        if self.stopping:
            return self._delayed(subscription, SOON, content_id)
        if subscription.lease.expires_at <= now:
            return self._delayed_as_expired(attempt)
        if self._blocks.has_hosts and (held := self._delayed_if_blocked(attempt)):
            return held
        if content_id is not None:
            waits = earlier or (changed and subscription.attempts is not None)
            # A pushed content is tried again a second after another attempt for its subscriber.
            pause = 1.0 if earlier else 0.0
            return self._delayed(subscription, pause, content_id) if waits else None
        failing = subscription.attempts or subscription.failing_since is not None
        if changed and failing and not earlier:
            return self._merged_change(subscription, now)
        return None

    def _delayed_as_expired(self, attempt: Attempt) -> Delivery:
        """What to store if a subscription has expired, which the sweeper deletes within the hour.

        Its subscriber may renew it until then, and is to be notified then.  It may have done so
        since a walk read the subscription, so that is read once more at once.
        """
        subscription = attempt.subscription
        pause = 0.0 if subscription.claim is None else AFTER_LEASE
        return self._delayed(subscription, pause, attempt.content_id)

    def withdraw(self, attempt: Attempt, seconds: float = SOON) -> None:
        """Put an attempt off for ``seconds``, unless it has begun."""
        if not attempt.over and self._dispatcher.withdraw(attempt):
            self._finish(attempt, self._delayed(attempt.subscription, seconds, attempt.content_id))

    def disown(self, attempt: Attempt) -> None:
        """Let others make attempts for its subscription, since its outcome is not recorded."""
        if self._under_way.get(attempt.subscription.id) is attempt:
            del self._under_way[attempt.subscription.id]

    def is_quick(self, host: str) -> bool:
        """Whether a host answered quickly the last time it was called."""
        return self._dispatcher.is_quick(host)

    @property
    def most_retries(self) -> int:
        """How many retries may be under way."""
        return self._dispatcher.most_retries

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
        """Cancel the attempts that have begun.  As the broker stops, its next start makes them."""
        for attempt in self.under_way:
            attempt.break_off()
            self._finish(attempt, self._delayed(attempt.subscription, SOON, attempt.content_id))

    async def when_idle(self) -> None:
        """Return when no attempt waits or runs."""
        if self._under_way:
            idle: Deferred[None] = Deferred()
            self._idle_waiters.append(idle)
            await idle

    def _make(self, attempt: Attempt) -> None:
        """Make an attempt that has just got its slot, unless it has to wait once more."""
        attempt.began(attempt)
        instead = self._delivery_since(attempt)
        if instead is not None:
            self._finish(attempt, instead)
            self._dispatcher.end(attempt)
            return
        try:
            attempt.break_off = self._call(attempt, partial(self._end_call, attempt))
        except Exception as error:
            self._end_call(attempt, error)

    def _delivery_since(self, attempt: Attempt) -> Delivery | None:
        """What to store instead of making a call, because of what happened since an attempt was
        submitted; None to call.
        """
        subscription = attempt.subscription
        if attempt.host in self._breakers.failing:
            until = self._breakers.stops(subscription.callback, attempt)
            if until is not None:
                return self._delayed_by_breaker(attempt, until)
        protocol = subscription.callback.protocol
        if protocol in self._notifiers:
            return self._delayed_if_blocked(attempt) if self._blocks.has_hosts else None
        nobody = Outcome(False, f"no notifier for {protocol} runs here")
        tried, now = (subscription.attempts or 0) + 1, self._clock.wall_seconds()
        return Delivery(subscription, nobody, now, None, tried, content_id=attempt.content_id)

    def _call(
        self, attempt: Attempt, called: Callable[[Outcome | Exception | None], object]
    ) -> BreakOff:
        """Begin a call.

        :param called: is notified of its end.
        :raises Exception: it cannot begin.
        """
        subscription, content = attempt.subscription, attempt.content
        protocol = subscription.callback.protocol
        if subscription.ended:
            return run_with_callback(self._deny(self._notifiers[protocol], subscription), called)
        if not subscription.wants_content:
            content = None
        elif content is None:
            return run_with_callback(self._notify_of_newest(attempt), called)
        else:
            self._count_sending(attempt, content)
        topic, options = subscription.told_topic, subscription.options
        notification = Notification(topic, subscription.callback, options, content)
        return self._beginner(protocol)(notification, called)

    async def _deny(self, notifier: INotifier, subscription: Subscription) -> Outcome:
        """Call a subscriber to say that its topic has ended, and why."""
        topic, callback = subscription.told_topic, subscription.callback
        denial = Denial(topic, callback, subscription.ended, subscription.options)
        outcome: Outcome = await notifier.deny(denial)
        return outcome

    async def _notify_of_newest(self, attempt: Attempt) -> Outcome | None:
        """Notify a subscriber of a content that the store keeps.

        :returns: None if the store does not have the content yet.
        :raises Unavailable: the store cannot be used, or too many bytes are being sent.
        """
        subscription, content_id = attempt.subscription, attempt.content_id
        if content_id is None:
            content = await self._contents.newest(subscription.moved_to or subscription.topic)
        else:
            content = await self._contents.pushed(content_id)
        if content is None:
            return None if content_id is None else NOT_KEPT
        self._count_sending(attempt, content)
        topic, callback = subscription.told_topic, subscription.callback
        notification = Notification(topic, callback, subscription.options, content)
        outcome: Outcome = await self._notifiers[callback.protocol].notify(notification)
        return outcome

    def _count_sending(self, attempt: Attempt, content: Content) -> None:
        """Count a content as being sent, until the call is over.

        :raises Unavailable: too many bytes are being sent.
        """
        is_quick = self._dispatcher.is_quick(attempt.host)
        self._contents.under_way.enter(content, to_quick_host=is_quick)
        attempt.sending = content

    def _end_call(self, attempt: Attempt, result: Outcome | Exception | None) -> None:
        """Handle the end of a call.

        :param result: the outcome or an error; None if there is no content to carry yet.
        """
        if attempt.called:
            return  # the notifier has reported the end twice
        attempt.called = True
        if attempt.sending is not None:
            self._contents.under_way.leave(attempt.sending)
        try:
            self._finish(attempt, self._judge(attempt, result))
        finally:
            self._dispatcher.end(attempt)

    def _judge(self, attempt: Attempt, result: Outcome | Exception | None) -> Delivery:
        """What to store of a call; the breakers and the slots of its host follow its outcome."""
        subscription, content_id = attempt.subscription, attempt.content_id
        if isinstance(result, Outcome):  # all else says nothing of the host
            if not (result.answered or result.success or result.refused):
                self._breakers.failed(subscription.callback, result)
            elif result.answered and attempt.host in self._breakers.failing:
                self._breakers.answered(subscription.callback)
            delivery = self._outcomes.delivery(subscription, result, content_id)
            attempt.went_well = result.success
        elif result is None:
            delivery = self._delayed_for_content(subscription)
        elif isinstance(result, CancelledError):  # the broker stops
            delivery = self._delayed(subscription, SOON, content_id)
        elif isinstance(result, Unavailable):  # not the subscriber's fault
            self._outcomes.count_unavailable(subscription, result)
            delivery = self._delayed(subscription, SOON, content_id)
        else:  # a notifier's bug must not end the walk, and no breaker counts it
            protocol = subscription.callback.protocol
            self.log.failure("Notifier {protocol} failed.", Failure(result), protocol=protocol)
            outcome = Outcome(False, f"the notifier failed: {result}")
            delivery = self._outcomes.delivery(subscription, outcome, content_id)
        if attempt.changed_again and delivery.outcome and not delivery.outcome.gone:
            delivery = self._schedule_again(delivery, delivery.outcome)
        return delivery

    def _delayed_for_content(self, subscription: Subscription) -> Delivery:
        """Put a notification off until the topic has been fetched."""
        if subscription.attempts is None:
            return self._delayed(subscription, SOON)
        # The longer a subscriber has waited for a content, the longer the pause.
        age = self._clock.wall_seconds() - subscription.lease.granted_at
        # At least every ten minutes the broker looks whether the content is there.
        return self._delayed(subscription, min(max(age, SOON), 600.0))

    def _schedule_again(self, delivery: Delivery, outcome: Outcome) -> Delivery:
        """Schedule another notification for a change during the attempt, unless the attempt is
        retried anyway.
        """
        if delivery.retry_at is not None:
            return delivery
        if outcome.success:
            return evolve(delivery, attempts=0, retry_at=delivery.at)
        return evolve(self._outcomes.tried_again(delivery, outcome, SOON), attempts=0)

    def _finish(self, attempt: Attempt, delivery: Delivery) -> None:
        """End an attempt and its followers, and report what to store for each."""
        if attempt.over:
            return  # ``call_off`` has ended it before
        attempt.over = True
        if attempt.host in self._breakers.failing:
            self._breakers.give_back(attempt.subscription.callback, attempt)
        if not attempt.begun:
            attempt.began(attempt)
        for follower in attempt.followers:
            follower.over = True
        self.disown(attempt)
        attempt.done(delivery)
        for follower in attempt.followers:
            follower.done(delivery_of_follower(delivery, follower.subscription))
        if not self._under_way:
            waiting, self._idle_waiters = self._idle_waiters, []
            for idle in waiting:
                idle.callback(None)

    def _merged_change(self, subscription: Subscription, now: float) -> Delivery:
        """Merge a change into a notification that fails, with a fresh schedule of retries."""
        notifier = self._notifiers.get(subscription.callback.protocol)
        retries = notifier.retries if notifier else ()
        return merged_change(subscription, now, retries[0] if retries else SOON)

    def _delayed_by_breaker(self, attempt: Attempt, until: float) -> Delivery:
        """Put an attempt off until the open breaker of its host lets it through."""
        self._outcomes.count(attempt.subscription, "put_off")
        seconds = (until - self._clock.seconds()) * self._outcomes.stretch()
        return self._delayed(attempt.subscription, seconds, attempt.content_id)

    def _delayed_if_blocked(self, attempt: Attempt) -> Delivery | None:
        """Put a notification off if an administrator has blocked its host; else return None."""
        if not self._blocks.of_host(attempt.host):
            return None
        # It is due again after an hour, or when the block is lifted.
        pause = 3600.0 * self._outcomes.stretch()
        return self._delayed(attempt.subscription, pause, attempt.content_id)

    def _delayed(
        self, subscription: Subscription, seconds: float, content_id: int | None = None
    ) -> Delivery:
        """A delivery that puts a notification off; if the broker stops, until the next start."""
        now = self._clock.wall_seconds()
        due = now if self.stopping else now + seconds
        return delayed(subscription, now, due, content_id)
