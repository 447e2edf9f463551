"""A plain model of a store, for ``store_machine`` to compare stores with."""

from __future__ import annotations

from attrs import Factory, define, evolve

from rsscloud_broker.model import Delivery, Fanout, HostState, Ping, Subscription, Topic

#: Seconds within which a ping is a repeat.
WINDOW = 60


@define
class Model:
    """What a store should have.

    :ivar pings: those not pruned, in the order in which they came.
    :ivar asked: when topics that wait to be read were asked for last.
    :ivar subscriptions: by id; their ``attempts`` are in ``waiting``.
    :ivar walks: by id; those that newer ones made needless too.
    :ivar waiting: for ids of subscriptions, attempts and when the next is due.
    """

    pings: list[Ping] = Factory(list)
    pruned: int = 0
    topics: dict[str, Topic] = Factory(dict)
    asked: dict[str, float] = Factory(dict)
    subscriptions: dict[int, Subscription] = Factory(dict)
    walks: dict[int, Fanout] = Factory(dict)
    waiting: dict[int, tuple[int, float]] = Factory(dict)
    hosts: dict[str, HostState] = Factory(dict)

    def pings_between(self, since: float, until: float) -> list[Ping]:
        found = [ping for ping in self.pings if since <= ping.received_at < until]
        return sorted(found, key=lambda ping: (ping.received_at, ping.id), reverse=True)

    def repeats(self, ping: Ping, window: float) -> bool:
        return any(
            (earlier.name, earlier.url, earlier.rss_url) == (ping.name, ping.url, ping.rss_url)
            and ping.received_at - earlier.received_at < window
            for earlier in self.pings
        )

    def subscription(self, key: int) -> Subscription:
        """A subscription as a store shows it."""
        attempts, _ = self.waiting.get(key, (None, None))
        return evolve(self.subscriptions[key], attempts=attempts)

    def subscriptions_of(self, topic: str) -> list[Subscription]:
        found = sorted(self.subscriptions.items())
        return [self.subscription(key) for key, one in found if one.topic == topic]

    def newest_walks(self) -> list[Fanout]:
        newest = {walk.topic: key for key, walk in sorted(self.walks.items())}
        return [self.walks[key] for key in sorted(newest.values())]

    def moments(self) -> set[float]:
        """When anything was, is or will be: just then, a bound is crossed or not."""
        times = {ping.received_at for ping in self.pings}
        times |= {time + WINDOW for time in times}
        times |= {topic.read_at for topic in self.topics.values() if topic.read_at is not None}
        times |= set(self.asked.values())
        times |= {one.lease.expires_at for one in self.subscriptions.values()}
        times |= {due for _, due in self.waiting.values()}
        return times | {time + 0.25 for time in times}

    def drop(self, key: int) -> None:
        """Remove a subscription."""
        del self.subscriptions[key]
        self.waiting.pop(key, None)

    def forget(self, topic: str) -> None:
        """Remove a topic."""
        del self.topics[topic]
        self.walks = {key: walk for key, walk in self.walks.items() if walk.topic != topic}

    def take_in(self, delivery: Delivery) -> None:
        """What came of a delivery."""
        key, outcome = delivery.subscription.id, delivery.outcome
        if key not in self.subscriptions:
            return
        if delivery.retry_at is not None:
            self.waiting[key] = (delivery.attempts, delivery.retry_at)
            return
        assert outcome is not None  # only what waits was not tried
        self.waiting.pop(key, None)
        if outcome.gone:
            # Unless it was renewed since: whoever does that is not gone.
            granted_at = delivery.subscription.lease.granted_at
            if self.subscriptions[key].lease.granted_at == granted_at:
                self.drop(key)
        elif outcome.success:
            known = self.subscriptions[key]
            self.subscriptions[key] = Subscription(known.topic, known.callback, known.lease, key)
        else:
            self._count_error(delivery, outcome.reason)

    def _count_error(self, delivery: Delivery, reason: str) -> None:
        known = self.subscriptions[delivery.subscription.id]
        errors = known.consecutive_errors + 1
        self.subscriptions[known.id] = evolve(
            known,
            consecutive_errors=errors,
            last_error=reason,
            last_error_at=delivery.at,
            marked=known.marked or (delivery.marks is not None and errors >= delivery.marks),
        )
