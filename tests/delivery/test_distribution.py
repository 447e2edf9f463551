"""Tests distribution: fan-outs resume, their memory is bounded, slow subscribers delay nobody."""

from __future__ import annotations

from collections.abc import Sequence
from resource import RLIM_INFINITY
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.delivery import options
from rsscloud_broker.delivery.distribution import Distribution
from rsscloud_broker.delivery.options import STOP_TIMEOUT, DistributionOptions
from rsscloud_broker.delivery.walk import SAVE_WITHIN_SECONDS
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import TopicChanged
from rsscloud_broker.interfaces import INotifier
from rsscloud_broker.model import Callback, FetchResult, Lease, Outcome, Subscription
from rsscloud_broker.model.work import Delivery, Fanout
from rsscloud_broker.testing import FakeNotifier, memory_store, sink_parts
from rsscloud_broker.testing.clock import About, Clock
from rsscloud_broker.util.retry import UNAVAILABLE_PAUSE
from tests.delivery.engine import make_distribution

FEED = "http://feeds.example/rss.xml"
NOW = About(1_790_683_200.0)


class DistributionTestCase(SynchronousTestCase):
    """A test case with a distribution over a store in memory.

    :ivar unavailable: the names of the store's methods that raise Unavailable now.
    :ivar saved: each call of ``record_slice``: cursor, number of deliveries, done, outstanding.
    """

    def setUp(self) -> None:
        self.store: Any = memory_store()
        self.addCleanup(self.store.stopService)
        self.clock = Clock(NOW)
        self.notifier = FakeNotifier("http-post", drop_after_failures=3)
        self.notifiers: dict[str, INotifier] = {"http-post": self.notifier}
        self.contents = 0
        self.unavailable: set[str] = set()
        self.saved: list[tuple[int, int, bool, int]] = []
        for name in ("fanouts", "subscriptions", "record_slice"):
            self._watch(name)

    def _watch(self, name: str) -> None:
        operation = getattr(self.store, name)

        def watched(*args: Any) -> Deferred[Any]:
            if name in self.unavailable:
                return fail(Unavailable("the disk is full"))
            if name == "record_slice":
                self._note(*args)
            result: Deferred[Any] = operation(*args)
            return result

        self.patch(self.store, name, watched)

    def _note(
        self,
        fanout: Fanout,
        cursor: int,
        deliveries: Sequence[Delivery],
        done: bool,
        outstanding: Sequence[int],
    ) -> None:
        self.saved.append((cursor, len(deliveries), done, len(outstanding)))

    def timers(self) -> list[object]:
        """The timers, except that of the next look at due notifications."""
        alarm = self.distribution._retries._alarm
        return [call for call in self.clock.getDelayedCalls() if call is not alarm]

    def make(self, **options: int) -> Distribution:
        """Start a distribution over the store, as in a new process after the last one ended."""
        self.store._node = None
        self.successResultOf(self.store._database.write(self.store._ensure_node))
        parts = sink_parts(store=self.store, clock=self.clock, notifiers=self.notifiers)
        return make_distribution(parts, **options)

    def start(self, **options: int) -> Distribution:
        self.distribution = self.make(**options)
        self.distribution.startService()
        return self.distribution

    def subscribe(self, number: int, topic: str = FEED, protocol: str = "http-post") -> None:
        callback = Callback(f"http://reader{number}.example/", protocol)
        wanted = Subscription(topic, callback, Lease(NOW, 90_000))
        self.successResultOf(self.store.put_subscription(wanted))

    def subscribe_many(self, count: int, topic: str = FEED) -> None:
        for number in range(1, count + 1):
            self.subscribe(number, topic)

    def change(self, topic: str = FEED) -> TopicChanged:
        """Store a change of the topic; return its event."""
        self.contents += 1
        digest = self.contents.to_bytes(32, "big")
        reading = FetchResult(topic, digest, self.contents, self.clock.wall_seconds())
        self.successResultOf(self.store.record_fetch(reading, None))
        return TopicChanged(topic, self.clock.wall_seconds())

    def tell(self, distribution: Distribution, topic: str = FEED) -> None:
        event = self.change(topic)
        self.successResultOf(distribution.handle(event))

    def told(self) -> list[str]:
        """The numbers of the readers that were called, in order."""
        return [
            notification.callback.url.removeprefix("http://reader").partition(".")[0]
            for notification in self.notifier.notified
        ]

    def subscriptions(self, topic: str = FEED) -> list[Subscription]:
        self.unavailable.discard("subscriptions")
        found: list[Subscription] = self.successResultOf(self.store.subscriptions(topic, 0, 1000))
        return found

    def errors(self) -> list[int]:
        return [subscription.consecutive_errors for subscription in self.subscriptions()]

    def walks(self) -> list[Fanout]:
        self.unavailable.discard("fanouts")
        found: list[Fanout] = self.successResultOf(self.store.fanouts(1000))
        return found

    def hold(self) -> list[Deferred[None]]:
        """Make notifications wait until the test ends them."""
        held: list[Deferred[None]] = []
        self.notifier.held = held
        return held

    def refuse(self, number: int, reason: str = "refused") -> None:
        self.notifier.outcomes[f"http://reader{number}.example/"] = Outcome(False, reason)


class WalkTests(DistributionTestCase):
    def test_a_bug_does_not_keep_them_waiting_for_ever(self) -> None:
        self.subscribe_many(2)
        distribution = self.start()
        claim = self.store.claim_fanouts
        self.patch(self.store, "claim_fanouts", lambda keys: fail(ZeroDivisionError()))
        self.tell(distribution)
        self.assertEqual(self.told(), [])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.patch(self.store, "claim_fanouts", claim)
        self.clock.advance(UNAVAILABLE_PAUSE)
        self.assertEqual(self.told(), ["1", "2"])

    def test_subscriptions_are_read_in_slices(self) -> None:
        self.subscribe_many(5)
        self.tell(self.start(slice_size=2))
        self.assertEqual(self.told(), ["1", "2", "3", "4", "5"])
        self.assertEqual((self.walks(), self.saved), ([], [(5, 0, True, 0)]))

    def test_last_slice_may_be_empty(self) -> None:
        self.subscribe_many(4)
        self.tell(self.start(slice_size=2))
        self.assertEqual((self.walks(), self.saved), ([], [(4, 0, True, 0)]))

    def test_cursor_and_outcomes_are_saved_together(self) -> None:
        self.subscribe_many(4)
        self.refuse(1)
        self.refuse(3)
        held = self.hold()
        self.tell(self.start(slice_size=2))
        held[0].callback(None)
        self.assertEqual((self.errors(), self.saved), ([0, 0, 0, 0], []))
        self.clock.advance(SAVE_WITHIN_SECONDS)
        self.assertEqual((self.errors(), self.saved), ([1, 0, 0, 0], [(4, 1, False, 3)]))

    def test_change_while_walking_makes_one_more_walk(self) -> None:
        self.subscribe_many(2)
        distribution = self.start()
        held = self.hold()
        self.tell(distribution)
        for _ in range(3):
            self.tell(distribution)
        self.assertEqual(self.told(), ["1", "2"])
        for gate in held[:2]:
            gate.callback(None)
        self.assertEqual(self.told(), ["1", "2", "1", "2"])
        for gate in held[2:]:
            gate.callback(None)
        self.assertEqual(len(self.told()), 4)
        self.assertEqual(self.walks(), [])

    def test_walk_that_ends_while_walks_are_looked_for_is_not_walked_again(self) -> None:
        """The store may be read as it was before the walk's end was written."""
        self.subscribe_many(2)
        distribution = self.start()
        held = self.hold()
        self.tell(distribution)
        seen = self.walks()
        reading: Deferred[list[Fanout]] = Deferred()
        self.patch(self.store, "fanouts", lambda limit: reading)
        self.successResultOf(distribution.handle(TopicChanged(FEED, self.clock.wall_seconds())))
        for gate in held:
            gate.callback(None)
        self.patch(self.store, "fanouts", lambda limit: succeed([]))
        reading.callback(seen)
        self.assertEqual(self.told(), ["1", "2"])


class OutcomeTests(DistributionTestCase):
    def test_three_failures_in_a_row_mark(self) -> None:
        self.subscribe_many(2)
        self.refuse(1, "connection refused")
        distribution = self.start()
        for errors, dropping in ((1, False), (2, False), (3, True)):
            self.clock.advance(60)
            self.tell(distribution)
            bad, good = self.subscriptions()
            self.assertEqual((bad.consecutive_errors, bad.dropping), (errors, dropping))
            self.assertEqual((bad.last_error, good.consecutive_errors), ("connection refused", 0))
            self.assertEqual(bad.last_error_at, About(self.clock.wall_seconds()))

    def test_protocol_without_a_notifier(self) -> None:
        self.subscribe(1, protocol="carrier-pigeon")
        self.subscribe(2)
        distribution = self.start()
        for _ in range(4):
            self.tell(distribution)
        bad, _ = self.subscriptions()
        self.assertEqual((bad.consecutive_errors, bad.dropping), (4, False))
        self.assertIn("carrier-pigeon", bad.last_error)
        self.assertEqual(self.told(), ["2"] * 4)

    def test_failing_callback_does_not_stop_others(self) -> None:
        self.subscribe_many(4)
        self.refuse(1)
        self.notifier.outcomes["http://reader2.example/"] = ZeroDivisionError("no good")
        self.tell(self.start())
        self.assertEqual(self.told(), ["1", "2", "3", "4"])
        self.assertEqual(self.errors(), [1, 1, 0, 0])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(self.subscriptions()[1].last_error, "the notifier failed: no good")
        self.assertEqual(self.walks(), [])


class OptionsTests(SynchronousTestCase):
    def test_slow_calls_leave_files_for_all_else(self) -> None:
        for hard, most in ((RLIM_INFINITY, 6000), (20_000, 6000), (4096, 2048)):
            self.patch(options, "getrlimit", lambda which, hard=hard: (1024, hard))
            self.assertEqual(DistributionOptions().max_slow, most)
        self.assertEqual(DistributionOptions(in_flight=20).max_slow, 600)


class LimitTests(DistributionTestCase):
    def test_topics(self) -> None:
        topics = [f"{FEED}?{number}" for number in range(5)]
        held = self.hold()
        for topic in topics:
            self.subscribe(1, topic)
            self.change(topic)
        self.start(max_walks=2)
        for walked in range(5):
            self.assertEqual(len(held), min(walked + 2, 5))
            held[walked].callback(None)
        self.assertEqual([one.topic for one in self.notifier.notified], topics)
        self.assertEqual(self.walks(), [])


class UnavailableTests(DistributionTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.subscribe_many(3)

    def assert_goes_on(self, told: Sequence[str]) -> None:
        self.clock.advance(UNAVAILABLE_PAUSE)
        self.unavailable.clear()
        self.clock.advance(UNAVAILABLE_PAUSE)
        self.assertEqual(self.told(), told)
        self.assertEqual((self.walks(), self.timers()), ([], []))

    def test_while_looking_for_walks(self) -> None:
        self.unavailable.add("fanouts")
        distribution = self.start()
        for _ in range(5):
            self.tell(distribution)
        self.assertEqual(len(self.timers()), 1)
        self.assert_goes_on(["1", "2", "3"])

    def test_while_reading_subscriptions(self) -> None:
        self.unavailable.add("subscriptions")
        self.tell(self.start())
        self.assertEqual(self.told(), [])
        self.assert_goes_on(["1", "2", "3"])

    def test_nobody_is_told_again_because_outcomes_cannot_be_saved(self) -> None:
        self.unavailable.add("record_slice")
        self.refuse(2)
        self.tell(self.start())
        self.assert_goes_on(["1", "2", "3"])
        self.assertEqual(self.errors(), [0, 1, 0])

    def test_stopping_does_not_wait_for_the_store(self) -> None:
        for operation in ("fanouts", "subscriptions", "record_slice"):
            self.unavailable.add(operation)
            self.change()
            distribution = self.start()
            self.successResultOf(distribution.stopService())
            self.assertEqual(self.clock.getDelayedCalls(), [])
            self.unavailable.clear()

    def test_bug_in_the_store(self) -> None:
        def broken(*args: Any) -> Deferred[None]:
            return fail(ZeroDivisionError())

        works = self.store.record_slice
        self.patch(self.store, "record_slice", broken)
        self.tell(self.start())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.patch(self.store, "record_slice", works)
        self.clock.advance(UNAVAILABLE_PAUSE)
        self.assertEqual(self.walks(), [])


class StartTests(DistributionTestCase):
    def test_bug_in_the_store(self) -> None:
        def broken() -> Deferred[None]:
            return fail(ZeroDivisionError())

        self.subscribe_many(2)
        self.change()
        for operation in ("hosts", "next_due"):
            self.patch(self.store, operation, broken)
        self.start()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual((self.told(), self.walks()), (["1", "2"], []))


class StopTests(DistributionTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.subscribe_many(4)

    def test_waits_for_those_in_flight(self) -> None:
        held = self.hold()
        distribution = self.start(in_flight=2, max_slow=0)
        self.tell(distribution)
        stopped = distribution.stopService()
        held[0].callback(None)
        self.assertNoResult(stopped)
        held[1].callback(None)
        self.successResultOf(stopped)
        # The other subscribers were not called; the next start does that.
        self.assertEqual((self.told(), self.saved), (["1", "2"], [(4, 0, False, 2)]))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.notifier.held = None
        distribution.startService()
        self.assertEqual(self.told(), ["1", "2", "3", "4"])
        self.assertEqual(self.walks(), [])

    def test_gives_up_after_its_patience(self) -> None:
        self.hold()
        distribution = self.start(in_flight=2)
        self.tell(distribution)
        stopped = distribution.stopService()
        self.clock.advance(STOP_TIMEOUT - 0.1)
        self.assertNoResult(stopped)
        self.clock.advance(0.1)
        self.successResultOf(stopped)
        # Attempts that waited for a slot are not made any more.
        self.assertEqual(self.told(), ["1", "2"])
        self.assertEqual([walk.outstanding for walk in self.walks()], [(3, 4)])
        self.assertEqual(self.flushLoggedErrors(), [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_what_it_gave_up_is_done_after_the_next_start(self) -> None:
        self.hold()
        distribution = self.start()
        self.tell(distribution)
        distribution.stopService()
        self.clock.advance(STOP_TIMEOUT)
        self.notifier.held, self.notifier.notified = None, []
        distribution.startService()
        self.clock.advance(0.2)
        self.assertEqual(self.told(), ["1", "2", "3", "4"])
        self.assertEqual((self.errors(), self.walks()), ([0] * 4, []))

    def test_notifier_that_cannot_be_cancelled(self) -> None:
        gates: list[Deferred[Outcome]] = []

        async def stubborn(notification: object) -> Outcome:
            gates.append(Deferred())
            while True:
                try:
                    return await gates[-1]
                except Exception:
                    gates.append(Deferred())

        self.patch(self.notifier, "notify", stubborn)
        distribution = self.start()
        self.tell(distribution)
        stopped = distribution.stopService()
        self.clock.advance(STOP_TIMEOUT)
        self.successResultOf(stopped)
        for gate in gates[4:]:
            gate.callback(Outcome(True))
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_retries_in_flight_are_put_off(self) -> None:
        self.notifier.retries = (5.0,)
        for number in range(1, 5):
            self.refuse(number)
        distribution = self.start(in_flight=2)
        self.tell(distribution)
        self.hold()
        self.clock.advance(7)
        self.assertEqual(len(self.told()), 6)  # two of the four have begun
        stopped = distribution.stopService()
        self.clock.advance(STOP_TIMEOUT)
        self.successResultOf(stopped)
        self.notifier.held, self.notifier.notified = None, []
        self.notifier.outcomes.clear()
        distribution.startService()
        self.clock.advance(0.2)
        self.assertEqual(sorted(self.told()), ["1", "2", "3", "4"])
        self.assertEqual([one.attempts for one in self.subscriptions()], [None] * 4)

    def test_nothing_begins_after_it(self) -> None:
        distribution = self.start()
        self.successResultOf(distribution.stopService())
        self.tell(distribution)
        self.assertEqual(self.told(), [])
        self.assertEqual(len(self.walks()), 1)
