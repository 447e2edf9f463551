"""One attempt to notify one subscriber, while it waits for a slot or is under way."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from attrs import define, evolve, field
from twisted.internet.defer import Deferred

from rsscloud_broker.model import Content, Subscription
from rsscloud_broker.records import Delivery
from rsscloud_broker.sinks.dispatch import Job

#: Told once, when an attempt is over.  A delivery without an outcome or a time at
#: which it is due changes nothing.
Done: TypeAlias = Callable[[Delivery], None]

#: Told once, when an attempt has begun, or is over without having begun.
Began: TypeAlias = Callable[[], None]


@define(eq=False)
class Attempt(Job):
    """An attempt that was submitted.

    :ivar make: makes it.
    :ivar content: what the notification carries; None to carry the newest there is
        when it begins, or nothing, as the subscription wants it.
    :ivar content_id: the store's key of that, if it was pushed.
    :ivar submitted_at: when, by the monotonic clock.
    :ivar changed_again: whether the topic changed again since it began.
    :ivar follows: whether it ends with an earlier one of the same subscription; it counts as
        begun then.
    :ivar followers: attempts for the same subscription that were submitted since.
    """

    subscription: Subscription
    make: Callable[[Attempt], Coroutine[Deferred[Any], Any, None]]
    done: Done
    began: Began
    content: Content | None = None
    content_id: int | None = None
    over: bool = False
    submitted_at: float = 0.0
    changed_again: bool = False
    follows: bool = False
    followers: list[Attempt] = field(factory=list)

    def begin(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.make(self))


def leave_to_the_store(subscription: Subscription, now: float, pause: float = 0.0) -> Delivery:
    """That a subscriber is to be told of news by the notification that waits for it; if that
    was delivered after the subscription was read, perhaps with what was there before, by
    another.

    :param pause: seconds that must lie between its last attempt and the next.
    """
    return Delivery(subscription, None, now, attempts=0, retry_at=now, pause=pause)


def put_off(subscription: Subscription, now: float, due: float, content_id: int | None) -> Delivery:
    """That a notification is not delivered yet, and waits in the store until it is due."""
    tried = subscription.attempts or 0
    return Delivery(subscription, None, now, attempts=tried, retry_at=due, content_id=content_id)


def of_follower(delivery: Delivery, subscription: Subscription) -> Delivery:
    """What to store for an attempt that ended with another of the same subscription.  A failure
    counts once, for the other.

    :param subscription: as the store gave it for this one: if a notification waits for it, that
        may not have been so for the other.
    """
    failed = delivery.outcome is not None and not delivery.outcome.success
    if failed or subscription.attempts is None:
        return Delivery(subscription, None, delivery.at)
    return evolve(delivery, subscription=subscription)


def nobody_asks() -> None:
    """Stands for a ``Began`` where nobody asks."""
