"""Counts what came of the notifications of one fan-out, and how long they took."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rsscloud_broker.counters import Counters
from rsscloud_broker.events import Event, FanOutBegun, FanOutEnded
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.model import Subscription
from rsscloud_broker.model.work import Delivery, Fanout


class Tally:
    """The outcomes of one fan-out, over all turns of its walk in this process.

    A fan-out that an earlier process has begun is counted from the start of this one.

    Strangers see these numbers: they tell nothing of private followers.

    :param publish: is called with an event when the fan-out begins and when it ends.
    """

    def __init__(
        self,
        fanout: Fanout,
        clock: IClock,
        counters: Counters,
        publish: Callable[[Event], object],
    ) -> None:
        self._topic = fanout.topic
        self._private = not fanout.is_public
        self._begun_at = fanout.begun_at
        self._clock = clock
        self._counters = counters
        self._publish = publish
        # A fan-out with a cursor was begun before, and its first subscriber notified.
        self._begun = self._first_told = fanout.cursor > 0
        self._delivered = self._failed = self._waiting = 0
        # Seconds after the change: to the first notification, and to the last public one.
        self._first: float | None = None
        self._last: float | None = None  # if a private follower was notified after the others

    def begin(self) -> None:
        """Note that the walk begins, or goes on."""
        if not self._begun:
            self._begun = True
            self._publish(FanOutBegun(self._topic, self._clock.wall_seconds(), self._private))

    def add(self, delivery: Delivery, *, late: bool) -> None:
        """Count an outcome.

        :param late: whether the walk did not wait for it, so that it was counted as waiting.
        """
        if delivery.subscription.callback.is_private:
            self._last = self._age() if self._last is None else self._last
            return
        self._last = None
        if delivery.outcome is None:
            self._waiting += delivery.retry_at is not None and not late
            return
        if delivery.outcome.success and not self._first_told:
            self._first_told = True
            self._first = self._age()
            self._counters.first_latency.observe(self._first)
        if late:
            return
        if delivery.outcome.success:
            self._delivered += 1
        elif not (delivery.outcome.gone and delivery.subscription.ended):  # it ends with its topic
            self._failed += 1

    def add_waiting(self, subscriptions: Iterable[Subscription]) -> None:
        """Count attempts that go on when the walk ends: their notifications are pending then.

        Those to private followers are not counted, as in ``add``.
        """
        private = [one.callback.is_private for one in subscriptions]
        self._waiting += private.count(False)

    def end(self) -> None:
        """Note that every subscriber has had its first attempt."""
        age = self._age() if self._last is None else self._last
        if not self._private:
            self._counters.last_latency.observe(age)
        self._publish(
            FanOutEnded(
                self._topic,
                delivered=self._delivered,
                failed=self._failed,
                waiting=self._waiting,
                first=self._first,
                last=age,
                at=self._clock.wall_seconds(),
                private=self._private,
            )
        )

    def _age(self) -> float:
        return self._clock.wall_seconds() - self._begun_at
