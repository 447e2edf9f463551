"""Tests that ended subscriptions are deleted at the top of the hour, and not before."""

from __future__ import annotations

from rsscloud_broker.config import Topics
from rsscloud_broker.core import Access, Sweeper
from rsscloud_broker.core.sweeper import IDLE_TOPIC_SECONDS
from rsscloud_broker.errors import EndedTopic
from rsscloud_broker.events import SubscriptionsSwept, TopicEnded
from rsscloud_broker.model import Callback, Lease, Outcome, Subscription
from rsscloud_broker.model.work import Delivery, Swept
from rsscloud_broker.storage.sweeping import PORTION
from rsscloud_broker.util.clock import LEAST_PAUSE
from tests.core.house import FEED, NOW, CoreTestCase

HOUR = 3600


class SweeperTests(CoreTestCase):
    """Each test begins at a full hour."""

    def setUp(self) -> None:
        super().setUp()
        self.sweeper = self.a_sweeper(Topics())
        self.sweeper.startService()
        self.addCleanup(self.sweeper.stopService)

    def a_sweeper(self, topics: Topics) -> Sweeper:
        access = Access(topics, self.blocks)
        return Sweeper(self.store, self.bus, self.clock, access, self.detector.reader.forget)

    def put(self, name: str, expires_at: float, topic: str = FEED) -> Subscription:
        seconds = 1000
        wanted = Subscription(
            topic,
            Callback(f"http://{name}.example/", "http-post"),
            Lease(expires_at - seconds, seconds),
        )
        stored: Subscription = self.result(self.store.put_subscription(wanted))
        return stored

    def mark(self, subscription: Subscription) -> None:
        self.fetch()
        (walk,) = self.walks()
        failure = Delivery(
            subscription, Outcome(False, "gone"), self.clock.wall_seconds(), drop_after_failures=1
        )
        self.result(self.store.record_slice(walk, subscription.id, [failure], True))
        del self.bus.events[:]

    def left(self, limit: int = 100) -> list[str]:
        found = self.result(self.store.subscriptions(FEED, 0, limit))
        return [subscription.callback.url for subscription in found]

    def test_expired_and_marked_go_at_the_top_of_the_hour(self) -> None:
        bad = self.put("dropping", NOW + 10 * HOUR)
        self.put("expired", NOW + 60)
        self.put("just", NOW + HOUR)
        self.put("kept", NOW + HOUR + 1)
        self.mark(bad)
        self.clock.advance(HOUR - 1)
        self.assertEqual((len(self.left()), self.bus.events), (4, []))
        self.clock.advance(1)
        self.assertEqual(self.left(), ["http://kept.example/"])
        self.assertEqual(
            self.bus.events, [SubscriptionsSwept(Swept(expired=2, failing=1), NOW + HOUR)]
        )

    def test_subscriptions_stay_though_the_clock_is_ahead_for_a_moment(self) -> None:
        self.put("kept", NOW + 10 * HOUR)
        self.clock.advance(HOUR)
        for by in (365 * 24 * HOUR, -365 * 24 * HOUR):
            self.clock.set_wall(by)
            self.clock.pump([5.0] * 2)
        self.assertEqual(len(self.bus.events), 3, "it has swept each time")
        self.assertEqual(self.left(), ["http://kept.example/"])

    def test_very_many_go_in_portions(self) -> None:
        """Between two portions others get their turn; the log has one entry for all."""
        for number in range(2 * PORTION + 1):
            self.put(f"expired{number}", NOW + 60)
        self.clock.advance(HOUR)
        self.assertEqual((len(self.left(200)), self.bus.events), (PORTION + 1, []))
        self.clock.advance(LEAST_PAUSE)
        self.assertEqual((len(self.left(200)), self.bus.events), (1, []))
        self.clock.advance(LEAST_PAUSE)
        (event,) = self.bus.events
        assert isinstance(event, SubscriptionsSwept)
        self.assertEqual((event.swept.expired, event.swept.after), (2 * PORTION + 1, None))

    def test_one_that_is_marked_and_expired_is_one_of_a_portion(self) -> None:
        self.mark(self.put("both", NOW + 30))
        for number in range(PORTION):
            self.put(f"expired{number}", NOW + 60)
        self.clock.advance(HOUR)
        self.clock.advance(LEAST_PAUSE)
        self.assertEqual(self.left(), [])

    def test_stopped_between_portions(self) -> None:
        for number in range(PORTION + 1):
            self.put(f"expired{number}", NOW + 60)
        self.clock.advance(HOUR)
        self.assertIsNone(self.sweeper.stopService())  # there is nothing to wait for
        self.assertEqual((len(self.left(200)), self.clock.getDelayedCalls()), (1, []))

    def test_topics_that_nobody_watches_are_forgotten(self) -> None:
        self.fetch()
        self.clock.advance(IDLE_TOPIC_SECONDS - HOUR)
        self.assertIsNotNone(self.known())
        self.clock.advance(2 * HOUR)
        self.assertIsNone(self.known())

    def test_topics_that_are_not_allowed_any_more_end(self) -> None:
        elsewhere = "http://elsewhere.example/"
        self.fetcher.contents[elsewhere] = b"<rss/>"
        for topic in (FEED, elsewhere):
            self.subscribe(topic)
        self.fetch(elsewhere)  # it is cached now
        del self.bus.events[:]
        topics = Topics(subscribe=("http://feeds.example/*",))
        sweeper = self.a_sweeper(topics)
        for _ in range(2):  # the second sweep logs nothing
            self.result(sweeper.sweep())
        self.assertEqual([event.topic for event in self.published(TopicEnded)], [elsewhere])
        self.assertEqual(self.walked(), [elsewhere])
        self.failureResultOf(self.detector.check_now(elsewhere), EndedTopic)
