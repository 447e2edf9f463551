"""Rules of the state machine that tests stores: pings, topics and contents."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import sha256
from typing import Any, TypeAlias

from attrs import evolve
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from twisted.internet.defer import maybeDeferred
from twisted.python.failure import Failure

from rsscloud_broker.model import Content, FetchResult, Ping, Subscription, Topic
from rsscloud_broker.model.ways import ChangeSource, Way
from rsscloud_broker.model.work import Check, Fanout, PollPlan
from rsscloud_broker.storage import Store
from rsscloud_broker.util.urls import normal_form
from tests.storage.waiting import waiting_checks
from tests.store_contract.model import WINDOW, Model, Walk

#: Calls a method of the store with its arguments, and returns the result of its Awaitable.
Call: TypeAlias = Callable[..., Any]

#: A limit larger than any number of rows, and a time later than any other.
ALL, END_OF_TIME = 1_000_000, 4e9

HOUR = 3600

# There are few values of each kind, so that steps often concern the same topic.
TOPICS = ("http://feeds.example/a.xml", "http://feeds.example/b.xml")

#: The URLs of topics, and one more to which topics can only move.
PLACES = (*TOPICS, "http://moved.example/c.xml")

topics = st.sampled_from(TOPICS)
_places = st.sampled_from(PLACES)
limits = st.integers(1, 5)
contents = st.sampled_from((b"1", b"2", b"22"))
_names = st.sampled_from(("A site", "Ünïcode & <co>"))
_urls = st.sampled_from(("http://site.example/", *TOPICS))
_tags = st.sampled_from(((), ("t",), ("a|b", "c")))


def digest_of(content: bytes) -> bytes:
    """The digest by which contents are compared."""
    return sha256(content).digest()


def call_now(method: Callable[..., Any], *arguments: Any) -> Any:
    """Call a method of a store whose Deferreds have fired, and return its result."""
    results: list[Any] = []
    maybeDeferred(method, *arguments).addBoth(results.append)
    (result,) = results
    if isinstance(result, Failure):
        result.raiseException()
    return result


class PingsAndTopics(RuleBasedStateMachine):
    """Runs a store and the model side by side, at a time that only goes forward.

    :param fixture: makes an empty store that is ready for use.
    :param call: calls a method of the store and waits for its result; the default is for stores
        whose Deferreds have fired, such as ``memory_store``.
    """

    def __init__(
        self, fixture: Callable[[], AbstractContextManager[Store]], call: Call = call_now
    ) -> None:
        super().__init__()
        self.fixture = fixture()
        self.store = self.fixture.__enter__()
        self.call = call
        self.model = Model()
        self.now = 1_714_561_200.0
        # Everything that ever existed, since ids are never used again.
        self.known_subscriptions: list[Subscription] = []
        self.known_walks: dict[int, Fanout] = {}
        self.last_ping = 0
        self.last_content = 0
        # The numbers of contents in the model, by their keys in the store.
        self.known_contents: dict[int, int] = {}

    def teardown(self) -> None:
        self.fixture.__exit__(None, None, None)

    @rule(seconds=st.sampled_from((0.25, 59.75, 60.0, 5.0 * HOUR)))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(data=st.data())
    def time_comes(self, data: st.DataObject) -> None:
        """Go on to a moment at which something is due or ends."""
        self.go_on(data, self.model.moments())

    def go_on(self, data: st.DataObject, moments: set[float]) -> None:
        """Go on to one of the given moments that lies in the future, or stay."""
        coming = {at for at in moments if at > self.now}
        self.now = data.draw(st.sampled_from(sorted(coming | {self.now})))

    def past(self, data: st.DataObject) -> float:
        """A moment in the past, or now."""
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
        # Ended topics are not fetched, so it does not matter whether ``watched`` has them.
        active = [topic for topic in record.watched if not self.model.has_ended(topic)]
        watched = {
            self.model.current_url(topic)
            for topic in map(normal_form, ping.named_urls)
            if self.model.subscriptions_of(topic) and not self.model.has_ended(topic)
        }
        assert len(active) == len(watched)
        assert set(active) == watched
        self.model.asked |= dict.fromkeys(watched, self.now)

    def _recorded(self, ping: Ping, record: Ping) -> None:
        assert record.id > self.last_ping
        assert record == evolve(ping, id=record.id)
        self.last_ping = record.id
        self.model.pings.append(record)

    @rule(data=st.data())
    def prune_pings(self, data: st.DataObject) -> None:
        before = self.past(data)
        kept = [ping for ping in self.model.pings if ping.received_at >= before]
        pruned = len(self.model.pings) - len(kept)
        assert self.call(self.store.prune_pings, before, 1000) == pruned
        self.model.pings = kept
        self.model.pruned += pruned

    # topics

    def new_content(self, body: bytes) -> Content:
        """A content that differs from all others."""
        self.last_content += 1
        return Content(body, f"text/xml; n={self.last_content}", self.last_content % 2 * "<x>")

    def _keep(self, topic: str, content: Content) -> int:
        self.model.contents[self.last_content] = (topic, content)
        return self.last_content

    @rule(
        url=topics,
        content=contents,
        given=st.sampled_from((True, True, False)),
        pinged=st.booleans(),
        data=st.data(),
    )
    def record_fetch(
        self, url: str, content: bytes, given: bool, pinged: bool, data: st.DataObject
    ) -> None:
        # The broker runs one fetch of a topic at a time, so none began before the last one.
        known = self.model.topic(url)
        last = (known and known.read_at) or 0.0
        self.read(url, content, given, pinged, max(self.past(data), last))

    def read(self, url: str, content: bytes, given: bool, pinged: bool, started_at: float) -> None:
        current = self.model.current_url(url)
        known = self.model.topics.get(current, Topic(current))
        found = self.new_content(content) if given else None
        # What is fetched for private followers only is in ``kept``.
        digest, open_way = digest_of(content), Way.RSSCLOUD
        reading = FetchResult(url, digest, len(content), started_at, found, way=open_way)
        ping = Ping(url, url, self.now, rss_url=url) if pinged else None
        record = self.call(self.store.record_fetch, reading, ping)
        if known.ended:
            assert (record.topic, record.changed) == (self.model.topic(url), False)
            assert record.ping is None
            return
        assert record.changed == ((known.digest, known.size) != (reading.digest, reading.size))
        changed_at = started_at if record.changed else known.changed_at
        topic = Topic(current, reading.digest, reading.size, started_at, changed_at, known.ended)
        self.model.topics[current] = topic
        self.model.failures[current] = 0
        assert record.topic == self.model.topic(url)
        if self.model.asked.get(current, END_OF_TIME) <= started_at:
            self.model.no_check(current)
        if record.changed and ping is not None:
            self._recorded(ping, record.ping)
        else:
            assert record.ping is None
        key = self._record_content(current, found, record.changed)
        lacks_content = record.changed and key is None and self.model.wanted(url)
        if record.changed and self.model.subscriptions_of(url):
            self.model.walks.append(Walk(current, started_at, key, lacks_content=lacks_content))
        assert record.content_awaited == (key is not None and not record.changed)
        if record.content_awaited:
            self.call(self.store.make_due_for_content, current, started_at)
            self.model.use_content(current, key, started_at)

    def _record_content(self, url: str, found: Content | None, changed: bool) -> int | None:
        """Keep the content if something needs it, and return its number."""
        wanted = self.model.wanted(url)
        if not changed:
            waited_for = self.model.waited_for(url) or self.model.lacks_content(url)
            wanted = waited_for and self.model.newest_of(url) is None
        elif not wanted or found is None:
            self.model.remove_outdated(url)
        return self._keep(url, found) if wanted and found is not None else None

    @rule(url=topics, body=contents)
    def push_content(self, url: str, body: bytes) -> None:
        content = self.new_content(body)
        watched = bool(self.model.subscriptions_of(url))
        assert self.call(self.store.push_content, url, content, self.now) == watched
        if watched:
            current = self.model.current_url(url)
            self.model.topics[current] = evolve(self.model.topics[current], changed_at=self.now)
            self.model.walks.append(
                Walk(current, self.now, self._keep(current, content), pushed=True)
            )

    @rule(limit=limits)
    def look_at_checks(self, limit: int) -> None:
        due = self.call(waiting_checks, self.store, limit)
        asked = [self.model.asked[check.url] for check in due]
        assert asked == sorted(self.model.asked.values())[:limit]
        assert len({check.url for check in due}) == len(due)

    @rule(url=topics, pinged=st.booleans())
    def request_check(self, url: str, pinged: bool) -> None:
        asks = pinged or bool(self.model.subscriptions_of(url))
        asks = asks and not self.model.has_ended(url)
        assert self.call(self.store.request_check, url, self.now, pinged) == asks
        current = self.model.current_url(url)
        if pinged:
            self.model.topics.setdefault(current, Topic(current))
        if asks:
            self.model.asked[current] = self.now
        if asks and pinged:
            self.model.pinged.add(current)

    @rule(url=topics)
    def request_content(self, url: str) -> None:
        asks = bool(self.model.subscriptions_of(url)) and not self.model.has_ended(url)
        assert self.call(self.store.request_content, url, self.now) == asks
        if asks:
            self.model.asked[self.model.current_url(url)] = self.now

    @rule(url=topics, data=st.data())
    def drop_check(self, url: str, data: st.DataObject) -> None:
        asked_until = self.past(data)
        self.call(self.store.drop_check, url, asked_until)
        current = self.model.current_url(url)
        if self.model.asked.get(current, END_OF_TIME) <= asked_until:
            self.model.no_check(current)

    @rule(url=topics, reason=st.sampled_from(("gone", "moved away")))
    def end_topic(self, url: str, reason: str) -> None:
        ends = not self.model.has_ended(url)
        assert self.call(self.store.end_topic, url, reason, self.now) == ends
        if not ends:
            return
        current = self.model.current_url(url)
        known = self.model.topics.get(current, Topic(current))
        self.model.topics[current] = evolve(known, ended=reason, changed_at=self.now)
        self.model.no_check(current)
        self.model.due.pop(current, None)
        if self.model.subscriptions_of(url):
            self.model.walks.append(Walk(current, self.now))

    @rule(url=topics)
    def revive_topic(self, url: str) -> None:
        ended = self.model.has_ended(url)
        assert self.call(self.store.revive_topic, url) == ended
        if ended:
            current = self.model.current_url(url)
            self.model.topics[current] = evolve(self.model.topics[current], ended="")
            if self.model.subscriptions_of(url):
                self.model.due[current] = 0.0

    @rule(url=topics, to=_places)
    def move_topic(self, url: str, to: str) -> None:
        moves = self.model.move(url, to, self.now)
        assert self.call(self.store.move_topic, url, to, self.now) == moves

    @rule(url=topics)
    def record_failure(self, url: str) -> None:
        self.call(self.store.record_failure, url, self.now, "refused")
        current = self.model.current_url(url)
        if current in self.model.topics:
            self.model.failures[current] = self.model.failures.get(current, 0) + 1

    @rule(url=topics, seconds=st.none() | st.sampled_from((0.25, 60.0)))
    def plan_polls(self, url: str, seconds: float | None) -> None:
        at = None if seconds is None else self.now + seconds
        self.call(self.store.plan_polls, [PollPlan(url, at, "", None, self.now)])
        current = self.model.current_url(url)
        self.model.due.pop(current, None)
        if at is not None and current in self.model.topics and not self.model.has_ended(url):
            self.model.due[current] = at

    @rule(limit=limits, data=st.data())
    def look_at_polls(self, limit: int, data: st.DataObject) -> None:
        self.go_on(data, set(self.model.due.values()))
        polls = self.call(self.store.polls_due, self.now, limit)
        due = sorted(at for at in self.model.due.values() if at <= self.now)
        assert [one.next_poll_at for one in polls] == due[:limit]
        for one in polls:
            assert self.model.due[one.topic.url] == one.next_poll_at
            assert self.call(self.store.topic, one.topic.url) == one.topic
            assert self.call(self.store.topic_status, one.topic.url) == one

    # comparison

    def topics_are_as_in_the_model(self) -> None:
        model, store, call = self.model, self.store, self.call
        for url in TOPICS:
            self._status_is_as_in_the_model(url)
        due = call(waiting_checks, store, ALL)
        assert sorted(due, key=str) == sorted(
            (Check(url, cause=ChangeSource(pinged=url in model.pinged)) for url in model.asked),
            key=str,
        )
        self._contents_are_as_in_the_model()
        walks = call(store.fanouts, ALL)
        for walk, shown in zip(model.next_walks(), walks, strict=True):
            self._is_shown_as(walk, shown)
        for key, number in self.known_contents.items():
            content = call(store.content, key)
            if number not in model.contents:
                assert content is None
            elif content is not None or model.is_needed(number):
                assert content == model.contents[number][1]

    def _status_is_as_in_the_model(self, url: str) -> None:
        status = self.call(self.store.topic_status, url)
        if status is None:
            assert self.model.topic(url) is None
            return
        current = self.model.current_url(url)
        old_urls = sorted(
            old for old, (present, _) in self.model.moved.items() if present == current
        )
        assert status.topic == self.model.topic(url)
        assert status.moved_from == tuple(old_urls)
        assert status.failures == self.model.failures.get(current, 0)
        assert status.next_poll_at == self.model.due.get(current)

    def _contents_are_as_in_the_model(self) -> None:
        """Compare contents.  A store may remove a content that nothing needs at any time."""
        for url in TOPICS:
            shown = self.call(self.store.newest_content, url)
            while self.model.newest_content(url) != shown:
                newest = self.model.newest_of(url)
                assert newest is not None, "a content that is not of this topic"
                assert not self.model.is_needed(newest)
                del self.model.contents[newest]

    def _is_shown_as(self, walk: Walk, shown: Fanout) -> None:
        names = ("topic", "begun_at", "cursor", "pushed", "lacks_content", "outstanding")
        assert [getattr(shown, name) for name in names] == [getattr(walk, name) for name in names]
        if walk.shown is None:
            assert shown.id not in self.known_walks
        else:
            assert shown.id == walk.shown.id
        walk.shown = self.known_walks[shown.id] = shown
        assert (shown.content_id is None) == (walk.content is None)
        carried = None if walk.content is None else self.model.contents[walk.content][1]
        assert shown.content_size == (len(carried.body) if carried else 0)
        if shown.content_id is not None and walk.content is not None:
            assert self.known_contents.setdefault(shown.content_id, walk.content) == walk.content
