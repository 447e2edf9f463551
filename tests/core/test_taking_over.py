"""Work of the core that other nodes have left is taken over, and the limits are shared."""

from __future__ import annotations

from attrs import evolve
from twisted.internet.defer import Deferred, fail

from rsscloud_broker.core import TakingOverSink
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import Event, NodesCounted, WorkHinted
from rsscloud_broker.model import Callback, Lease, Subscription
from rsscloud_broker.store_retry import UNAVAILABLE_PAUSE
from tests.core.house import FEED, BrokerTestCase
from tests.core.test_intents import CALLBACK, WANTED
from tests.storage.waiting import waiting_checks


class TakingOverTests(BrokerTestCase):
    def hint(self, event: Event) -> None:
        sink = TakingOverSink(self.detector, self.intents, [self.limiter.share])
        self.successResultOf(Deferred.fromCoroutine(sink.handle(event)))

    def leave_a_check(self) -> None:
        """Store a check that no node handles."""
        self.assertTrue(self.successResultOf(self.store.request_check(FEED, 1.0, True)))

    def test_topic_that_waits_is_fetched(self) -> None:
        self.leave_a_check()
        for kind in ("fanout", "host"):
            self.hint(WorkHinted(kind))
        self.assertEqual(self.fetcher.fetched, [])
        self.hint(WorkHinted())
        self.assertEqual(self.fetcher.fetched, [FEED])
        self.assertEqual(self.successResultOf(waiting_checks(self.store, 10)), [])

    def test_topic_that_was_taken_over_is_not_fetched_again(self) -> None:
        self.fetcher.held = []
        self.leave_a_check()
        for _ in range(3):
            self.hint(WorkHinted("freed"))
        self.assertEqual(self.fetcher.fetched, [FEED])

    def test_intent_is_verified(self) -> None:
        self.successResultOf(self.store.add_intent(WANTED, 10))
        self.hint(WorkHinted("freed"))
        (stored,) = self.subscriptions()
        self.assertEqual(stored.callback, CALLBACK)
        self.assertEqual(self.successResultOf(self.store.intents()), [])

    def test_store_that_is_unavailable_is_asked_again(self) -> None:
        self.leave_a_check()
        works = self.store.claim_checks
        self.patch(self.store, "claim_checks", lambda wanted: fail(Unavailable("it is down")))
        self.hint(WorkHinted())
        self.patch(self.store, "claim_checks", works)
        self.clock.advance(UNAVAILABLE_PAUSE)
        self.assertEqual(self.fetcher.fetched, [FEED])

    def test_nothing_is_taken_over_after_the_stop(self) -> None:
        self.leave_a_check()
        self.successResultOf(self.store.add_intent(evolve(WANTED, challenge=False), 10))
        self.detector.stopService()
        self.intents.stopService()
        self.hint(WorkHinted())
        self.assertEqual((self.fetcher.fetched, self.carrier.verified), ([], []))

    def test_topic_is_cached_for_a_moment_if_others_may_record_it(self) -> None:
        """Otherwise a node could find nothing new, after another has recorded a change."""
        sink = TakingOverSink(self.detector, self.intents, [self.detector.share])
        for nodes, cached in ((1, True), (2, False), (1, True)):
            self.successResultOf(Deferred.fromCoroutine(sink.handle(NodesCounted(nodes))))
            self.subscribed()
            self.successResultOf(self.detector.check_now(FEED))
            self.clock.advance(2)
            self.assertEqual(self.detector.was_watched(FEED), cached)

    def subscribed(self) -> None:
        callback = Callback("http://reader.example/", "http-post")
        wanted = Subscription(FEED, callback, Lease(self.clock.wall_seconds(), 60))
        self.successResultOf(self.store.put_subscription(wanted))


class SharingTests(BrokerTestCase):
    slots, under_way = 4, 100

    def test_limits_are_shared(self) -> None:
        sink = TakingOverSink(self.detector, self.intents, [self.limiter.share])
        held: list[Deferred[None]] = []
        self.fetcher.held = held
        urls = [f"http://feeds{number}.example/" for number in range(6)]
        for nodes, most in ((4, 1), (2, 2), (1, 4)):
            self.successResultOf(Deferred.fromCoroutine(sink.handle(NodesCounted(nodes))))
            for url in urls:
                self.detector.check_now(url).addErrback(lambda failure: None)
            self.assertEqual(len(self.fetcher.fetched), most)
        # Left alone, fetches that wait for the slots of others would be collected in any order.
        self.fetcher.held = None
        for gate in held:
            gate.callback(None)
