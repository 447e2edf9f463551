"""Tests the broker's methods: each stores, then publishes, then returns; unverified requests
store nothing.
"""

from __future__ import annotations

from attrs import evolve
from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from rsscloud_broker import errors, model
from rsscloud_broker.config import RateLimitOptions, Topics
from rsscloud_broker.core.broker import MAX_LOOKUPS
from rsscloud_broker.core.verification import LARGE
from rsscloud_broker.events import (
    PingReceived,
    SubscriptionRemoved,
    SubscriptionStored,
    TopicChanged,
)
from rsscloud_broker.interfaces import IBroker
from rsscloud_broker.model.ways import Way
from rsscloud_broker.model.work import Bounds
from rsscloud_broker.policy.access import NOT_ALLOWED, Access
from rsscloud_broker.policy.limiter import LEAST_PAUSE, SLOTS
from rsscloud_broker.policy.rate_limits import FAILED_PAUSE
from rsscloud_broker.util.urls import normal_form
from tests.core.house import CALLBACK, FEED, NOW, BrokerTestCase

HOME = "http://site.example/"
LEASE = 90_000
CALLER = "192.0.2.7"


class BrokerTests(BrokerTestCase):
    def test_interface(self) -> None:
        self.assertTrue(verifyObject(IBroker, self.broker))
        self.assertEqual(self.broker.protocols, {"http-post", "soap", "carrier"})
        self.assertEqual(self.broker.content_protocols, {"carrier"})


class FullDiskTests(BrokerTestCase):
    def test_nothing_new_is_taken_in(self) -> None:
        intent = model.Intent(FEED, CALLBACK, LEASE)
        self.space.full = True
        for call in (
            self.broker.ping(model.Ping("A", HOME, NOW), 60, CALLER),
            self.broker.ping_topic(FEED, CALLER),
            self.broker.publish([FEED], CALLER),
            self.broker.push_content(FEED, model.Content(b"new"), CALLER),
            self.broker.subscribe(intent),
            self.broker.accept(intent),
        ):
            self.refusal(call, errors.Unavailable)
        self.assertRaises(errors.Unavailable, self.broker.admit_examination, FEED, CALLER)
        self.assertEqual(self.result(self.store.count_pings()), 0)
        self.assertEqual(self.fetcher.fetched, [])

    def test_subscriptions_can_be_ended(self) -> None:
        self.result(self.broker.subscribe(model.Intent(FEED, CALLBACK, LEASE)))
        self.space.full = True
        self.assertTrue(
            self.result(self.broker.unsubscribe(model.Intent(FEED, CALLBACK, 1, unsubscribe=True)))
        )
        self.result(self.broker.accept(model.Intent(FEED, CALLBACK, 1, unsubscribe=True)))


class SubscribeTests(BrokerTestCase):
    intent = model.Intent(FEED, CALLBACK, LEASE)

    def assert_nothing_stored(self) -> None:
        self.assertIsNone(self.known())
        self.assertEqual((self.subscriptions(), self.bus.events), ([], []))

    def test_verified_subscription_is_stored(self) -> None:
        found: list[model.Subscription] = []
        self.bus.on_publish = lambda event: found.extend(self.subscriptions())
        subscription = self.result(self.broker.subscribe(self.intent))
        self.assertEqual(found, [subscription], "it is stored before it is published")
        self.assertEqual((subscription.topic, subscription.callback), (FEED, CALLBACK))
        self.assertEqual(subscription.lease, model.Lease(NOW, LEASE))
        self.assertEqual(self.subscriptions(), [subscription])
        self.assertEqual(self.notifier.verified, [self.intent])
        self.assertEqual(self.bus.events, [SubscriptionStored(subscription)])

    def test_the_first_reading_is_kept_for_comparison(self) -> None:
        self.result(self.broker.subscribe(self.intent))
        topic = self.known()
        self.assertEqual((topic.read_at, topic.size), (NOW, 12))
        self.assertFalse(self.result(self.broker.ping_topic(FEED, CALLER)))

    def test_what_fails_stores_nothing(self) -> None:
        strange = evolve(self.intent, callback=evolve(CALLBACK, protocol="carrier-pigeon"))
        gone = evolve(self.intent, topic="http://gone.example/")
        cases: tuple[tuple[model.Intent, model.Outcome | Exception, type[Exception], str], ...] = (
            (self.intent, model.Outcome(False, "it said no"), errors.CallbackFailed, "it said no"),
            (self.intent, ZeroDivisionError("a bug"), ZeroDivisionError, "a bug"),
            (gone, model.Outcome(True), errors.TopicUnreadable, gone.topic),
            (strange, model.Outcome(True), errors.UnsupportedProtocol, "'carrier-pigeon'"),
        )
        for intent, outcome, kind, said in cases:
            del self.notifier.verified[:], self.fetcher.fetched[:]
            self.notifier.outcomes[CALLBACK.url] = outcome
            self.assertIn(said, str(self.refusal(self.broker.subscribe(intent), kind)))
            self.assert_nothing_stored()
            self.assertEqual(bool(self.notifier.verified), intent is self.intent)
            self.assertEqual(bool(self.fetcher.fetched), intent is not strange)

    def test_courier_that_ends_says_nothing_of_the_callback(self) -> None:
        """Anyone who waits is asked to try again, and may do so at once."""
        interrupted = model.Outcome(
            False, "the process has ended", answered=False, interrupted=True
        )
        for verb in (self.broker.subscribe, self.broker.unsubscribe):
            self.notifier.outcomes[CALLBACK.url] = interrupted
            self.refusal(verb(self.intent), errors.CallsUnavailable)
            self.assert_nothing_stored()
            del self.notifier.outcomes[CALLBACK.url]
        self.result(self.broker.subscribe(self.intent))

    def test_renewal(self) -> None:
        first = self.result(self.broker.subscribe(self.intent))
        self.clock.advance(1000)
        renewed = self.result(self.broker.subscribe(self.intent))
        self.assertEqual(renewed, evolve(first, lease=model.Lease(NOW + 1000, LEASE)))
        self.assertEqual(self.subscriptions(), [renewed])
        self.assertEqual(len(self.notifier.verified), 2)

    def test_change_found_while_subscribing_is_news_to_the_others(self) -> None:
        self.result(self.broker.subscribe(self.intent))
        self.fetcher.contents[FEED] = b"<rss>2</rss>"
        del self.bus.events[:]
        other = evolve(self.intent, callback=evolve(CALLBACK, url="http://other.example/"))
        self.result(self.broker.subscribe(other))
        self.assertEqual(self.bus.events[0], TopicChanged(FEED, NOW))
        self.assertEqual(len(self.walks()), 1)

    def test_large_content_is_not_held_while_the_callback_is_verified(self) -> None:
        """If subscribers wait for the content, the topic is fetched again."""
        wanting = evolve(self.subscribe(), wants_content=True)
        self.result(self.store.put_subscription(wanting))
        self.fetch()
        (walk,) = self.walks()
        self.result(self.store.record_slice(walk, 0, [], True))
        for size, later in ((LARGE, False), (LARGE + 1, True)):
            self.fetcher.contents[FEED] = b"x" * size
            other = evolve(self.intent, callback=evolve(CALLBACK, url="http://other.example/"))
            self.result(self.broker.subscribe(other))
            walk = self.walks()[-1]
            self.assertEqual((walk.lacks_content, walk.content_id is None), (later, later))

    def test_present_content_for_who_wants_it_at_once(self) -> None:
        for protocol, wanted, waits in (
            ("carrier", False, None),
            ("carrier", True, 0),
            ("http-post", True, 0),
        ):
            callback = evolve(CALLBACK, protocol=protocol, url=f"http://r.example/{wanted}")
            intent = evolve(self.intent, callback=callback, present=wanted)
            subscription = self.result(self.broker.subscribe(intent))
            self.assertEqual(subscription.attempts, waits)

    def test_reading_of_somebody_faster_is_kept(self) -> None:
        verify = self.notifier.verify

        async def slow(intent: model.Intent) -> model.Outcome:
            self.fetcher.contents[FEED] = b"<rss>2</rss>"
            openly = self.detector.check_now(FEED, way=Way.RSSCLOUD)  # meanwhile
            self.result(openly)
            return await verify(intent)

        self.patch(self.notifier, "verify", slow)
        self.result(self.broker.subscribe(self.intent))
        self.assertFalse(self.result(self.broker.ping_topic(FEED, CALLER)))

    def test_a_change_while_the_callback_is_verified_is_told(self) -> None:
        """Without that the change is lost: the next ping finds the topic unchanged."""
        verify = self.notifier.verify

        async def slow(intent: model.Intent) -> model.Outcome:
            self.fetcher.contents[FEED] = b"<rss>2</rss>"
            await self.broker.ping_topic(FEED, CALLER)
            return await verify(intent)

        for number, known in enumerate((False, True)):
            self.fetcher.contents[FEED] = b"<rss>1</rss>"
            if known:
                self.result(self.broker.ping_topic(FEED, CALLER))
            self.patch(self.notifier, "verify", slow)
            callback = evolve(CALLBACK, url=f"http://reader{number}.example/")
            stored = self.result(self.broker.subscribe(evolve(self.intent, callback=callback)))
            self.assertEqual(stored.attempts, 0, known)
            self.patch(self.notifier, "verify", verify)
            due = self.result(self.store.claim_due(NOW + 1, 9, ()))
            self.assertIn(callback, [subscription.callback for subscription in due], known)

    def test_a_known_topic_is_recorded_only_once_the_callback_is_verified(self) -> None:
        self.result(self.broker.ping_topic(FEED, CALLER))
        self.fetcher.contents[FEED] = b"<rss>2</rss>"
        before = self.known()
        self.notifier.outcomes[CALLBACK.url] = model.Outcome(False, "no")
        self.refusal(self.broker.subscribe(self.intent), errors.CallbackFailed)
        self.assertEqual(self.known(), before)

    def test_a_host_that_says_nothing_holds_up_no_other(self) -> None:
        asked: list[str] = []

        async def verify(intent: model.Intent) -> model.Outcome:
            asked.append(intent.callback.host)
            if intent.callback.host == "silent.example":
                await Deferred()
            return model.Outcome(True)

        self.patch(self.notifier, "verify", verify)
        silent = [
            evolve(self.intent, callback=evolve(CALLBACK, url=f"http://silent.example/{n}"))
            for n in range(2 * SLOTS)
        ]
        asking = [Deferred.fromCoroutine(self.broker.subscribe(intent)) for intent in silent]
        self.assertEqual(len(asked), 10 / 2, "the rest is for other sources")
        self.result(self.broker.subscribe(self.intent))
        self.assertEqual(asked[10 // 2 :], [CALLBACK.host])
        for one in reversed(asking):  # the waiting ones first, so that none of them begins
            one.cancel()
            self.failureResultOf(one)

    def test_unsubscribe(self) -> None:
        self.result(self.broker.subscribe(self.intent))
        del self.bus.events[:]
        goodbye = evolve(self.intent, unsubscribe=True)
        self.assertTrue(self.result(self.broker.unsubscribe(goodbye)))
        self.assertFalse(self.result(self.broker.unsubscribe(goodbye)))
        self.assertEqual(self.notifier.verified[-2:], [goodbye, goodbye])
        self.assertEqual(self.subscriptions(), [])
        self.assertEqual(self.bus.events, [SubscriptionRemoved(FEED, CALLBACK)])

    def test_ended_topic(self) -> None:
        self.subscribe()
        self.result(self.store.end_topic(FEED, "it is gone", NOW))
        error = self.refusal(self.broker.subscribe(self.intent), errors.EndedTopic)
        self.assertIn("it is gone", str(error))
        self.assertEqual((self.fetcher.fetched, self.notifier.verified), ([], []))


class SpellingTests(BrokerTestCase):
    """All spellings of a URL are one topic; a subscriber is sent the topic as it wrote it."""

    WRITTEN = "HTTP://Feeds.example:80/x/../%72ss.xml"

    def setUp(self) -> None:
        super().setUp()
        self.intent = model.Intent(self.WRITTEN, CALLBACK, LEASE)
        self.assertEqual(normal_form(self.WRITTEN), FEED)

    def test_subscription(self) -> None:
        subscription = self.result(self.broker.subscribe(self.intent))
        self.assertEqual((subscription.topic, subscription.told_topic), (FEED, self.WRITTEN))
        self.assertEqual(self.notifier.verified, [self.intent])
        self.assertEqual(self.fetcher.fetched, [FEED])
        self.result(self.broker.subscribe(evolve(self.intent, topic=FEED)))
        (renewed,) = self.subscriptions()
        self.assertEqual((renewed.id, renewed.told_topic), (subscription.id, FEED))

    def test_unsubscription(self) -> None:
        self.result(self.broker.subscribe(evolve(self.intent, topic=FEED)))
        self.assertTrue(self.result(self.broker.unsubscribe(evolve(self.intent, unsubscribe=True))))
        self.assertEqual(self.notifier.verified[-1].topic, self.WRITTEN)
        self.assertEqual(self.bus.events[-1], SubscriptionRemoved(FEED, CALLBACK))

    def test_what_is_verified_later(self) -> None:
        self.result(self.broker.accept(self.intent))
        self.assertEqual(self.notifier.verified, [self.intent])
        (subscription,) = self.subscriptions()
        self.assertEqual(subscription.told_topic, self.WRITTEN)

    def test_denial(self) -> None:
        self.fetcher.failures[FEED] = errors.TopicUnreadable(FEED, "it is gone", lasting=True)
        self.result(self.broker.accept(self.intent))
        (denial,) = self.notifier.denied
        self.assertEqual(denial.topic, self.WRITTEN)

    def test_pings(self) -> None:
        self.result(self.broker.subscribe(self.intent))
        self.fetcher.contents[FEED] = b"<rss>2</rss>"
        self.assertTrue(self.result(self.broker.ping_topic(self.WRITTEN, CALLER)))
        for ping in (
            self.broker.publish([self.WRITTEN, FEED], CALLER),
            self.broker.ping(model.Ping("A", self.WRITTEN, NOW), 60, CALLER),
        ):
            del self.fetcher.fetched[:]
            self.result(ping)
            self.assertEqual(self.fetcher.fetched, [FEED])

    def test_patterns(self) -> None:
        """Another spelling of a URL does not get round a pattern."""
        broker = self.broker
        topics = Topics(subscribe=("http://*/x/*",), publish=("http://*/x/*",))
        broker._access = Access(topics, self.blocks)
        self.refusal(broker.subscribe(self.intent), errors.Forbidden)
        self.refusal(broker.ping_topic(self.WRITTEN, CALLER), errors.Forbidden)
        ping = model.Ping("A", "http://feeds.example/x/../rss.xml", NOW)
        self.refusal(broker.ping(ping, 0, CALLER), errors.Forbidden)


class PingTests(BrokerTestCase):
    ping = model.Ping("A site", HOME, NOW, rss_url=FEED)

    def test_ping_is_stored_then_published(self) -> None:
        stored: list[model.Ping] = []
        self.bus.on_publish = lambda event: stored.extend(self.pings())
        self.result(self.broker.ping(self.ping, 60, CALLER))
        (ping,) = self.pings()
        self.assertEqual(ping, evolve(self.ping, id=ping.id))
        self.assertEqual((stored, self.bus.events), ([ping], [PingReceived(ping)]))
        self.result(self.broker.ping(self.ping, 60, CALLER))
        self.assertEqual((len(self.pings()), len(self.bus.events)), (1, 1), "it is a repeat")
        self.assertEqual(self.fetcher.fetched, [])

    def test_watched_topics_are_read_after_it_returns(self) -> None:
        self.subscribe()
        self.fetcher.held = []
        self.result(self.broker.ping(self.ping, 60, CALLER))
        self.assertEqual(self.due(), [FEED])
        self.fetcher.held[0].callback(None)
        self.assertEqual(self.bus.events[-1], TopicChanged(FEED, NOW))
        self.assertEqual(self.due(), [])

    def test_repeat_asks_for_watched_topics_too(self) -> None:
        self.subscribe()
        self.result(self.broker.ping(self.ping, 60, CALLER))
        self.fetcher.contents[FEED] = b"<rss>2</rss>"
        self.result(self.broker.ping(self.ping, 60, CALLER))
        self.assertEqual(self.bus.events.count(TopicChanged(FEED, NOW)), 2)

    def test_fetch_before_a_ping_does_not_answer_it_though_its_clock_is_behind(self) -> None:
        self.subscribe()
        self.fetcher.held = []
        self.result(self.broker.ping(self.ping, 60, CALLER))
        self.clock.advance(2)
        passed_on = evolve(self.ping, origin="http://other.example", received_at=NOW - 100.0)
        self.result(self.broker.ping(passed_on, 60, CALLER))
        self.fetcher.held[0].callback(None)
        self.assertEqual(self.due(), [FEED], "the feed may have changed after it was read")

    def test_store_that_is_unavailable_takes_nothing(self) -> None:
        self.unavailable.add("add_ping")
        self.refusal(self.broker.ping(self.ping, 60, CALLER), errors.Unavailable)
        self.assertEqual((self.pings(), self.bus.events), ([], []))


class PingTopicTests(BrokerTestCase):
    def test_unreadable_is_read_again_if_that_is_asked_for(self) -> None:
        """A publisher whose ping was answered "true" need not ping again."""
        self.result(self.broker.subscribe(model.Intent(FEED, CALLBACK, 90_000)))
        content = self.fetcher.contents.pop(FEED)
        self.refusal(self.broker.ping_topic(FEED, CALLER), errors.TopicUnreadable)
        self.assertEqual(self.due(), [])
        self.fetcher.fetched.clear()
        self.refusal(self.broker.ping_topic(FEED, CALLER, again=True), errors.TopicUnreadable)
        self.assertEqual(self.due(), [FEED])
        self.clock.advance(4)
        self.assertEqual(len(self.fetcher.fetched), 1, "not twice at once")
        self.fetcher.contents[FEED] = content + b"!"
        self.clock.advance(1)
        self.assertEqual(self.due(), [])
        self.assertIn(TopicChanged(FEED, NOW + 5), self.bus.events)

    def test_ping_of_what_is_read_again_is_listed_after_a_restart(self) -> None:
        self.result(self.broker.subscribe(model.Intent(FEED, CALLBACK, 90_000)))
        content = self.fetcher.contents.pop(FEED)
        origin = "http://other.example"
        asked = self.broker.ping_topic(FEED, CALLER, again=True, origin=origin)
        self.refusal(asked, errors.TopicUnreadable)
        self.detector.stopService()
        self.fetcher.contents[FEED] = content + b"!"
        self.detector.startService()
        self.clock.advance(5)
        self.assertEqual([ping.origin for ping in self.pings()], [origin])

    def test_what_cannot_be_read_is_not_read_again_for_nobody(self) -> None:
        gone = "http://gone.example/"
        self.refusal(self.broker.ping_topic(gone, CALLER, again=True), errors.TopicUnreadable)
        self.assertIsNone(self.status(gone))
        self.assertEqual(self.bus.events, [])


class PublishTests(BrokerTestCase):
    def test_read_afterwards_and_listed(self) -> None:
        self.fetcher.held = []
        self.result(self.broker.publish([FEED], CALLER))
        self.assertEqual(self.due(), [FEED])
        self.assertEqual(self.pings(), [])
        self.fetcher.held[0].callback(None)
        self.assertEqual(self.due(), [])
        self.assertEqual([ping.url for ping in self.pings()], [FEED])
        self.assertIn(TopicChanged(FEED, NOW), self.bus.events)

    def test_why_it_could_not_be_read_the_last_time(self) -> None:
        self.subscribe()
        self.assertEqual(self.result(self.broker.publish([FEED], CALLER)), {})
        self.fetcher.failures[FEED] = errors.TopicUnreadable(FEED, "it is too large", refused=True)
        self.result(self.broker.publish([FEED], CALLER))
        said = self.result(self.broker.publish([FEED], CALLER))
        said_of = f"{FEED} could not be read the last time: it is too large"
        self.assertEqual(said, {FEED: said_of})

    def test_it_is_on_disk_before_it_returns(self) -> None:
        self.detector.stopService()
        self.result(self.broker.publish([FEED], CALLER))
        self.start()
        self.assertEqual([ping.url for ping in self.pings()], [FEED])

    def test_names_are_looked_up_together(self) -> None:
        urls = [f"http://{number}.example/" for number in range(60)]
        nobody: Deferred[None] = Deferred()
        self.topic_policy.silent = dict.fromkeys(map(model.host_of, urls), nobody)
        publishing = Deferred.fromCoroutine(self.broker.publish(urls, CALLER))
        self.assertEqual(len(self.topic_policy.judged), 60)
        self.assertNoResult(publishing)
        self.topic_policy.refused = {urls[0]}
        nobody.callback(None)
        self.assertEqual(self.result(publishing).keys(), {urls[0]})

    def test_names_of_one_source_that_nobody_can_look_up_delay_no_other(self) -> None:
        urls = [f"http://{number}.example/" for number in range(300)]
        nobody: Deferred[None] = Deferred()
        self.topic_policy.silent = dict.fromkeys(map(model.host_of, urls), nobody)
        publishing = Deferred.fromCoroutine(self.broker.publish(urls, CALLER))
        self.clock.pump([LEAST_PAUSE] * 200)
        self.assertEqual(len(self.topic_policy.judged), MAX_LOOKUPS / 2)
        self.result(self.broker.publish([FEED], "198.51.100.7"))
        self.assertEqual(self.fetcher.fetched, [FEED])
        self.assertNoResult(publishing)
        nobody.callback(None)
        self.result(publishing)

    def test_what_cannot_be_read_and_nobody_wants_is_read_once(self) -> None:
        nothing, down = "http://feeds.example/nothing", "http://feeds.example/down"
        for url, lasting in ((nothing, True), (down, False), (FEED, True)):
            self.fetcher.failures[url] = errors.TopicUnreadable(url, "no", lasting=lasting)
        self.subscribe(FEED)
        self.result(self.broker.publish([nothing, down, FEED], CALLER))
        for _ in range(40):
            self.clock.advance(5)
        read = [self.fetcher.fetched.count(url) for url in (nothing, down, FEED)]
        self.assertEqual(read, [1, 1, 4])
        self.assertEqual(self.due(), [])
        self.result(self.store.sweep(NOW, NOW))
        self.assertIsNone(self.known(nothing))

    def test_no_more_than_the_store_has_room_for(self) -> None:
        self.store._bounds = Bounds(idle_topics=2)
        self.fetcher.held = []
        urls = [f"http://feeds{number}.example/" for number in range(3)]
        said = self.result(self.broker.publish(urls, CALLER))
        self.assertEqual(list(said), urls[2:])
        self.assertIn("as many topics wait to be read as the broker keeps", said[urls[2]])
        error = self.refusal(self.broker.publish([FEED], CALLER), errors.TooMany)
        assert isinstance(error, errors.TooMany)
        self.assertEqual(error.retry_after, 60)
        self.assertEqual(self.due(), urls[:2])
        self.assertEqual(self.result(self.broker.publish(urls[:1], CALLER)), {})

    def test_one_of_several(self) -> None:
        """A topic that is refused does not keep the broker from accepting the others."""
        private, gone = "http://10.0.0.1/", "http://gone.example/"
        self.topic_policy.refused.add(private)
        self.result(self.store.end_topic(gone, "it is gone", NOW))
        said = self.result(self.broker.publish([private, FEED, gone], CALLER))
        self.assertEqual([ping.url for ping in self.pings()], [FEED])
        self.assertEqual(list(said), [private, gone])
        for url, why in ((private, "private network"), (gone, "it is gone")):
            self.assertIn(why, said[url])
            self.assertIn("not accepted", said[url])
        self.refusal(self.broker.publish([gone, private], CALLER), errors.EndedTopic)


class DistributeTests(BrokerTestCase):
    content = model.Content(b"<urlset/>", "application/xml", '<http://hub.example/>; rel="hub"')

    def test_with_subscribers_and_without(self) -> None:
        self.assertFalse(self.result(self.broker.push_content(FEED, self.content, CALLER)))
        self.assertEqual(self.bus.events, [])
        self.subscribe()
        spelled = SpellingTests.WRITTEN
        self.assertTrue(self.result(self.broker.push_content(spelled, self.content, CALLER)))
        self.assertEqual(self.bus.events, [TopicChanged(FEED, NOW)])
        self.assertEqual(self.fetcher.fetched, [])
        (walk,) = self.walks()
        kept = self.result(self.store.content(walk.content_id))
        self.assertEqual(kept, self.content)


class AccessTests(BrokerTestCase):
    topics = Topics(subscribe=("http://feeds.example/*",), publish=("http://site.example/*",))
    elsewhere = "http://elsewhere.example/"

    def test_subscribe(self) -> None:
        self.result(self.broker.subscribe(model.Intent(FEED, CALLBACK, LEASE)))
        for verb in (self.broker.subscribe, self.broker.accept):
            self.refusal(verb(model.Intent(self.elsewhere, CALLBACK, LEASE)), errors.Forbidden)
        self.assertEqual(self.fetcher.fetched, [FEED])
        goodbye = model.Intent(self.elsewhere, CALLBACK, LEASE, unsubscribe=True)
        self.result(self.broker.accept(goodbye))  # who is there already may leave

    def test_what_ended_for_that_stays_so(self) -> None:
        self.result(self.store.end_topic(HOME, NOT_ALLOWED, NOW))
        self.refusal(self.broker.publish([HOME], CALLER), errors.EndedTopic)

    def test_publish(self) -> None:
        ping = model.Ping("Elsewhere", self.elsewhere, NOW)
        self.refusal(self.broker.ping(ping, 0, CALLER), errors.Forbidden)
        self.refusal(self.broker.ping_topic(self.elsewhere, CALLER), errors.Forbidden)
        self.refusal(self.broker.publish([self.elsewhere], CALLER), errors.Forbidden)
        self.assertRaises(errors.Forbidden, self.broker.admit_examination, self.elsewhere, CALLER)
        self.assertRaises(errors.TopicUnreadable, self.broker.admit_examination, "ftp://x/", CALLER)
        self.assertEqual((self.pings(), self.due(), self.fetcher.fetched), ([], [], []))
        self.result(self.broker.ping(model.Ping("A site", HOME, NOW), 0, CALLER))
        said = self.result(self.broker.publish([self.elsewhere, HOME], CALLER))
        self.assertIn(
            f"not allow pings of {self.elsewhere}; it was not accepted", said[self.elsewhere]
        )


class ReadingsOfAHostTests(BrokerTestCase):
    """Pings cause a limited number of fetches from a host, of topics without subscribers."""

    limits = RateLimitOptions(fetches_per_host=1, fetches_host_burst=2, exempt=("192.0.2.8",))
    unknown = tuple(f"http://feeds.example/{number}" for number in range(5))

    def use_up(self) -> None:
        for url in self.unknown[:2]:
            self.refusal(self.broker.ping_topic(url, CALLER), errors.TopicUnreadable)
        del self.fetcher.fetched[:]

    def test_publish(self) -> None:
        said = self.result(self.broker.publish(self.unknown, CALLER))
        self.assertEqual(list(said), list(self.unknown[2:]))
        for sentence in said.values():
            self.assertIn("the host feeds.example; try again in", sentence)
            self.assertIn("it was not accepted", sentence)
        self.assertEqual(set(self.fetcher.fetched), set(self.unknown[:2]))
        del self.fetcher.fetched[:]
        self.refusal(self.broker.publish(self.unknown, CALLER), errors.TooMany)
        self.assertEqual(self.fetcher.fetched, [])
        self.assertIsNone(self.known(self.unknown[2]))

    def test_ping_topic(self) -> None:
        self.use_up()
        self.refusal(self.broker.ping_topic(FEED, CALLER), errors.TooMany)
        self.assertEqual(self.fetcher.fetched, [])
        self.clock.advance(1)
        self.assertTrue(self.result(self.broker.ping_topic(FEED, CALLER)))

    def test_topic_with_subscribers(self) -> None:
        self.result(self.broker.subscribe(model.Intent(FEED, CALLBACK, LEASE)))
        self.use_up()
        for _ in range(5):
            self.result(self.broker.ping_topic(FEED, CALLER))
            self.assertEqual(self.result(self.broker.publish([FEED], CALLER)), {})

    def test_topic_that_was_just_read_is_not_looked_up(self) -> None:
        works = self.store.topic
        for has_subscriber in (False, True):
            self.patch(self.store, "topic", works)
            if has_subscriber:
                self.subscribe(FEED)
            self.clock.advance(100)
            self.result(self.broker.ping_topic(FEED, CALLER))
            self.patch(self.store, "topic", None)
            self.result(self.broker.ping_topic(FEED, CALLER))

    def test_examinations_count_even_with_subscribers(self) -> None:
        self.result(self.broker.subscribe(model.Intent(FEED, CALLBACK, LEASE)))
        written = FEED.replace("feeds", "FEEDS")
        self.assertEqual(self.broker.admit_examination(written, CALLER), FEED)
        self.broker.admit_examination(FEED, CALLER)
        error = self.assertRaises(errors.TooMany, self.broker.admit_examination, FEED, CALLER)
        self.assertIn("the host feeds.example", error.reason)
        self.broker.admit_examination(FEED, "192.0.2.8")
        self.assertEqual(self.fetcher.fetched, [FEED])  # for the subscription

    def test_who_is_exempt(self) -> None:
        self.use_up()
        self.assertEqual(self.result(self.broker.publish([*self.unknown, FEED], "192.0.2.8")), {})
        self.result(self.broker.ping_topic(FEED, "192.0.2.8"))


class LimitsTests(BrokerTestCase):
    limits = RateLimitOptions(
        verifications_per_source=1, verifications_burst=2, subscriptions_per_host=1
    )
    intent = model.Intent(FEED, CALLBACK, LEASE, source=CALLER)

    def test_subscriptions(self) -> None:
        for _ in range(2):
            self.result(self.broker.subscribe(self.intent))
        stored = self.subscriptions()
        del self.fetcher.fetched[:], self.notifier.verified[:], self.bus.events[:]
        self.refusal(self.broker.subscribe(self.intent), errors.TooMany)
        self.assertEqual((self.fetcher.fetched, self.notifier.verified), ([], []))
        self.assertEqual((self.subscriptions(), self.bus.events), (stored, []))

    def test_topics_that_cannot_be_read_count(self) -> None:
        for number in range(2):
            gone = evolve(self.intent, topic=f"http://gone.example/{number}")
            self.refusal(self.broker.subscribe(gone), errors.TopicUnreadable)
        self.refusal(self.broker.subscribe(self.intent), errors.TooMany)

    def test_what_is_refused_takes_no_place_of_its_host(self) -> None:
        inside = evolve(self.intent, topic="http://inside.example/")
        self.topic_policy.refused.add(inside.topic)
        self.refusal(self.broker.accept(inside), errors.TopicUnreadable)
        self.result(self.broker.accept(self.intent))

    def test_callback_that_failed_a_moment_ago_is_not_called(self) -> None:
        self.notifier.outcomes[CALLBACK.url] = model.Outcome(False, "it said no")
        first = self.refusal(self.broker.subscribe(self.intent), errors.CallbackFailed)
        del self.fetcher.fetched[:], self.notifier.verified[:]
        second = self.refusal(self.broker.subscribe(self.intent), errors.CallbackFailed)
        self.assertEqual(str(first), str(second))
        self.assertEqual((self.fetcher.fetched, self.notifier.verified), ([], []))
        self.notifier.outcomes.clear()
        self.clock.advance(FAILED_PAUSE)
        self.result(self.broker.subscribe(self.intent))

    def test_unknown_protocol_costs_nothing(self) -> None:
        strange = evolve(self.intent, callback=evolve(CALLBACK, protocol="carrier-pigeon"))
        for _ in range(5):
            self.refusal(self.broker.subscribe(strange), errors.UnsupportedProtocol)
        self.result(self.broker.subscribe(self.intent))


class WebAddressTests(BrokerTestCase):
    """A front door of a plugin may hand unchecked URLs to the broker."""

    bad = ("javascript:1", "ftp://feeds.example/rss.xml", "http:///rss.xml", FEED + "?" * 2048)
    pushes = tuple(url[:10] for url in bad)  # none of them is read, so nothing else finds out

    def assert_nothing_happened(self) -> None:
        self.assertEqual(self.result(self.store.count_pings()), 0)
        self.assertEqual((self.subscriptions(), self.bus.events), ([], []))
        self.assertEqual((self.fetcher.fetched, self.notifier.verified), ([], []))

    def test_pings(self) -> None:
        for bad in self.bad:
            for ping in (
                model.Ping("A", bad, NOW),
                model.Ping("A", HOME, NOW, changes_url=bad),
                model.Ping("A", HOME, NOW, rss_url=bad),
            ):
                said = str(self.refusal(self.broker.ping(ping, 60, CALLER), errors.InvalidPing))
                self.assertTrue(said.startswith(bad[:100]), said)
        self.assert_nothing_happened()

    def test_topics(self) -> None:
        long_in_normal_form = f"{FEED}?{'ß' * 1000}"
        for bad in (*self.bad, long_in_normal_form):
            intent = model.Intent(bad, CALLBACK, LEASE)
            for call in (
                self.broker.ping_topic(bad, CALLER),
                self.broker.publish([bad], CALLER),
                self.broker.push_content(bad, model.Content(b"new"), CALLER),
                self.broker.subscribe(intent),
                self.broker.accept(intent),
            ):
                refusal = self.refusal(call, errors.TopicUnreadable)
                self.assertTrue(refusal.refused)
                self.assertIn("the URL ", refusal.reason)
            self.assertIsNone(self.known(bad))
        self.assert_nothing_happened()
        self.assertEqual(self.result(self.store.intents()), [])

    def test_callbacks(self) -> None:
        for bad in self.bad:
            intent = model.Intent(FEED, model.Callback(bad, "http-post"), LEASE)
            for call in (
                self.broker.subscribe(intent),
                self.broker.accept(intent),
                self.broker.unsubscribe(intent),
                self.broker.accept(evolve(intent, unsubscribe=True)),
            ):
                self.assertTrue(self.refusal(call, errors.CallbackFailed).refused)
        self.assert_nothing_happened()
        self.assertEqual(self.result(self.store.intents()), [])

    def test_a_topic_that_was_stored_before_there_was_the_rule_can_be_left(self) -> None:
        left = self.broker.unsubscribe(model.Intent("feed:old", CALLBACK, LEASE, unsubscribe=True))
        self.assertFalse(self.result(left))
