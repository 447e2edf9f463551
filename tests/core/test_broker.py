"""The verbs: store, then publish, then return; unverified requests store nothing."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from attrs import evolve
from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from rsscloud_broker.core import Broker
from rsscloud_broker.events import (
    Event,
    PingReceived,
    SubscriptionRemoved,
    SubscriptionStored,
    TopicChanged,
)
from rsscloud_broker.interfaces import IBroker
from rsscloud_broker.model import (
    CallbackFailed,
    Fanout,
    Intent,
    Lease,
    Outcome,
    Ping,
    Subscription,
    TopicUnreadable,
    Unavailable,
    UnsupportedProtocol,
)
from rsscloud_broker.testing import FakeNotifier
from tests.core.house import CALLBACK, FEED, NOW, CoreTestCase

T = TypeVar("T")

HOME = "http://site.example/"
LEASE = 90_000


class BrokerTestCase(CoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.notifier = FakeNotifier("http-post")
        notifiers = {"http-post": self.notifier, "soap": FakeNotifier("soap")}
        self.broker = Broker(self.store, self.bus, self.detector, notifiers, self.clock)
        self.start()

    def result(self, call: Coroutine[Any, Any, T]) -> T:
        result: T = self.successResultOf(Deferred.fromCoroutine(call))
        return result

    def refusal(self, call: Coroutine[Any, Any, object], kind: type[Exception]) -> Exception:
        error: Exception = self.failureResultOf(Deferred.fromCoroutine(call), kind).value
        return error

    def subscriptions(self) -> list[Subscription]:
        found: list[Subscription] = self.successResultOf(self.store.subscriptions(FEED, 0, 100))
        return found


class BrokerTests(BrokerTestCase):
    def test_interface(self) -> None:
        self.assertTrue(verifyObject(IBroker, self.broker))
        self.assertEqual(self.broker.protocols, {"http-post", "soap"})


class SubscribeTests(BrokerTestCase):
    intent = Intent(FEED, CALLBACK, LEASE)

    def assert_nothing_stored(self) -> None:
        self.assertIsNone(self.successResultOf(self.store.topic(FEED)))
        self.assertEqual((self.subscriptions(), self.bus.events), ([], []))

    def test_verified_subscription_is_stored(self) -> None:
        subscription = self.result(self.broker.subscribe(self.intent))
        self.assertEqual((subscription.topic, subscription.callback), (FEED, CALLBACK))
        self.assertEqual(subscription.lease, Lease(NOW, LEASE))
        self.assertEqual(self.subscriptions(), [subscription])
        self.assertEqual(self.notifier.verified, [self.intent])
        self.assertEqual(self.bus.events, [SubscriptionStored(subscription)])

    def test_stored_before_published(self) -> None:
        found: list[Subscription] = []
        self.bus.on_publish = lambda event: found.extend(self.subscriptions())
        subscription = self.result(self.broker.subscribe(self.intent))
        self.assertEqual(found, [subscription])

    def test_the_first_reading_is_kept_for_comparison(self) -> None:
        self.result(self.broker.subscribe(self.intent))
        topic = self.successResultOf(self.store.topic(FEED))
        self.assertEqual((topic.read_at, topic.size), (NOW, 12))
        self.assertFalse(self.result(self.broker.ping_topic(FEED)))

    def test_topic_is_read_before_the_callback_is_called(self) -> None:
        self.fetcher.held = []
        subscribing = Deferred.fromCoroutine(self.broker.subscribe(self.intent))
        self.assertEqual(self.notifier.verified, [])
        self.fetcher.held[0].callback(None)
        self.assertEqual(self.notifier.verified, [self.intent])
        self.successResultOf(subscribing)

    def test_callback_that_fails_stores_nothing(self) -> None:
        self.notifier.outcomes[CALLBACK.url] = Outcome(False, "it said no")
        error = self.refusal(self.broker.subscribe(self.intent), CallbackFailed)
        self.assertEqual(str(error), "it said no")
        self.assert_nothing_stored()

    def test_notifier_with_a_bug_stores_nothing(self) -> None:
        self.notifier.outcomes[CALLBACK.url] = ZeroDivisionError()
        self.refusal(self.broker.subscribe(self.intent), ZeroDivisionError)
        self.assert_nothing_stored()

    def test_unreadable_topic(self) -> None:
        del self.fetcher.contents[FEED]
        error = self.refusal(self.broker.subscribe(self.intent), TopicUnreadable)
        self.assertIn(FEED, str(error))
        self.assertEqual(self.notifier.verified, [])
        self.assert_nothing_stored()

    def test_unsupported_protocol(self) -> None:
        intent = evolve(self.intent, callback=evolve(CALLBACK, protocol="carrier-pigeon"))
        error = self.refusal(self.broker.subscribe(intent), UnsupportedProtocol)
        self.assertIn("'carrier-pigeon'", str(error))
        self.assertEqual(self.fetcher.fetched, [])
        self.assert_nothing_stored()

    def test_unavailable_store(self) -> None:
        self.unavailable.add("record_reading")
        self.refusal(self.broker.subscribe(self.intent), Unavailable)
        self.assertEqual((self.subscriptions(), self.bus.events), ([], []))

    def test_renewal(self) -> None:
        first = self.result(self.broker.subscribe(self.intent))
        self.clock.advance(1000)
        renewed = self.result(self.broker.subscribe(self.intent))
        self.assertEqual(renewed, evolve(first, lease=Lease(NOW + 1000, LEASE)))
        self.assertEqual(self.subscriptions(), [renewed])
        self.assertEqual(len(self.notifier.verified), 2)

    def test_renewal_that_is_not_confirmed_changes_nothing(self) -> None:
        first = self.result(self.broker.subscribe(self.intent))
        self.notifier.outcomes[CALLBACK.url] = Outcome(False, "gone")
        self.clock.advance(1000)
        self.refusal(self.broker.subscribe(self.intent), CallbackFailed)
        self.assertEqual(self.subscriptions(), [first])

    def test_change_found_while_subscribing_is_news_to_the_others(self) -> None:
        self.result(self.broker.subscribe(self.intent))
        self.fetcher.contents[FEED] = b"<rss>2</rss>"
        del self.bus.events[:]
        other = evolve(self.intent, callback=evolve(CALLBACK, url="http://other.example/"))
        self.result(self.broker.subscribe(other))
        self.assertEqual(self.bus.events[0], TopicChanged(FEED, NOW))
        self.assertEqual(len(self.successResultOf(self.store.fanouts(10))), 1)

    def test_reading_of_somebody_faster_is_kept(self) -> None:
        verify = self.notifier.verify

        async def slow(intent: Intent) -> Outcome:
            self.fetcher.contents[FEED] = b"<rss>2</rss>"
            self.successResultOf(self.detector.check(FEED))  # meanwhile
            return await verify(intent)

        self.patch(self.notifier, "verify", slow)
        self.result(self.broker.subscribe(self.intent))
        self.assertFalse(self.result(self.broker.ping_topic(FEED)))

    def test_unsubscribe(self) -> None:
        self.result(self.broker.subscribe(self.intent))
        del self.bus.events[:]
        self.assertTrue(self.result(self.broker.unsubscribe(FEED, CALLBACK)))
        self.assertFalse(self.result(self.broker.unsubscribe(FEED, CALLBACK)))
        self.assertEqual(self.subscriptions(), [])
        self.assertEqual(self.bus.events, [SubscriptionRemoved(FEED, CALLBACK.url)])


class PingTests(BrokerTestCase):
    ping = Ping("A site", HOME, NOW, rss_url=FEED)

    def test_ping_is_stored_then_published(self) -> None:
        stored: list[Ping] = []
        self.bus.on_publish = lambda event: stored.extend(self.pings())
        self.result(self.broker.ping(self.ping, 60))
        (ping,) = self.pings()
        self.assertEqual(ping, evolve(self.ping, id=ping.id))
        self.assertEqual((stored, self.bus.events), ([ping], [PingReceived(ping)]))
        self.assertEqual(self.fetcher.fetched, [])

    def test_repeat_is_not_published(self) -> None:
        for _ in range(2):
            self.result(self.broker.ping(self.ping, 60))
        self.assertEqual((len(self.pings()), len(self.bus.events)), (1, 1))

    def test_watched_topics_are_read_after_it_returns(self) -> None:
        self.subscribe()
        self.fetcher.held = []
        self.result(self.broker.ping(self.ping, 60))
        self.assertEqual(self.due(), [FEED])
        self.fetcher.held[0].callback(None)
        self.assertEqual(self.bus.events[-1], TopicChanged(FEED, NOW))
        self.assertEqual(self.due(), [])

    def test_repeat_asks_for_watched_topics_too(self) -> None:
        self.subscribe()
        self.result(self.broker.ping(self.ping, 60))
        self.fetcher.contents[FEED] = b"<rss>2</rss>"
        self.result(self.broker.ping(self.ping, 60))
        self.assertEqual(self.bus.events.count(TopicChanged(FEED, NOW)), 2)

    def test_store_that_is_unavailable_takes_nothing(self) -> None:
        self.unavailable.add("add_ping")
        self.refusal(self.broker.ping(self.ping, 60), Unavailable)
        self.assertEqual((self.pings(), self.bus.events), ([], []))


class PingTopicTests(BrokerTestCase):
    def test_changed_or_not(self) -> None:
        self.assertTrue(self.result(self.broker.ping_topic(FEED)))
        self.assertFalse(self.result(self.broker.ping_topic(FEED)))
        self.assertEqual(len(self.pings()), 1)

    def test_fan_out_is_stored_before_it_is_published(self) -> None:
        self.subscribe()
        walks: list[Fanout] = []

        def look(event: Event) -> None:
            if isinstance(event, TopicChanged):
                walks.extend(self.successResultOf(self.store.fanouts(10)))

        self.bus.on_publish = look
        self.assertTrue(self.result(self.broker.ping_topic(FEED)))
        self.assertEqual([walk.topic for walk in walks], [FEED])

    def test_unreadable(self) -> None:
        error = self.refusal(self.broker.ping_topic("http://gone.example/"), TopicUnreadable)
        self.assertIn("status 404", str(error))
        self.assertEqual((self.pings(), self.bus.events), ([], []))
