"""What one account follows is its own: what others learn is the same as if nobody followed it.

Each test lets two brokers live through the same.  At one of them somebody follows the feed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rsscloud_broker import model
from rsscloud_broker.core import TopicView
from rsscloud_broker.errors import EndedTopic, Refused, TopicUnreadable
from rsscloud_broker.model.ways import ChangeSource, Way
from rsscloud_broker.model.work import Bounds, History
from rsscloud_broker.sinks.log_of_events import entries_of
from rsscloud_broker.sinks.statistics import numbers
from tests.core.house import CALLBACK, DAY, FEED, NOW, BrokerTestCase

CALLER = "192.0.2.1"
FOLLOWER = model.Callback("http://broker.example/river/feeds/1", "river")


def alike(test: Callable[[PrivateFollowerTests], None]) -> Callable[[PrivateFollowerTests], None]:
    """Have two brokers live through a test; strangers must see the same at both."""

    @wraps(test)
    def at_both(self: PrivateFollowerTests) -> None:
        shown = []
        for self.followed in (False, True):
            self.setUp()
            test(self)
            shown.append(self.seen())
        self.assertEqual(shown[1], shown[0])

    return at_both


class PrivateFollowerTests(BrokerTestCase):
    """:ivar followed: whether somebody follows the feed."""

    followed = False

    def setUp(self) -> None:
        super().setUp()
        self.answers: list[object] = []
        self.patch(self.store, "_bounds", Bounds(history=History()))

    def follow(self) -> None:
        """Follow the feed, and have it fetched, if this is the broker where somebody does."""
        if self.followed:
            wanted = model.Subscription(FEED, FOLLOWER, model.Lease(self.clock.wall_seconds(), DAY))
            self.result(self.store.put_subscription(wanted))
            self.poll()

    def poll(self) -> None:
        """Fetch the feed, as it happens for followers only."""
        if self.followed:
            self.detector.check_now(FEED).addErrback(lambda failure: failure.trap(TopicUnreadable))
            self.clock.advance(1)

    def ask(self, call: Any) -> None:
        """Do as a stranger does, and keep the answer."""

        def refused(failure: Failure) -> tuple[str, str]:
            failure.trap(Refused)
            return type(failure.value).__name__, failure.getErrorMessage()

        asked = Deferred.fromCoroutine(call).addErrback(refused)
        self.answers.append(self.result(asked))

    def ping(self) -> None:
        self.ask(self.broker.ping_topic(FEED, CALLER))
        self.clock.advance(1)

    def change(self) -> None:
        self.fetcher.contents[FEED] += b"<!-- more -->"

    def seen(self) -> dict[str, Any]:
        """All that strangers see, without times and ids."""
        view = TopicView(self.store, self.clock)
        events = [*self.bus.logged, *self.bus.events]
        entries = [
            evolve(entry, at=0.0, numbers=dict.fromkeys(entry.numbers, 0.0))
            for event in events
            for entry in entries_of(event, NOW)
        ]
        kept = self.result(self.store.kept_changes(0, 100))
        overview = self.result(view.overview(FEED, True))
        return {
            "answers": self.answers,
            "log": entries,
            "pings": [evolve(each, received_at=0.0, id=0) for each in self.pings()],
            "changes": [(each.url, each.way, each.origin) for each in kept],
            "overview": overview and (overview.subscriptions, overview.status.feed),
            "list": [evolve(each, id=0) for each in self.result(view.watched(0, 100))],
            "statistics": numbers(self.counters),
        }

    @alike
    def test_nothing_is_seen_of_a_topic_that_is_only_followed(self) -> None:
        self.follow()
        for _ in range(3):
            self.change()
            self.poll()
        self.fetcher.failures[FEED] = TopicUnreadable(FEED, "its server is broken")
        self.poll()
        self.fetcher.failures[FEED] = EndedTopic(FEED, "it is gone for good")
        self.poll()
        self.assertEqual(self.seen()["log"], [])

    @alike
    def test_a_ping_of_a_stranger(self) -> None:
        """The broker knows the content already, and answers as if it did not."""
        self.follow()
        self.ping()
        self.ping()
        self.assertEqual(self.answers, [True, False])

    @alike
    def test_later_pings_see_what_changed_since_the_first(self) -> None:
        self.ping()
        self.follow()
        self.change()
        self.poll()
        self.ping()
        before = self.fetcher.contents[FEED]
        self.change()
        self.poll()
        self.fetcher.contents[FEED] = before
        self.ping()
        self.assertEqual(self.answers, [True, True, False])

    @alike
    def test_the_requests_of_a_ping_carry_nothing_that_the_broker_knew(self) -> None:
        self.fetcher.validators[FEED] = model.Validators('"1"')
        self.follow()
        self.ping()
        self.ping()
        asked = [validators for validators, _ in self.fetcher.asked]
        polled = [model.NO_VALIDATORS] * self.followed
        self.assertEqual(asked, [*polled, model.NO_VALIDATORS, model.Validators('"1"')])

    @alike
    def test_other_pings(self) -> None:
        self.follow()
        self.ask(self.broker.ping(model.Ping("A site", FEED, NOW), 0.0, CALLER))
        self.clock.advance(1)
        self.ask(self.broker.publish([FEED], CALLER))
        self.clock.advance(1)
        self.ask(self.broker.ping_topic(FEED, CALLER, way=Way.PAGE))

    @alike
    def test_a_feed_that_fails(self) -> None:
        self.follow()
        self.fetcher.failures[FEED] = TopicUnreadable(FEED, "its server is broken")
        self.poll()
        self.ping()
        self.ask(self.broker.publish([FEED], CALLER))
        self.clock.advance(1)
        self.ask(self.broker.publish([FEED], CALLER))

    @alike
    def test_a_publish_of_a_feed_that_waits_for_a_retry(self) -> None:
        """The broker fetches it at once, and not a second after the fetch that failed."""
        self.follow()
        self.fetcher.failures[FEED] = TopicUnreadable(FEED, "its server is broken")
        self.ask(self.broker.publish([FEED], CALLER))
        self.clock.advance(0.1)
        del self.fetcher.failures[FEED]
        self.ask(self.broker.publish([FEED], CALLER))
        self.clock.advance(0.1)
        self.assertEqual(len(self.pings()), 1)

    @alike
    def test_a_publish_at_another_node_during_a_fetch_that_fails(self) -> None:
        self.follow()
        held = self.fetcher.held = []
        self.fetcher.failures[FEED] = TopicUnreadable(FEED, "its server is broken")
        self.ask(self.broker.publish([FEED], CALLER))
        self.clock.advance(0.1)
        now, cause = self.clock.wall_seconds(), ChangeSource(Way.WEBSUB)
        self.result(self.store.request_check(FEED, now, True, "198.51.100.7", False, cause))
        self.fetcher.held = None
        held[0].callback(None)
        del self.fetcher.failures[FEED]
        self.clock.pump([0.1] * 20)
        self.assertEqual(len(self.pings()), 1)

    @alike
    def test_a_ping_of_what_cannot_be_read_before_a_restart(self) -> None:
        """For strangers nobody has the feed, so it is not fetched again for their pings."""
        self.start()
        self.follow()
        self.fetcher.failures[FEED] = TopicUnreadable(FEED, "its server is broken")
        self.ask(self.broker.ping_topic(FEED, CALLER, again=True))
        self.detector.stopService()
        del self.fetcher.failures[FEED]
        self.change()
        self.detector.startService()
        self.clock.advance(6)
        self.assertEqual(self.pings(), [])

    @alike
    def test_a_feed_that_is_gone(self) -> None:
        self.follow()
        self.fetcher.failures[FEED] = EndedTopic(FEED, "it is gone for good")
        self.poll()
        self.ping()
        self.ask(self.broker.accept(model.Intent(FEED, CALLBACK, DAY)))

    @alike
    def test_a_subscriber(self) -> None:
        self.follow()
        intent = model.Intent(FEED, CALLBACK, DAY, source=CALLER)
        self.answers.append(self.result(self.broker.subscribe(intent)).attempts)
        self.ping()
        self.change()
        self.ping()
        self.assertEqual(len(self.seen()["list"]), 1)

    @alike
    def test_what_a_follower_is_told_is_no_ping(self) -> None:
        self.follow()
        self.change()
        if self.followed:
            self.result(self.broker.fetch_for_followers(FEED, CALLER))
            self.assertEqual(self.fetcher.fetched.count(FEED), 2)
        self.assertEqual(self.pings(), [])

    def test_its_follower_is_notified_of_each_change(self) -> None:
        self.followed = True
        self.follow()
        self.change()
        self.poll()
        for fanout in self.walks():
            self.assertFalse(fanout.is_public)
        self.assertEqual(len(self.walks()), 1)

    def test_what_a_follower_is_told_is_no_ping_after_a_retry(self) -> None:
        """Not even of a topic that strangers know, whose retries are listed as its pings are."""
        self.start()
        self.subscribe()
        self.detector.check_now(FEED)
        self.change()
        self.fetcher.failures[FEED] = TopicUnreadable(FEED, "its server is broken")
        self.result(self.broker.fetch_for_followers(FEED, CALLER))
        self.clock.advance(1)
        del self.fetcher.failures[FEED]
        self.clock.advance(6)
        status = self.status()
        self.assertEqual((status.result, status.pinged_at), ("it came", None))
        self.assertEqual(self.pings(), [])

    def test_what_a_follower_is_told_is_no_ping_if_the_feed_moves(self) -> None:
        new_url = "http://new.example/feed"
        self.start()
        self.subscribe()
        self.subscribe(new_url)
        for url in (FEED, new_url):
            self.fetcher.contents[url] = b"<rss>1</rss>"
            self.detector.check_now(url)
        self.fetcher.moves[FEED] = new_url
        self.fetcher.contents[new_url] = b"<rss>2</rss>"
        self.clock.advance(1)
        self.result(self.broker.fetch_for_followers(FEED, CALLER))
        self.clock.advance(1)
        status = self.status()
        self.assertEqual((status.topic.url, status.topic.changed_at), (new_url, NOW + 1))
        self.assertEqual(self.pings(), [])

    def begin_fetch_for_followers(self) -> list[Deferred[None]]:
        """Begin to fetch a watched feed that has changed.

        :returns: what lets its server answer, of this fetch and of later ones.
        """
        self.start()
        self.subscribe()
        self.detector.check_now(FEED)
        self.change()
        held: list[Deferred[None]] = []
        self.fetcher.held = held
        self.result(self.broker.fetch_for_followers(FEED, CALLER))
        return held

    def test_a_ping_is_listed_once_if_its_feed_is_fetched_for_followers_too(self) -> None:
        """A weblogUpdates ping is listed when it comes, and not when its feed is fetched."""
        held = self.begin_fetch_for_followers()
        ping = model.Ping(FEED, FEED, self.clock.wall_seconds(), rss_url=FEED)
        self.result(self.broker.ping(ping, 60, CALLER))
        self.result(self.broker.fetch_for_followers(FEED, CALLER))
        for answer in held:
            answer.callback(None)
        self.assertEqual(len(self.pings()), 1)

    def test_a_ping_is_listed_that_comes_while_the_feed_is_fetched_for_followers(self) -> None:
        """A publisher who pings two hubs is listed, whichever of them is quicker."""
        held = self.begin_fetch_for_followers()
        self.result(self.broker.publish([FEED], CALLER))
        for answer in held:
            answer.callback(None)
        self.assertEqual(len(self.pings()), 1)
