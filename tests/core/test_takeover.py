"""Work of the core that other nodes have left is taken over, and the limits are shared."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from sqlalchemy import update
from twisted.internet.defer import Deferred, succeed

from rsscloud_broker.config import Polling
from rsscloud_broker.core import Poller, TakeoverSink
from rsscloud_broker.events import ClaimsLost, Event, NodesCounted, WorkHinted
from rsscloud_broker.model.work import ClaimedChecks, PollPlan
from rsscloud_broker.storage.nodes import leave
from rsscloud_broker.storage.schema import intent
from tests.core.house import FEED, BrokerTestCase
from tests.core.test_intents import CALLBACK, WANTED
from tests.storage.waiting import waiting_checks


class TakingOverTests(BrokerTestCase):
    def hint(self, event: Event) -> None:
        sink = TakeoverSink(self.detector, self.intents, [self.limiter.set_node_count])
        self.result(sink.handle(event))

    def leave_a_check(self) -> None:
        """Store a check that no node handles."""
        self.assertTrue(self.result(self.store.request_check(FEED, 1.0, True)))

    def test_topic_that_waits_is_fetched(self) -> None:
        self.leave_a_check()
        for kind in ("fanout", "host"):
            self.hint(WorkHinted(kind))
        self.assertEqual(self.fetcher.fetched, [])
        self.hint(WorkHinted())
        self.assertEqual(self.fetcher.fetched, [FEED])
        self.assertEqual(self.result(waiting_checks(self.store, 10)), [])

    def test_topic_that_was_taken_over_is_not_fetched_again(self) -> None:
        self.fetcher.held = []
        self.leave_a_check()
        for _ in range(3):
            self.hint(WorkHinted("freed"))
        self.assertEqual(self.fetcher.fetched, [FEED])

    def test_intent_is_verified(self) -> None:
        self.result(self.store.add_intent(WANTED, 10))
        another_node_ended = update(intent).values(node_id=None)
        self.result(self.store._database.write(lambda conn: conn.execute(another_node_ended)))
        self.hint(WorkHinted("freed"))
        (stored,) = self.subscriptions()
        self.assertEqual(stored.callback, CALLBACK)
        self.assertEqual(self.result(self.store.intents()), [])

    def test_nothing_is_taken_over_after_the_stop(self) -> None:
        self.leave_a_check()
        self.result(self.store.add_intent(evolve(WANTED, challenge=False), 10))
        self.detector.stopService()
        self.intents.stopService()
        self.hint(WorkHinted())
        self.assertEqual((self.fetcher.fetched, self.carrier.verified), ([], []))

    def test_topic_is_cached_for_a_moment_if_others_may_record_it(self) -> None:
        """Otherwise a node could find nothing new, after another has recorded a change."""
        sink = TakeoverSink(self.detector, self.intents, [self.detector.set_node_count])
        for nodes, cached in ((1, True), (2, False), (1, True)):
            self.result(sink.handle(NodesCounted(nodes)))
            self.subscribe()
            self.fetch()
            self.clock.advance(2)
            self.assertEqual(self.detector.reader.was_watched(FEED), cached)


class SharingTests(BrokerTestCase):
    slots, under_way = 4, 100

    def test_limits_are_shared(self) -> None:
        sink = TakeoverSink(self.detector, self.intents, [self.limiter.set_node_count])
        held: list[Deferred[None]] = []
        self.fetcher.held = held
        urls = [f"http://feeds{number}.example/" for number in range(6)]
        for nodes, most in ((4, 1), (2, 2), (1, 4)):
            self.result(sink.handle(NodesCounted(nodes)))
            for url in urls:
                self.detector.check_now(url).addErrback(lambda failure: None)
            self.assertEqual(len(self.fetcher.fetched), most)
        # Left alone, fetches that wait for the slots of others would be collected in any order.
        self.fetcher.held = None
        for gate in held:
            gate.callback(None)


#: What a node claims when others are quicker.
NONE = ClaimedChecks([], more=False, next_at=None, after_source=None, after_hosts={})


class LostClaimsTests(BrokerTestCase):
    """The process stood still, and other nodes have taken its work over."""

    slots = under_way = 2

    def setUp(self) -> None:
        super().setUp()
        self.sink = TakeoverSink(self.detector, self.intents)
        self.held: list[Deferred[None]] = []
        self.fetcher.held = self.held

    def handle(self, event: Event) -> None:
        self.result(self.sink.handle(event))

    def claim_some(self) -> list[str]:
        """Claim the checks of more topics than can be fetched at a time."""
        urls = [f"http://feeds{number}.example/" for number in range(5)]
        for url in urls:
            self.claim_check(url)
        return urls

    def free_claims(self) -> None:
        """Remove the row of this node, as another does that takes it for dead."""
        node: Any = self.store.node
        self.result(self.store._database.write(lambda conn: leave(conn, node)))

    def lose(self, elsewhere: bool = True) -> None:
        """Lose the claims.

        :param elsewhere: whether other nodes claim the work before this one can.
        """
        self.free_claims()
        if elsewhere:
            self.patch(self.store, "claim_checks", lambda wanted: succeed(NONE))
            self.patch(self.store, "intents", lambda after, limit: succeed([]))
        self.handle(ClaimsLost())
        self.store.register()

    def end_fetches(self) -> None:
        while self.held:
            self.held.pop().callback(None)

    def test_checks_are_forgotten(self) -> None:
        urls = self.claim_some()
        begun = list(self.fetcher.fetched)
        self.assertLess(len(begun), len(urls))
        self.lose()
        self.assertEqual(self.detector._count_checks(), 0)
        self.end_fetches()
        self.assertEqual(self.fetcher.fetched, begun, "what had not begun never begins")
        self.assertEqual((self.pings(), self.due()), ([], urls), "nothing is recorded")

    def test_fetch_that_fails_hands_nothing_on_to_one_that_is_withdrawn(self) -> None:
        self.subscribe()
        for _ in "12":
            self.claim_check()
        self.lose()
        self.fetcher.contents.clear()
        self.end_fetches()
        self.clock.advance(5)
        self.assertEqual(self.fetcher.fetched, [FEED])
        self.assertEqual((self.detector._count_checks(), self.due()), (0, [FEED]))

    def test_checks_are_claimed_anew(self) -> None:
        urls = self.claim_some()
        self.fetcher.contents |= dict.fromkeys(urls, b"a feed")
        self.lose(elsewhere=False)
        self.handle(WorkHinted())
        self.fetcher.held = None
        self.end_fetches()
        self.assertEqual(sorted(set(self.fetcher.fetched)), urls)
        self.assertEqual(self.due(), [])

    def test_polls_are_forgotten(self) -> None:
        urls = [f"http://feeds{number}.example/" for number in range(3)]
        self.fetcher.contents |= dict.fromkeys(urls, b"a feed")
        now = self.clock.wall_seconds()
        for url in urls:
            self.subscribe(url)
        plans = [PollPlan(url, now, "a test", 1200.0, now) for url in urls]
        self.result(self.store.plan_polls(plans))
        poller = Poller(self.store, self.detector, self.clock, Polling())
        self.sink = TakeoverSink(self.detector, self.intents, lose=[poller.lose_claims])
        self.result(poller.look())
        begun = list(self.fetcher.fetched)
        self.assertEqual(begun, urls[:1])
        self.lose()
        self.end_fetches()
        self.assertEqual(self.fetcher.fetched, begun, "what had not begun never begins")
        due = self.result(self.store.polls_due(now, 10))
        self.assertEqual([one.topic.url for one in due], urls, "nothing is planned")
        self.fetcher.held = None
        self.result(poller.look())
        self.assertEqual(self.fetcher.fetched, urls, "it polls what it claims anew")

    def test_caller_who_waits_is_answered_all_the_same(self) -> None:
        self.claim_check("http://one.example/")
        self.claim_check("http://two.example/")
        self.claim_check()
        asked = self.detector.check_now(FEED, source="192.0.2.1")
        self.assertNotIn(FEED, self.fetcher.fetched)
        self.lose()
        self.end_fetches()
        self.assertEqual(self.result(asked).topic.url, FEED)

    def test_topic_that_is_wanted_while_its_fetch_is_withdrawn(self) -> None:
        answers: list[Deferred[Any]] = []
        works = self.store.topic

        def slow(url: str) -> Deferred[Any]:
            answers.append(Deferred())
            return answers[-1]

        self.patch(self.store, "topic", slow)
        self.claim_check()
        self.lose()
        asked = self.detector.check_now(FEED)
        self.patch(self.store, "topic", works)
        for answer in answers:
            answer.callback(None)
        self.end_fetches()
        self.assertEqual(self.result(asked).topic.url, FEED)
        self.assertEqual(self.fetcher.fetched, [FEED])

    def test_checks_that_were_claimed_since_are_released(self) -> None:
        """Other work had registered the process anew before it heard of its loss."""
        self.free_claims()
        self.result(self.store.check_writable())
        self.claim_check()
        self.patch(self.store, "claim_checks", lambda wanted: succeed(NONE))
        self.handle(ClaimsLost())
        self.assertEqual(self.due(), [FEED])
        self.end_fetches()

    def test_intents_that_were_claimed_since_are_verified(self) -> None:
        self.result(self.intents.add(WANTED))
        (pending,) = self.result(self.store.intents())
        self.fetcher.held = None
        self.patch(self.store, "intents", lambda after, limit: succeed([pending]))
        self.handle(ClaimsLost())
        self.end_fetches()
        self.assertEqual(len(self.subscriptions()), 1)

    def test_intents_are_forgotten_and_claimed_anew(self) -> None:
        self.result(self.intents.add(WANTED))
        self.assertEqual(self.fetcher.fetched, [FEED])
        self.fetcher.held = None
        self.lose()
        self.end_fetches()
        self.assertEqual(self.subscriptions(), [], "another node may go on with it")
        self.handle(WorkHinted("freed"))
        self.assertEqual(len(self.subscriptions()), 1)
