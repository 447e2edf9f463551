"""Tests distribution as a whole: walks are limited, and it bears bugs, a lost store and its end."""

from __future__ import annotations

from resource import RLIM_INFINITY
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.delivery import options
from rsscloud_broker.delivery.options import STOP_TIMEOUT, DistributionOptions
from rsscloud_broker.events import TopicChanged
from rsscloud_broker.model import Callback, Lease, Outcome, Subscription
from rsscloud_broker.model.work import Fanout
from rsscloud_broker.util.retry import UNAVAILABLE_PAUSE
from tests.delivery.engine import FEED, NOW, REFUSED, EngineTestCase


def broken(*args: Any) -> Deferred[Any]:
    """An operation of a store with a bug."""
    return fail(ZeroDivisionError())


class DistributionTestCase(EngineTestCase):
    retries = ()


class WalkTests(DistributionTestCase):
    def test_a_bug_does_not_keep_them_waiting_for_ever(self) -> None:
        urls = self.subscribe_many(2)
        self.start()
        claim = self.store.claim_fanouts
        self.patch(self.store, "claim_fanouts", broken)
        self.change()
        self.assertEqual(self.called(), [])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.patch(self.store, "claim_fanouts", claim)
        self.advance(UNAVAILABLE_PAUSE)
        self.assertEqual(self.called(), urls)

    def test_subscriptions_are_read_in_slices(self) -> None:
        """The last one may be empty."""
        for count in (5, 4):
            topic = f"{FEED}?{count}"
            urls = self.subscribe_many(count, topic)
            self.start(slice_size=2)
            self.asked.clear()
            self.notifier.calls.clear()
            self.change(topic)
            self.assertEqual((self.called(), self.walks()), (urls, []))
            self.assertEqual(self.asked.count("subscriptions"), 3)
            self.assertEqual(self.asked.count("record_slice"), 1)

    def test_change_while_walking_makes_one_more_walk(self) -> None:
        urls = self.subscribe_many(2)
        self.notifier.holds = set(urls)
        self.start()
        for _ in range(4):
            self.change()
        self.assertEqual(self.called(), urls)
        self.notifier.end()
        self.assertEqual(self.called(), urls * 2)
        self.notifier.end()
        self.assertEqual((self.called(), self.walks()), (urls * 2, []))

    def test_walk_that_ends_while_walks_are_looked_for_is_not_walked_again(self) -> None:
        """The store may be read as it was before the walk's end was written."""
        urls = self.subscribe_many(2)
        self.notifier.holds = set(urls)
        self.start_walk()
        seen = self.walks()
        reading: Deferred[list[Fanout]] = Deferred()
        self.patch(self.store, "fanouts", lambda limit: reading)
        self.hint(TopicChanged(FEED, self.clock.wall_seconds()))
        self.notifier.end()
        self.patch(self.store, "fanouts", lambda limit: succeed([]))
        reading.callback(seen)
        self.assertEqual(self.called(), urls)

    def test_protocol_without_a_notifier(self) -> None:
        pigeon = Callback("http://reader.example/", "carrier-pigeon")
        lost = Subscription(FEED, pigeon, Lease(NOW, 90_000))
        self.successResultOf(self.store.put_subscription(lost))
        (url,) = self.subscribe_many(1)
        self.start()
        for _ in range(4):
            self.change()
        bad, _ = self.subscriptions()
        self.assertEqual((bad.consecutive_errors, bad.dropping), (4, False))
        self.assertIn("carrier-pigeon", bad.last_error)
        self.assertEqual(self.called(), [url] * 4)

    def test_so_many_topics_at_a_time(self) -> None:
        urls = [f"http://reader{number}.example/" for number in range(5)]
        self.notifier.holds = set(urls)
        self.start(max_walks=2)
        for number, url in enumerate(urls):
            self.subscribe(url, f"{FEED}?{number}")
            self.change(f"{FEED}?{number}")
        for number, url in enumerate(urls):
            self.assertEqual(self.called(), urls[: number + 2])
            self.notifier.end(url)
        self.assertEqual(self.walks(), [])


class OptionsTests(SynchronousTestCase):
    def test_slow_calls_leave_files_for_all_else(self) -> None:
        for hard, most in ((RLIM_INFINITY, 6000), (20_000, 6000), (4096, 2048)):
            self.patch(options, "getrlimit", lambda which, hard=hard: (1024, hard))
            self.assertEqual(DistributionOptions().max_slow, most)
        self.assertEqual(DistributionOptions(in_flight=20).max_slow, 600)


class UnavailableTests(DistributionTestCase):
    def test_it_goes_on_and_notifies_nobody_again(self) -> None:
        urls = self.subscribe_many(3)
        for operation, meanwhile in (
            ("fanouts", []),
            ("subscriptions", []),
            ("record_slice", urls),
        ):
            self.notifier.calls.clear()
            self.unavailable = {operation}
            self.start()
            for _ in range(5 if operation == "fanouts" else 1):
                self.change()
            self.assertEqual((self.called(), len(self.timers())), (meanwhile, 1), operation)
            self.advance(UNAVAILABLE_PAUSE)
            self.unavailable.clear()
            self.advance(UNAVAILABLE_PAUSE)
            self.assertEqual((self.called(), self.walks(), self.timers()), (urls, [], []))
            self.stop()

    def test_stopping_does_not_wait_for_the_store(self) -> None:
        self.subscribe_many(3)
        for operation in ("fanouts", "subscriptions", "record_slice"):
            self.start()
            self.unavailable = {operation}
            self.change()
            self.successResultOf(self.distribution.stopService())
            self.assertEqual(self.clock.getDelayedCalls(), [])
            self.unavailable.clear()

    def test_bug_at_the_start(self) -> None:
        urls = self.subscribe_many(2)
        self.start()
        self.stop()
        self.change()
        for operation in ("hosts", "next_due"):
            self.patch(self.store, operation, broken)
        self.start()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual((self.called(), self.walks()), (urls, []))


class StopTests(DistributionTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.urls = self.subscribe_many(4)
        self.notifier.holds = set(self.urls)

    def test_waits_for_those_in_flight(self) -> None:
        self.start_walk(in_flight=2, max_slow=0)
        stopped = self.distribution.stopService()
        self.notifier.end(self.urls[0])
        self.assertNoResult(stopped)
        self.notifier.end(self.urls[1])
        self.successResultOf(stopped)
        # The other subscribers were not called; the next start does that.
        self.assertEqual(self.called(), self.urls[:2])
        self.assertEqual([walk.outstanding for walk in self.walks()], [(3, 4)])
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.notifier.holds.clear()
        self.distribution.startService()
        self.assertEqual((self.called(), self.walks()), (self.urls, []))

    def test_gives_up_after_its_patience(self) -> None:
        """What it gave up is done after the next start."""
        self.start_walk(in_flight=2, max_slow=0)
        stopped = self.distribution.stopService()
        self.clock.advance(STOP_TIMEOUT - 0.1)
        self.assertNoResult(stopped)
        self.clock.advance(0.1)
        self.successResultOf(stopped)
        # Attempts that waited for a slot are not made any more.
        self.assertEqual(self.called(), self.urls[:2])
        self.assertEqual([walk.outstanding for walk in self.walks()], [(3, 4)])
        self.assertEqual(self.flushLoggedErrors(), [])
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.notifier.holds.clear()
        self.notifier.calls.clear()
        self.distribution.startService()
        self.advance(0.2)
        self.assertEqual(sorted(self.called()), self.urls)
        errors = [one.consecutive_errors for one in self.subscriptions()]
        self.assertEqual((errors, self.walks()), ([0] * 4, []))

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
        self.start_walk()
        stopped = self.distribution.stopService()
        self.clock.advance(STOP_TIMEOUT)
        self.successResultOf(stopped)
        for gate in gates[4:]:
            gate.callback(Outcome(True))
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_retries_in_flight_are_put_off(self) -> None:
        self.notifier.retries = (5.0,)
        self.notifier.holds.clear()
        self.notifier.outcomes = dict.fromkeys(self.urls, REFUSED)
        self.start_walk(in_flight=2, max_slow=0)
        self.notifier.holds = set(self.urls)
        self.advance(7)
        self.assertEqual(len(self.called()), 6)  # two of the four have begun
        self.stop()
        self.notifier.holds.clear()
        self.notifier.outcomes.clear()
        self.notifier.calls.clear()
        self.distribution.startService()
        self.advance(2)
        self.assertEqual((sorted(self.called()), self.waiting()), (self.urls, {}))

    def test_nothing_begins_after_it(self) -> None:
        self.start()
        self.stop()
        self.change()
        self.assertEqual((self.called(), len(self.walks())), ([], 1))
