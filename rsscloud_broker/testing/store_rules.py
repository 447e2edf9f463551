"""What stores do with pings and topics, as rules for ``store_machine``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from attrs import evolve
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from rsscloud_broker.interfaces import IStore
from rsscloud_broker.model import Fanout, Ping, Reading, Subscription, Topic
from rsscloud_broker.testing.store_model import WINDOW, Model

#: Calls a method of the store with its arguments; gives what its Awaitable does.
Call: TypeAlias = Callable[..., Any]

#: More than there ever is, and later than anything.
ALL, END_OF_TIME = 1_000_000, 4e9

HOUR = 3600

# Few of everything, so that things meet.
TOPICS = ("http://feeds.example/a.xml", "http://feeds.example/b.xml")

topics = st.sampled_from(TOPICS)
limits = st.integers(1, 5)
contents = st.sampled_from((b"1", b"2", b"22"))
_names = st.sampled_from(("A site", "Ünïcode & <co>"))
_urls = st.sampled_from(("http://site.example/", *TOPICS))
_tags = st.sampled_from(((), ("t",), ("a|b", "c")))


def digest_of(content: bytes) -> bytes:
    """What tells contents apart; those of different sizes may have the same here."""
    return content[:1] * 32


class PingsAndTopics(RuleBasedStateMachine):
    """A store, a model, and the time, which never goes back.

    :param fixture: gives an empty store.
    :param call: calls its methods.
    """

    def __init__(self, fixture: Callable[[], AbstractContextManager[IStore]], call: Call) -> None:
        super().__init__()
        self.fixture = fixture()
        self.store = self.fixture.__enter__()
        self.call = call
        self.model = Model()
        self.now = 1_714_561_200.0
        # What was there once: ids are never used again.
        self.known_subscriptions: list[Subscription] = []
        self.known_walks: dict[int, Fanout] = {}
        self.last_ping = 0

    def teardown(self) -> None:
        self.fixture.__exit__(None, None, None)

    @rule(seconds=st.sampled_from((0.25, 59.75, 60.0, 5.0 * HOUR)))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(data=st.data())
    def time_comes(self, data: st.DataObject) -> None:
        """Go on to the moment when something is due or ends."""
        self.go_on(data, self.model.moments())

    def go_on(self, data: st.DataObject, moments: set[float]) -> None:
        """Go on to one of these moments that is not over, or stay."""
        coming = {at for at in moments if at > self.now}
        self.now = data.draw(st.sampled_from(sorted(coming | {self.now})))

    def past(self, data: st.DataObject) -> float:
        """A moment up to now."""
        past = {at for at in self.model.moments() if at <= self.now}
        return data.draw(st.sampled_from(sorted(past | {self.now})))

    # pings

    @rule(
        name=_names,
        url=_urls,
        changes_url=st.just("") | topics,
        rss_url=st.just("") | topics,
        tags=_tags,
        window=st.sampled_from((0, WINDOW)),
    )
    def add_ping(
        self,
        name: str,
        url: str,
        changes_url: str,
        rss_url: str,
        tags: tuple[str, ...],
        window: float,
    ) -> None:
        ping = Ping(name, url, self.now, changes_url, rss_url, tags)
        record = self.call(self.store.add_ping, ping, window)
        assert record.repeat == self.model.repeats(ping, window)
        if not record.repeat:
            self._recorded(ping, record.ping)
        watched = {topic for topic in ping.named_urls if self.model.subscriptions_of(topic)}
        assert len(record.watched) == len(watched)
        assert set(record.watched) == watched
        self.model.asked |= dict.fromkeys(watched, self.now)

    def _recorded(self, ping: Ping, record: Ping) -> None:
        assert record.id > self.last_ping
        assert record == evolve(ping, id=record.id)
        self.last_ping = record.id
        self.model.pings.append(record)

    @rule(limit=limits, data=st.data())
    def page_pings(self, limit: int, data: st.DataObject) -> None:
        since, until = self.past(data), self.past(data)
        expected = self.model.pings_between(since, until)
        before: Ping | None = None
        for start in range(0, len(expected) + 1, limit):
            slice_ = self.call(self.store.pings, since, until, before, limit)
            assert slice_ == expected[start : start + limit]
            before = slice_[-1] if slice_ else before

    @rule(data=st.data())
    def prune_pings(self, data: st.DataObject) -> None:
        before = self.past(data)
        kept = [ping for ping in self.model.pings if ping.received_at >= before]
        pruned = len(self.model.pings) - len(kept)
        assert self.call(self.store.prune_pings, before) == pruned
        self.model.pings = kept
        self.model.pruned += pruned

    # topics

    @rule(
        url=topics,
        content=contents,
        pinged=st.booleans(),
        data=st.data(),
    )
    def record_reading(self, url: str, content: bytes, pinged: bool, data: st.DataObject) -> None:
        known = self.model.topics.get(url, Topic(url))
        # One fetch at a time: none begins before the last one that was recorded.
        started_at = max(self.past(data), known.read_at or 0.0)
        reading = Reading(url, digest=digest_of(content), size=len(content), started_at=started_at)
        ping = Ping(url, url, self.now, rss_url=url) if pinged else None
        record = self.call(self.store.record_reading, reading, ping)
        assert record.changed == ((known.digest, known.size) != (reading.digest, reading.size))
        changed_at = started_at if record.changed else known.changed_at
        topic = Topic(url, reading.digest, reading.size, started_at, changed_at)
        assert record.topic == topic
        self.model.topics[url] = topic
        if self.model.asked.get(url, END_OF_TIME) <= started_at:
            del self.model.asked[url]
        if record.changed and ping is not None:
            self._recorded(ping, record.ping)
        else:
            assert record.ping is None
        if record.changed and self.model.subscriptions_of(url):
            self._begun(url)

    def _begun(self, topic: str) -> None:
        """Take in the walk that the store began last."""
        walk = self.call(self.store.fanouts, ALL)[-1]
        assert (walk.topic, walk.cursor) == (topic, 0)
        assert walk.id > max(self.known_walks, default=0)
        self.model.walks[walk.id] = self.known_walks[walk.id] = walk

    @rule(limit=limits)
    def look_at_checks(self, limit: int) -> None:
        due = self.call(self.store.checks_due, limit)
        asked = [self.model.asked[url] for url in due]
        assert asked == sorted(self.model.asked.values())[:limit]
        assert len(set(due)) == len(due)

    @rule(url=topics)
    def request_check(self, url: str) -> None:
        watched = bool(self.model.subscriptions_of(url))
        assert self.call(self.store.request_check, url, self.now) == watched
        if watched:
            self.model.asked[url] = self.now

    @rule(url=topics, data=st.data())
    def drop_check(self, url: str, data: st.DataObject) -> None:
        asked_until = self.past(data)
        self.call(self.store.drop_check, url, asked_until)
        if self.model.asked.get(url, END_OF_TIME) <= asked_until:
            del self.model.asked[url]
