"""Attempts to notify subscribers, from waiting for a slot to what came of them.

What comes of it is a ``Delivery``, which says what to store: that it is done,
or that it failed and waits for another attempt, or that it was not tried (the
host is left alone just now, the broker stops) and waits.

Runs at most one attempt per subscription.  If another is submitted while one is running, the
second ends together with the first, and the first decides what is stored.  When the topic
changes once more during an attempt, the subscriber may have read it just before that: so it is
told again afterwards.

A further change is news to a subscriber that failed: its notification gets a fresh schedule, but
no sooner than the first retry after its last attempt, and not before the time that the subscriber
asked for.  What fails for longer than a whole schedule is given up all the same.

What a publisher pushes is an event of its own: each waits for those before it.
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
from rsscloud_broker.interfaces import IClock, INotifier
from rsscloud_broker.model import Content, Denial, Notification, Outcome, Subscription
from rsscloud_broker.records import Delivery
from rsscloud_broker.sinks.attempt import (
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

#: Seconds until an attempt that was not made, or not to its end, is made again.
SOON = 5.0

#: Seconds until something that was pushed is tried, if something before it is under way.
AFTER_ANOTHER = 1.0

#: How many times as long as its schedule a notification may fail that gets fresh ones.
OVERDUE = 1.5

#: Seconds, at the most, until it is looked again whether a content is there by now.
LONGEST_WAIT = 600.0

#: By how much a delay is lengthened at random, so that those who failed together
#: do not come back together.
JITTER = 0.2

#: What comes of a notification that was to carry what is not kept any more.
NOT_KEPT = Outcome(False, "what was pushed is not kept any more")


@define(eq=False)
class Attempts:
    """Makes attempts.

    :param notifiers: by protocol.
    :param contents: of the topics whose subscribers want them.
    :param jitter: a number from 0 to 1, at random.
    :ivar stopping: nothing begins any more.
    """

    _notifiers: Mapping[str, INotifier]
    _clock: IClock
    _dispatcher: Dispatcher
    _breakers: Breakers
    _counters: Counters
    _contents: Contents
    _jitter: Callable[[], float] = random
    stopping: bool = field(default=False, init=False)
    _under_way: dict[int, Attempt] = field(factory=dict, init=False)
    _told_of_want: float = field(default=float("-inf"), init=False)
    _deliveries: Callable[[str, str], Counter] = field(init=False)
    _waiting_for_idle: list[Deferred[None]] = field(factory=list, init=False)
    log = Logger()

    def __attrs_post_init__(self) -> None:
        # Looking a counter up by its labels takes its time.
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
        """Notify a subscriber when there is a slot for it.

        :param done: told once, perhaps before this returns; likewise ``began``.
        :param changed: whether the topic has changed, or else an earlier
            notification of it is tried again.
        :param content: what it carries, if that is not the newest there is.
        :param content_id: the store's key of that, if it was pushed.
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
            self._finish(attempt, self._leave_alone(attempt, until))
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
        if subscription.lease.expires_at <= now:  # it goes at the top of the hour
            return Delivery(subscription, None, now)
        earlier = subscription.id in self._under_way
        if content_id is not None:
            waits = earlier or (changed and subscription.attempts is not None)
            pause = AFTER_ANOTHER if earlier else 0.0
            return self._put_off(subscription, pause, content_id) if waits else None
        failing = subscription.attempts or subscription.failing_since is not None
        if changed and failing and not earlier:
            return self._leave_news(subscription, now)
        return None

    def withdraw(self, attempt: Attempt, seconds: float = SOON) -> None:
        """Put an attempt off that has not begun."""
        if not attempt.over and self._dispatcher.withdraw(attempt):
            self._finish(attempt, self._put_off(attempt.subscription, seconds, attempt.content_id))

    def is_quick(self, host: str) -> bool:
        """Whether a host answered quickly the last time."""
        return self._dispatcher.is_quick(host)

    def in_line_of(self, host: str) -> int:
        """How many attempts wait for a slot of a host."""
        return self._dispatcher.in_line_of(host)

    def withdraw_of(self, topic: str, callback_url: str) -> None:
        """Put off what has not begun of a subscription that was removed.  By the time when
        it is due, the store knows whether there is another one of that callback.
        """
        for attempt in self.under_way:
            subscription = attempt.subscription
            if subscription.callback.url == callback_url and subscription.topic == topic:
                self.withdraw(attempt)

    def withdraw_outdated(self, stored: Subscription) -> None:
        """Put off what has not begun of a subscription that was replaced, if the subscriber
        asks something else of notifications by now.
        """
        attempt = self._under_way.get(stored.id)
        if attempt is not None and attempt.subscription.options != stored.options:
            self.withdraw(attempt, 0.0)

    def withdraw_all(self) -> None:
        """Begin nothing any more: put off what has not begun, until the next start."""
        self.stopping = True
        for attempt in self.under_way:
            self.withdraw(attempt)

    def call_off(self) -> None:
        """Put off what has begun, too."""
        for attempt in self.under_way:
            attempt.call_off()
            self._finish(attempt, self._put_off(attempt.subscription, SOON, attempt.content_id))

    async def idle(self) -> None:
        """Return when no attempt is under way."""
        if self._under_way:
            idle: Deferred[None] = Deferred()
            self._waiting_for_idle.append(idle)
            await idle

    async def _make(self, attempt: Attempt) -> None:
        attempt.began()
        subscription = attempt.subscription
        until = self._breakers.stops(subscription.callback, attempt)
        if until is not None:
            self._finish(attempt, self._leave_alone(attempt, until))
            return
        try:
            delivery = await self._notify(subscription, attempt.content, attempt.content_id)
        except CancelledError:  # the broker stops
            delivery = self._put_off(subscription, SOON, attempt.content_id)
        except Unavailable as error:  # says nothing of the subscriber: later, then
            self._tell_of_want(error)
            self._count(subscription, "unavailable")
            delivery = self._put_off(subscription, SOON, attempt.content_id)
        attempt.went_well = delivery.outcome is not None and delivery.outcome.success
        if attempt.changed_again and delivery.outcome and not delivery.outcome.gone:
            delivery = self._again(delivery, delivery.outcome)
        self._finish(attempt, delivery)

    def _again(self, delivery: Delivery, outcome: Outcome) -> Delivery:
        """Tell of what changed meanwhile; where it is tried again, that does so."""
        if delivery.retry_at is not None:
            return delivery
        pause = 0.0 if outcome.success else SOON * self._stretch()
        return evolve(delivery, attempts=0, retry_at=delivery.at + pause)

    def _finish(self, attempt: Attempt, delivery: Delivery) -> None:
        if attempt.over:
            return  # called off, and came to its end all the same
        attempt.over = True
        self._breakers.give_back(attempt.subscription.callback, attempt)
        if not attempt.begun:
            attempt.began()
        for follower in attempt.followers:
            follower.over = True
        if self._under_way.get(delivery.subscription.id) is attempt:
            del self._under_way[delivery.subscription.id]
        attempt.done(delivery)
        for follower in attempt.followers:
            follower.done(of_follower(delivery, follower.subscription))
        if not self._under_way:
            waiting, self._waiting_for_idle = self._waiting_for_idle, []
            for idle in waiting:
                idle.callback(None)

    def _leave_news(self, subscription: Subscription, now: float) -> Delivery:
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
            # Who waits for longer is looked after less often.
            age = now - subscription.lease.granted_at
            return self._put_off(subscription, min(max(age, SOON), LONGEST_WAIT))
        if tried > 1:
            self._counters.retries.inc()
        delivery = Delivery(
            subscription, outcome, now, notifier.drop_after_failures, tried, content_id=content_id
        )
        if outcome.success and not subscription.ended:
            self._count(subscription, "delivered")
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
        self._tell_of_failure(delivery, outcome)
        return delivery

    def _is_used_up(self, notifier: INotifier, subscription: Subscription, now: float) -> bool:
        """Whether the schedule of a notification has no further attempt after this one.

        News begins it anew, so its attempts are counted, and the time since the first failure.
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
        """What came of a call; None if the content of the topic is not there yet."""
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
        except Exception as error:  # a notifier's bug is its own and not the walk's
            self.log.failure("Notifier {protocol} failed.", protocol=notifier.protocol)
            return Outcome(False, f"the notifier failed: {error}")  # says nothing of the host
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
        """What a notification is to carry; None if it is not kept.

        :raises Unavailable: the store cannot be used.
        """
        if content_id is not None:
            return await self._contents.pushed(content_id)
        return await self._contents.newest(subscription.moved_to or subscription.topic)

    def _ended(self, delivery: Delivery, outcome: Outcome) -> Delivery:
        """A subscription goes with its topic, whether its subscriber could be told or not."""
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

    def _tell_of_failure(self, delivery: Delivery, outcome: Outcome) -> None:
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

    def _tell_of_want(self, error: Unavailable) -> None:
        """Say what we lack: one line for a while, and not one for each subscriber."""
        now = self._clock.seconds()
        if now >= self._told_of_want + SOON:
            self._told_of_want = now
            self.log.error("Notifications are put off: {error}", error=error)

    def _leave_alone(self, attempt: Attempt, until: float) -> Delivery:
        """Put an attempt off, for its host does not answer."""
        self._count(attempt.subscription, "put_off")
        seconds = (until - self._clock.seconds()) * self._stretch()
        return self._put_off(attempt.subscription, seconds, attempt.content_id)

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
