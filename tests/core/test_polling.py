"""Polling: who is due, and what comes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from attrs import evolve
from twisted.internet.defer import Deferred

from rsscloud_broker.config import Polling
from rsscloud_broker.core import Poller, polling
from rsscloud_broker.errors import EndedTopic
from rsscloud_broker.events import TopicChanged
from rsscloud_broker.model import TopicStatus
from rsscloud_broker.model.work import PollPlan
from tests.core.house import DAY, FEED, CoreTestCase

OPTIONS = Polling(min_interval=600.0, max_interval=7200.0)


class PollingTestCase(CoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        for name in ("polls_due", "plan_polls", "check_writable"):
            self._watch(name)
        self.start()
        self.patch(polling, "MAX_CONCURRENT", 5)
        self.patch(polling, "FIRST_INTERVAL", 1200.0)
        self.poller = Poller(self.store, self.detector, self.clock, OPTIONS)

    def run_poller(self) -> None:
        self.poller.startService()
        self.addCleanup(self.poller.stopService)

    def advance(self, seconds: int) -> None:
        """Let time pass, in steps that are longer the more of it there is."""
        step = 1 if seconds < 60 else 20 if seconds < 3600 else 60
        for _ in range(0, seconds, step):
            self.clock.advance(step)

    def fetched(self, seconds: int) -> int:
        """How often the feed is fetched in some time."""
        del self.fetcher.fetched[:]
        self.advance(seconds)
        return self.fetcher.fetched.count(FEED)


class PollerTests(PollingTestCase):
    def test_who_is_subscribed_to_is_polled(self) -> None:
        self.subscribe()
        self.run_poller()
        self.assertEqual(self.fetched(5), 0)
        planned = self.status()
        self.assertIn("first", planned.poll_reason)
        self.assertGreaterEqual(self.fetched(1300), 1)
        self.assertGreater(self.status().next_poll_at or 0, self.clock.wall_seconds())

    def test_changes_reach_subscribers_as_if_pinged(self) -> None:
        self.subscribe()
        self.run_poller()
        self.advance(1300)
        self.fetcher.contents[FEED] = b"<rss>2</rss>"
        del self.bus.events[:]
        self.advance(2400)
        changes = self.published(TopicChanged)
        self.assertEqual(([change.topic for change in changes], self.walked()), ([FEED], [FEED]))

    def test_nobody_subscribes(self) -> None:
        self.subscribe()
        self.run_poller()
        self.advance(5)
        (one,) = self.result(self.store.subscriptions(FEED, 0, 10))
        self.result(self.store.remove_subscription(FEED, one.callback))
        self.assertEqual(self.fetched(7200), 0)
        self.assertIsNone(self.status().next_poll_at)
        self.subscribe()
        self.assertGreaterEqual(self.fetched(2 * 7200), 1)

    def test_ended_topic_is_polled_no_more(self) -> None:
        self.subscribe()
        self.fetch()
        self.fetcher.failures[FEED] = EndedTopic(FEED, "it is gone")
        self.run_poller()
        self.assertEqual(self.fetched(3 * 7200), 1)
        self.assertEqual(self.status().topic.ended, "it is gone")


class PlacesTests(PollingTestCase):
    def make_due(self, *urls: str) -> None:
        """Have topics that are due now."""
        now = self.clock.wall_seconds()
        for url in urls:
            self.fetcher.contents[url] = b"<rss/>"
            self.subscribe(url)
        plans = [PollPlan(url, now, "a test", 1200.0, now) for url in urls]
        self.result(self.store.plan_polls(plans))

    def test_so_many_at_a_time(self) -> None:
        self.make_due(*(f"http://site{number}.example/" for number in range(8)))
        self.fetcher.held = []
        self.run_poller()
        self.advance(3)
        self.assertEqual(len(self.fetcher.held), 5)
        self.fetcher.held[0].callback(None)
        self.advance(2)
        self.assertEqual(len(self.fetcher.held), 6)
        for gate in self.fetcher.held[1:]:
            gate.callback(None)
        self.advance(2)
        for gate in self.fetcher.held[6:]:
            gate.callback(None)
        self.assertEqual(len(self.fetcher.held), 8)

    def test_busy_host_keeps_nobody_else_out(self) -> None:
        self.make_due(*(f"http://busy.example/{number}" for number in range(8)), FEED)
        self.fetcher.held = []
        self.run_poller()
        self.advance(10)
        self.assertEqual(len(self.fetcher.held), 3)
        self.assertIn(FEED, self.fetcher.fetched)

    def test_polls_of_a_busy_host_are_put_off_once_each(self) -> None:
        """Each is planned when it is put off, and after it was made."""
        self.make_due(*(f"http://busy.example/{number}" for number in range(100)))
        plans = self.planned()
        self.run_poller()
        self.advance(59)
        self.assertEqual(len(self.fetcher.fetched), 100)
        self.assertLessEqual(len(plans), 200)

    def test_polls_of_a_host_that_does_not_answer_are_put_off_rarely(self) -> None:
        self.make_due(*(f"http://busy.example/{number}" for number in range(100)))
        self.fetcher.held = []
        plans = self.planned()
        self.run_poller()
        self.advance(60)
        self.assertLessEqual(len(plans), 98 + 60 * polling.MAX_PER_HOST)

    def planned(self) -> list[PollPlan]:
        """The plans that are stored from now on."""
        plans: list[PollPlan] = []
        store = self.store.plan_polls

        def plan_polls(some: Sequence[PollPlan]) -> object:
            plans.extend(some)
            return store(some)

        self.patch(self.store, "plan_polls", plan_polls)
        return plans

    def test_the_shortest_pause_may_be_less_than_a_minute(self) -> None:
        """A fetch that finds what was recorded within the last minute is not recorded."""
        options = Polling(min_interval=10.0, max_interval=10.0)
        self.poller = Poller(self.store, self.detector, self.clock, options)
        self.make_due(*(f"http://site{number}.example/" for number in range(10)))
        self.run_poller()
        self.advance(59)
        self.assertLessEqual(max(Counter(self.fetcher.fetched).values()), 6)

    def test_what_was_late_when_it_started_is_spread_out(self) -> None:
        self.make_due(*(f"http://site{number}.example/" for number in range(50)))
        self.clock.advance(7200)
        self.run_poller()
        self.advance(10)
        self.assertLess(len(self.fetcher.fetched), 10)
        self.advance(3700)
        self.assertEqual(len(set(self.fetcher.fetched)), 50)

    def set_back(self) -> None:
        """Set the wall clock back by a day, with the times in the store."""
        self.clock.set_wall(-DAY)
        self.result(self.store.set_back(DAY, self.clock.wall_seconds()))

    def test_polls_go_on_after_the_clock_was_set_back(self) -> None:
        for is_read_since in (False, True):
            self.make_due(FEED)
            self.run_poller()
            self.advance(120)  # so that what is fetched now is recorded
            if is_read_since:
                self.fetch()
            self.set_back()
            self.assertGreaterEqual(self.fetched(2 * 7200), 3)
            self.poller.stopService()

    def test_polls_of_a_busy_host_go_on_after_the_clock_was_set_back(self) -> None:
        self.make_due(*(f"http://busy.example/{number}" for number in range(8)))
        self.fetcher.held = []
        self.run_poller()
        self.advance(5)
        self.set_back()
        self.advance(20)
        held, self.fetcher.held = self.fetcher.held, None
        for gate in held:
            gate.callback(None)
        self.advance(59)
        self.assertEqual(len(set(self.fetcher.fetched)), 8)

    def test_stop_in_the_middle(self) -> None:
        self.make_due(FEED)
        self.fetcher.held = []
        self.run_poller()
        self.advance(2)
        self.poller.stopService()
        self.assertIn(FEED, [one.topic.url for one in self.polls_due()])

    def test_plan_of_another_node_stays(self) -> None:
        """It polled the topic while this process stood still and lost its claim."""
        self.make_due(FEED)
        self.fetcher.held = []
        self.run_poller()
        self.advance(2)
        now = self.clock.wall_seconds()
        theirs = PollPlan(FEED, now + 900, "by another node", 900.0, now)
        self.result(self.store.plan_polls([theirs]))
        self.fetcher.held[0].callback(None)
        found = self.status()
        self.assertEqual((found.poll_reason, found.poll_interval), ("by another node", 900.0))

    def test_store_that_is_unavailable(self) -> None:
        self.make_due(FEED)
        self.unavailable.update({"polls_due"})
        self.run_poller()
        self.advance(30)
        self.unavailable.clear()
        self.assertEqual(self.fetched(15), 1)

    def test_store_that_cannot_be_written(self) -> None:
        """As on a full disk: nobody is asked again and again for what cannot be stored."""
        self.make_due(FEED)
        self.unavailable.update({"record_fetch", "plan_polls", "check_writable"})
        self.run_poller()
        self.assertEqual(self.fetched(59), 1)
        self.unavailable.clear()
        self.assertEqual(self.fetched(15), 1)

    def test_bug(self) -> None:
        self.make_due(FEED)

        def broken(url: str) -> Deferred[None]:
            raise RuntimeError("a bug")

        self.patch(self.detector, "check_now", broken)
        self.run_poller()
        self.advance(5)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def polls_due(self) -> list[TopicStatus]:
        found: list[TopicStatus] = self.result(self.store.polls_due(self.clock.wall_seconds(), 10))
        return [evolve(one) for one in found]
