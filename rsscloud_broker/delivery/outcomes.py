"""Decides what to store of the outcome of an attempt: delivered, tried again later, or given up.

It counts the outcomes, and logs why a subscriber was not notified.  ``Attempts`` uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from attrs import define, evolve, field
from prometheus_client import Counter
from twisted.logger import Logger

from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import IClock, INotifier
from rsscloud_broker.model import Outcome, Subscription
from rsscloud_broker.model.work import Delivery
from rsscloud_broker.util.backoff import scheduled_pause

#: The part of a delay that is added at random at most, so that retries do not come together.
JITTER = 0.2


@define(eq=False)
class Outcomes:
    """Makes deliveries of outcomes.

    :param delivered: is called when a subscriber has accepted a notification, with the time.
    """

    _notifiers: Mapping[str, INotifier]
    _clock: IClock
    _counters: Counters
    _jitter: Callable[[], float]
    _delivered: Callable[[Subscription, float], object]
    _logged_unavailable_at: float = field(default=float("-inf"), init=False)
    _counter_of: Callable[[str, str], Counter] = field(init=False)
    log = Logger()

    def __attrs_post_init__(self) -> None:
        # Cached, since looking a counter up by its labels is slow.
        self._counter_of = cache(self._counters.deliveries.labels)

    def delivery(
        self, subscription: Subscription, outcome: Outcome, content_id: int | None
    ) -> Delivery:
        """Decide what to store of an outcome, by the schedule of its notifier; count it, and log a
        failure.

        :param content_id: the store's key of the content that was carried, if it was pushed.
        """
        protocol, now = subscription.callback.protocol, self._clock.wall_seconds()
        notifier = self._notifiers[protocol]
        tried = (subscription.attempts or 0) + 1
        if tried > 1:
            self._counters.retries.inc()
        delivery = Delivery(
            subscription, outcome, now, notifier.drop_after_failures, tried, content_id=content_id
        )
        if outcome.success and not subscription.ended:
            self._counter_of(protocol, "delivered").inc()
            self._delivered(subscription, now)
            return delivery
        # A subscriber whose call was interrupted may be innocent: that was not the last attempt.
        pause = scheduled_pause(notifier.retries, tried, interrupted=outcome.interrupted)
        is_over = outcome.success or outcome.gone or _is_overdue(notifier, subscription, now)
        if pause is not None and not is_over:
            delivery = self.tried_again(delivery, outcome, pause)
        elif subscription.ended:
            return self._end_subscription(delivery, outcome)
        self._log_failure(delivery, outcome)
        return delivery

    def tried_again(self, delivery: Delivery, outcome: Outcome, pause: float) -> Delivery:
        """What to store of a failure if it is tried again after a pause, and not before the time
        that the subscriber asked for.
        """
        asked = outcome.retry_after
        delay = max(pause, asked or 0.0)
        return evolve(
            delivery,
            retry_at=delivery.at + delay * self.stretch(),
            not_before=None if asked is None else delivery.at + asked,
        )

    def _end_subscription(self, delivery: Delivery, outcome: Outcome) -> Delivery:
        """End a subscription whose topic has ended, whether or not its subscriber could be
        notified.
        """
        subscription = delivery.subscription
        self.count(subscription, "gone")
        unheard = "" if outcome.success else f"; it was not notified: {outcome.reason}"
        self.log.info(
            "The subscription of {callback} to {topic} ends with the topic: {reason}",
            callback=subscription.callback.url,
            topic=subscription.topic,
            reason=f"{subscription.ended}{unheard}",
        )
        return evolve(delivery, outcome=Outcome(False, subscription.ended, gone=True))

    def _log_failure(self, delivery: Delivery, outcome: Outcome) -> None:
        """Count and log that a subscriber was not notified, and what follows from that."""
        subscription = delivery.subscription
        protocol = subscription.callback.protocol
        self.count(subscription, "gone" if outcome.gone else "failed")
        if outcome.gone:
            what_next = "it is gone for good, so the subscription ends"
        elif delivery.retry_at is not None:
            what_next = f"it is tried again in {delivery.retry_at - delivery.at:.0f} s"
        else:
            self._counters.given_up.labels(protocol).inc()
            # The store counts this notification only now.
            errors = subscription.consecutive_errors + 1
            what_next = f"given up; notifications that failed in a row: {errors}"
        self.log.warn(
            "{callback} was not notified of {topic} by {protocol}: {reason}; {what_next}",
            callback=subscription.callback.url,
            topic=subscription.topic,
            protocol=protocol,
            reason=outcome.reason,
            what_next=what_next,
        )

    def count_unavailable(self, subscription: Subscription, error: Unavailable) -> None:
        """Count a notification that the broker could not make.

        What the broker lacks is logged once in five seconds and not for each subscriber.
        """
        self.count(subscription, "unavailable")
        now = self._clock.seconds()
        if now >= self._logged_unavailable_at + 5.0:
            self._logged_unavailable_at = now
            self.log.error("Notifications are put off: {error}", error=error)

    def count(self, subscription: Subscription, outcome: str) -> None:
        """Count an outcome; ``Counters.deliveries`` says which there are."""
        self._counter_of(subscription.callback.protocol, outcome).inc()

    def stretch(self) -> float:
        """The factor by which a pause is made longer at random."""
        return 1.0 + JITTER * self._jitter()


def _is_overdue(notifier: INotifier, subscription: Subscription, now: float) -> bool:
    """Whether a notification has failed for so long that it has no attempt left.

    A further change starts a fresh schedule, so the time since the first failure counts too.
    """
    since = subscription.failing_since
    # A notification that gets fresh schedules may fail for this many times the length of one.
    longest = 1.5 * sum(notifier.retries)
    return since is not None and now - since > longest
