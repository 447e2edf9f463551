"""One attempt to notify one subscriber, and the deliveries that say what to store of it.

``Walk`` and ``Retries`` read subscriptions some time before they use them.  A subscriber who
unsubscribed or changed its options in between must not be notified as it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from attrs import define, evolve, field

from rsscloud_broker.delivery.dispatch import Job
from rsscloud_broker.interfaces import IDirectNotifier, INotifier
from rsscloud_broker.model import (
    Callback,
    Content,
    Notification,
    Outcome,
    Subscription,
    SubscriptionOptions,
)
from rsscloud_broker.model.work import Delivery
from rsscloud_broker.util.deferreds import BreakOff, nothing_to_break_off, run_with_callback

#: Called once, when an attempt is over, with what to store.  A delivery that has neither an
#: outcome nor a ``retry_at`` changes nothing.
Done: TypeAlias = Callable[[Delivery], None]

#: Called once with an attempt, when it has begun, or is over without having begun.
Began: TypeAlias = "Callable[[Attempt], None]"

#: Begins a notification, as ``IDirectNotifier.begin`` does.
Begin: TypeAlias = Callable[[Notification, Callable[[Outcome | Exception], object]], BreakOff]

#: The outcome of a notification whose pushed content the store no longer keeps: nobody is called.
NOT_KEPT = Outcome(False, "what was pushed is not kept any more", answered=False, refused=True)


@define(eq=False)
class Attempt(Job):
    """An attempt that waits for a slot or runs.  ``Attempts.submit`` creates it.

    :ivar content: what the notification carries; None for the newest content when the attempt
        begins, or for no content if the subscription wants none.
    :ivar content_id: the store's key of the content, if it was pushed.
    :ivar submitted_at: when ``Retries`` submitted it, by the monotonic clock.
    :ivar changed_again: whether the topic changed after the attempt had begun.
    :ivar follows: whether it is a follower: it ends together with an earlier attempt for the same
        subscription.  A follower counts as begun.
    :ivar followers: the attempts that end together with this one.
    :ivar break_off: stops the notification if it is under way.
    :ivar sending: the content that counts as being sent until the call is over; None for none.
    :ivar called: whether the call is over.
    """

    subscription: Subscription
    done: Done
    began: Began
    content: Content | None = None
    content_id: int | None = None
    over: bool = False
    submitted_at: float = 0.0
    changed_again: bool = False
    follows: bool = False
    followers: list[Attempt] = field(factory=list)
    break_off: BreakOff = nothing_to_break_off
    sending: Content | None = None
    called: bool = False


def merged_change(subscription: Subscription, now: float, pause: float = 0.0) -> Delivery:
    """A delivery that merges a change into the pending notification of a subscription, whose
    retries start over.

    If that notification has been delivered meanwhile, the store adds a new one.  Not for pushed
    content (see ``delayed``), which is never merged.

    :param pause: seconds that must lie between its last attempt and the next.
    """
    return Delivery(subscription, None, now, attempts=0, retry_at=now, pause=pause)


def delayed(subscription: Subscription, now: float, due: float, content_id: int | None) -> Delivery:
    """A delivery without an attempt: the notification waits in the store until ``due``.

    :param content_id: the store's key of the content that it carries, if that was pushed.
    """
    tried = subscription.attempts or 0
    return Delivery(subscription, None, now, attempts=tried, retry_at=due, content_id=content_id)


def delivery_of_follower(delivery: Delivery, subscription: Subscription) -> Delivery:
    """What to store for a follower.  A failure counts once, for the attempt that was made.

    If the follower has another claim, the claim of that attempt may be lost: then the failure is
    not stored.

    :param delivery: what is stored for the attempt that was made.
    :param subscription: the follower's, as read from the store.  It may have a pending
        notification that the subscription of the other attempt had not.
    """
    failed = delivery.outcome is not None and not delivery.outcome.success
    if failed and subscription.claim not in (None, delivery.subscription.claim):
        return delayed(subscription, delivery.at, delivery.at, None)
    if failed or subscription.attempts is None:
        return Delivery(subscription, None, delivery.at)
    return evolve(delivery, subscription=subscription)


def claimed_delivery(attempt: Attempt, now: float) -> Delivery:
    """A delivery by which a notification is pending, and claimed by this process."""
    return evolve(delayed(attempt.subscription, now, now, attempt.content_id), claimed=True)


def changes_something(delivery: Delivery) -> bool:
    """Whether a delivery has to be stored: most succeed and change nothing."""
    if delivery.retry_at is not None:
        return True
    if delivery.outcome is None:
        return False
    subscription = delivery.subscription
    return (
        not delivery.outcome.success
        or subscription.attempts is not None
        or subscription.consecutive_errors > 0
    )


def ignore_begin(attempt: Attempt) -> None:
    """A ``Began`` that does nothing."""


def begin_by(notifier: INotifier) -> Begin:
    """The function that begins notifications of a notifier: its ``begin``, or one that runs
    ``notify``.
    """
    if IDirectNotifier.providedBy(notifier):
        begin: Begin = notifier.begin
        return begin

    async def notify(notification: Notification) -> Outcome:
        outcome: Outcome = await notifier.notify(notification)
        return outcome

    return lambda notification, done: run_with_callback(notify(notification), done)


class OutdatedSubscriptions:
    """The subscriptions that were stored or removed since a read of the store began.

    :ivar options: their options by topic and callback; None for one that was removed.  There are
        nearly always none, so that a walk looks at this first.
    """

    def __init__(self) -> None:
        self.options: dict[tuple[str, Callback], SubscriptionOptions | None] = {}

    def add(self, topic: str, callback: Callback, options: SubscriptionOptions | None) -> None:
        """Note that a subscription was stored with some options, or removed (None)."""
        self.options[topic, callback] = options

    def __contains__(self, subscription: Subscription) -> bool:
        """Whether a subscription may differ from the store since it was read."""
        key = subscription.topic, subscription.callback
        return key in self.options and self.options[key] != subscription.options


class LateOutcomes:
    """Saves outcomes that come after the end of a walk, but not before the walk's last save.

    :param attempts: those that have no outcome yet.
    """

    def __init__(
        self, record: Callable[[Sequence[Delivery]], None], attempts: Sequence[Attempt]
    ) -> None:
        self._record = record
        self._attempts = attempts
        self._waiting: list[Delivery] | None = []  # None since ``release``
        self._node: int | None = None

    def add(self, delivery: Delivery) -> None:
        """Save an outcome, at once or after ``release``."""
        if self._waiting is None:
            self._record([self._with_claim(delivery)])
        else:
            self._waiting.append(delivery)

    def release(self, node: int | None) -> None:
        """Save the outcomes that wait, and from now on each at once.

        :param node: the node that has claimed the pending notifications of these attempts, without
            which the outcomes are ignored; None if they could not be stored.
        """
        self._node = node
        for one in self._attempts:  # so ``Attempts`` notices if one of these is claimed again
            one.subscription = evolve(one.subscription, claim=node)
        self._attempts = ()
        waiting, self._waiting = self._waiting or [], None
        if waiting:
            self._record([self._with_claim(one) for one in waiting])

    def _with_claim(self, delivery: Delivery) -> Delivery:
        """The delivery of a notification that the node has claimed since the attempt began."""
        return evolve(delivery, subscription=evolve(delivery.subscription, claim=self._node))
