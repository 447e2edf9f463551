"""A simple model of a store in memory, with which the state machine compares real stores."""

from __future__ import annotations

from attrs import Factory, define, evolve, frozen

from rsscloud_broker.model import Content, Ping, Subscription, Topic
from rsscloud_broker.model.work import Delivery, Fanout

#: Seconds within which a ping is a repeat.
WINDOW = 60

#: Seconds after which a URL that a topic has left may have a topic again.
SETTLED_AFTER = 7 * 86400

#: Seconds for which an ended topic without subscriptions is kept.
KEEP_ENDED = 90 * 86400


@define(eq=False)
class Walk:
    """An unfinished fan-out.

    :ivar content: the number in ``Model.contents`` of the content that it carries.
    :ivar pushed: whether the content was pushed.
    :ivar lacks_content: whether a content was wanted and there was none.
    :ivar shown: the fan-out as the store returned it last; None if the store has not returned it,
        since others of the topic come first.
    """

    topic: str
    begun_at: float
    content: int | None = None
    pushed: bool = False
    cursor: int = 0
    lacks_content: bool = False
    shown: Fanout | None = None
    outstanding: tuple[int, ...] = ()


@frozen
class Waits:
    """A pending notification.

    :ivar claimed: whether a node has claimed it.
    """

    attempts: int
    due: float
    tried_at: float | None = None
    failing_since: float | None = None
    claimed: bool = False


@define
class Model:
    """The data that a store should have.  Each method changes them as a method of the store should.

    :ivar pings: the pings that were not pruned, in the order in which they came.
    :ivar pruned: how many pings were pruned.
    :ivar topics: the topics by their present URLs, like everything below about topics.
    :ivar moved: by each URL that a topic has left, its present URL and the time of the move.
    :ivar failures: how many fetches in a row have failed, for topics that were ever fetched.
    :ivar due: when topics are polled next; without topics that are not polled.
    :ivar asked: when a check was last requested, for topics that wait to be fetched.
    :ivar pinged: those of these topics that were pinged.
    :ivar subscriptions: the subscriptions by id; their ``attempts`` are in ``pending``.
    :ivar contents: by ascending numbers, contents with their topics: those that the store must
        have, and some that it may have removed.
    :ivar walks: unfinished fan-outs in their order, superseded ones too.
    :ivar pending: the pending notifications by ids of subscriptions.
    """

    pings: list[Ping] = Factory(list)
    pruned: int = 0
    topics: dict[str, Topic] = Factory(dict)
    moved: dict[str, tuple[str, float]] = Factory(dict)
    failures: dict[str, int] = Factory(dict)
    due: dict[str, float] = Factory(dict)
    asked: dict[str, float] = Factory(dict)
    pinged: set[str] = Factory(set)
    subscriptions: dict[int, Subscription] = Factory(dict)
    contents: dict[int, tuple[str, Content]] = Factory(dict)
    walks: list[Walk] = Factory(list)
    pending: dict[int, Waits] = Factory(dict)

    def pings_between(self, since: float, until: float) -> list[Ping]:
        found = [ping for ping in self.pings if since <= ping.received_at < until]
        return sorted(found, key=lambda ping: (ping.received_at, ping.id), reverse=True)

    def repeats(self, ping: Ping, window: float) -> bool:
        return any(
            (earlier.name, earlier.url, earlier.rss_url) == (ping.name, ping.url, ping.rss_url)
            and ping.received_at - earlier.received_at < window
            for earlier in self.pings
        )

    def current_url(self, url: str) -> str:
        """The present URL of the topic that is or was at a URL."""
        return self.moved[url][0] if url in self.moved else url

    def topic(self, url: str) -> Topic | None:
        """A topic as the store should return it."""
        known = self.topics.get(self.current_url(url))
        return known and evolve(known, subscribers=len(self.subscriptions_of(url)))

    def subscription(self, key: int) -> Subscription:
        """A subscription as the store should return it."""
        waits = self.pending.get(key)
        one = self.subscriptions[key]
        current = self.current_url(one.topic)
        moved_to = "" if current == one.topic else current
        ended = self.topics[current].ended
        return evolve(
            one,
            attempts=None if waits is None else waits.attempts,
            failing_since=None if waits is None else waits.failing_since,
            ended=ended,
            moved_to=moved_to,
        )

    def subscriptions_of(self, topic: str) -> list[Subscription]:
        found, current = sorted(self.subscriptions.items()), self.current_url(topic)
        return [
            self.subscription(key) for key, one in found if self.current_url(one.topic) == current
        ]

    def has_ended(self, topic: str) -> bool:
        known = self.topics.get(self.current_url(topic))
        return known is not None and bool(known.ended)

    def move(self, url: str, to: str, at: float) -> bool:
        """Move a topic to another URL; False if it stays."""
        here, there = self.current_url(url), to
        if to in self.moved and at - self.moved[to][1] < SETTLED_AFTER:
            there = self.current_url(to)
        known = self.topics.get(here, Topic(here))
        other = self.topics.get(there, Topic(there))
        if to == url or here == there or known.ended or other.ended:
            return False
        self.moved.pop(there, None)
        for left, (current, left_at) in self.moved.items():
            if current == here:
                self.moved[left] = (there, left_at)
        self.moved[here] = (there, at)
        self.topics.pop(here, None)
        differs = (known.digest, known.size) != (other.digest, other.size)
        self.topics[there] = evolve(
            known if known.digest and differs else other,
            url=there,
            changed_at=max((known.changed_at, other.changed_at), key=lambda at: at or 0.0),
        )
        self._merge_walks(here, there)
        self.contents = {
            key: (there if topic == here else topic, content)
            for key, (topic, content) in self.contents.items()
        }
        if here in self.asked:
            self.asked[there] = max(self.asked.pop(here), self.asked.get(there, 0.0))
        if here in self.pinged:
            self.pinged.remove(here)
            self.pinged.add(there)
        if here in self.failures:
            self.failures.setdefault(there, self.failures.pop(here))
        if here in self.due:
            self.due.setdefault(there, self.due.pop(here))
        if self.subscriptions_of(there):
            self.due.setdefault(there, at)
        return True

    def _merge_walks(self, here: str, there: str) -> None:
        """Replace two fan-outs by one, which starts at the smaller cursor and carries the newer
        content.
        """
        newest = {
            walk.topic: walk
            for walk in self.walks
            if not walk.pushed and walk.topic in {here, there}
        }
        if len(newest) > 1:
            last = max(newest.values(), key=self.walks.index)
            cursor = min(walk.cursor for walk in newest.values())
            lacks_content = last.content is None and any(
                walk.lacks_content for walk in newest.values()
            )
            ids = {key for walk in newest.values() for key in walk.outstanding}
            outstanding = tuple(sorted(key for key in ids if key <= cursor))
            contents = [walk.content for walk in newest.values() if walk.content is not None]
            carried = None if lacks_content else max(contents, default=None)
            both = [walk for walk in self.walks if walk.topic in newest and not walk.pushed]
            self.walks = [walk for walk in self.walks if walk not in both]
            self.walks.append(
                Walk(
                    there,
                    last.begun_at,
                    carried,
                    cursor=cursor,
                    lacks_content=lacks_content,
                    outstanding=outstanding,
                )
            )
        for walk in self.walks:
            walk.topic = there if walk.topic == here else walk.topic

    def no_check(self, topic: str) -> None:
        """Remove the check of a topic."""
        self.asked.pop(topic, None)
        self.pinged.discard(topic)

    def next_walks(self) -> list[Walk]:
        """The oldest fan-out of each topic that is not superseded."""
        newest = {walk.topic: walk for walk in self.walks if not walk.pushed}
        needed = [walk for walk in self.walks if walk.pushed or walk is newest[walk.topic]]
        first = {walk.topic: walk for walk in reversed(needed)}
        return [walk for walk in needed if walk is first[walk.topic]]

    def walk_of(self, key: int) -> Walk | None:
        """A fan-out by its id in the store."""
        for walk in self.walks:
            if walk.shown is not None and walk.shown.id == key:
                return walk
        return None

    def end_walk(self, ended: Walk) -> None:
        """Remove a fan-out, and those that it superseded."""
        until = self.walks.index(ended)
        self.walks = [
            walk
            for number, walk in enumerate(self.walks)
            if walk is not ended
            and (walk.topic != ended.topic or number > until or walk.pushed or ended.pushed)
        ]

    def wanted(self, topic: str) -> bool:
        """Whether a subscription of a topic wants content."""
        return any(one.wants_content for one in self.subscriptions_of(topic))

    def waited_for(self, topic: str) -> bool:
        """Whether a pending notification is to carry the content of a topic."""
        return any(
            one.wants_content and one.attempts is not None for one in self.subscriptions_of(topic)
        )

    def lacks_content(self, topic: str) -> bool:
        """Whether a fan-out of a topic lacks its content."""
        return any(
            walk.lacks_content for walk in self.walks if walk.topic == self.current_url(topic)
        )

    def newest_of(self, topic: str) -> int | None:
        """The number of the newest content of a topic."""
        current = self.current_url(topic)
        return max((key for key, (url, _) in self.contents.items() if url == current), default=None)

    def newest_content(self, topic: str) -> Content | None:
        newest = self.newest_of(topic)
        return None if newest is None else self.contents[newest][1]

    def is_needed(self, key: int) -> bool:
        """Whether the store must have a content."""
        topic, _ = self.contents[key]
        carried = any(walk.content == key for walk in self.walks)
        return carried or (key == self.newest_of(topic) and self.waited_for(topic))

    def remove_unneeded(self, topic: str) -> None:
        """Remove those contents of a topic that nothing needs."""
        of_topic = [key for key, (url, _) in self.contents.items() if url == topic]
        for key in [key for key in of_topic if not self.is_needed(key)]:
            del self.contents[key]

    def use_content(self, topic: str, content: int | None, at: float) -> None:
        """Give a content to the fan-outs that lack it, and make notifications due that wait for it
        and have had no attempt.
        """
        for walk in self.walks:
            if walk.topic == topic and walk.lacks_content:
                walk.content, walk.lacks_content = content, False
        for one in self.subscriptions_of(topic):
            waits = self.pending.get(one.id)
            if one.wants_content and waits is not None and waits.attempts == 0:
                self.pending[one.id] = evolve(waits, due=min(waits.due, at))

    def remove_outdated(self, topic: str) -> None:
        """Remove the fetched contents of a topic that changed to a content which is not kept."""
        for walk in self.walks:
            if walk.topic == topic and not walk.pushed:
                walk.content = None
        carried = {walk.content for walk in self.walks}
        self.contents = {
            key: one for key, one in self.contents.items() if one[0] != topic or key in carried
        }

    def moments(self) -> set[float]:
        """The times at which something happens, and shortly after, to test limits of time."""
        times = {ping.received_at for ping in self.pings}
        times |= {time + WINDOW for time in times}
        times |= {topic.read_at for topic in self.topics.values() if topic.read_at is not None}
        times |= set(self.asked.values())
        times |= {one.lease.expires_at for one in self.subscriptions.values()}
        times |= {waits.due for waits in self.pending.values()}
        times |= {left_at + SETTLED_AFTER for _, left_at in self.moved.values()}
        times |= {
            topic.changed_at + KEEP_ENDED
            for topic in self.topics.values()
            if topic.ended and topic.changed_at is not None
        }
        return times | {time + 0.25 for time in times}

    def drop(self, key: int) -> None:
        """Remove a subscription."""
        del self.subscriptions[key]
        self.pending.pop(key, None)

    def forget(self, topic: str) -> None:
        """Remove a topic."""
        del self.topics[topic]
        self.moved = {url: left for url, left in self.moved.items() if left[0] != topic}
        self.failures.pop(topic, None)
        self.due.pop(topic, None)
        self.no_check(topic)
        self.walks = [walk for walk in self.walks if walk.topic != topic]
        self.contents = {key: one for key, one in self.contents.items() if one[0] != topic}

    def record_delivery(self, delivery: Delivery) -> None:
        """Record the outcome of a delivery."""
        key, outcome = delivery.subscription.id, delivery.outcome
        if key not in self.subscriptions:
            return
        granted_at = delivery.subscription.lease.granted_at
        is_renewed = self.subscriptions[key].lease.granted_at != granted_at
        if is_renewed and outcome is not None and not (outcome.success or outcome.refused):
            due = max(delivery.at, delivery.not_before or 0.0)
            delivery = evolve(delivery, outcome=None, attempts=0, retry_at=due)
            outcome = None
        is_final = outcome is not None and (delivery.retry_at is None or not delivery.attempts)
        if is_final:
            self.pending.pop(key, None)
        if delivery.retry_at is not None:
            self._add_pending(delivery, delivery.retry_at)
        if outcome is None or not is_final:
            return
        if outcome.gone:
            self.drop(key)
        elif outcome.success:
            self.subscriptions[key] = evolve(
                self.subscriptions[key],
                consecutive_errors=0,
                last_error="",
                last_error_at=None,
                dropping=False,
            )
        else:
            self._count_error(delivery, outcome.reason)

    def _add_pending(self, delivery: Delivery, due: float) -> None:
        key = delivery.subscription.id
        known = self.pending.get(key)
        if known is not None and delivery.pause is not None:
            earliest = 0.0 if known.tried_at is None else known.tried_at + delivery.pause
            self.pending[key] = evolve(known, attempts=0, due=min(known.due, max(due, earliest)))
            return
        known = known or Waits(0, 0.0)
        if delivery.outcome is not None:
            known = evolve(known, tried_at=delivery.at)
            if known.failing_since is None and not delivery.outcome.success:
                known = evolve(known, failing_since=delivery.at)
        self.pending[key] = evolve(
            known, attempts=delivery.attempts, due=due, claimed=delivery.claimed
        )

    def _count_error(self, delivery: Delivery, reason: str) -> None:
        known = self.subscriptions[delivery.subscription.id]
        errors = known.consecutive_errors + 1
        self.subscriptions[known.id] = evolve(
            known,
            consecutive_errors=errors,
            last_error=reason,
            last_error_at=delivery.at,
            dropping=known.dropping
            or (
                delivery.drop_after_failures is not None and errors >= delivery.drop_after_failures
            ),
        )
