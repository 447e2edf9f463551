"""The events of distribution for the event log: fan-outs, notifications, hosts."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from rsscloud_broker.delivery import walk
from rsscloud_broker.delivery.breakers import THRESHOLD
from rsscloud_broker.events import (
    Event,
    FanOutBegun,
    FanOutEnded,
    HostReachable,
    HostUnreachable,
    NotificationDelivered,
    NotificationFailed,
)
from rsscloud_broker.model import Outcome
from tests.delivery.engine import FEED, EngineTestCase

NO = Outcome(False, "status 500")
NO_ANSWER = Outcome(False, "it timed out", answered=False)
REFUSED = Outcome(False, "connection refused", answered=False, port_only=True)


class LoggedCase(EngineTestCase):
    def logged(self, *kinds: type[Event]) -> list[Any]:
        """The events of some classes, in order."""
        return [event for event in self.bus.events if isinstance(event, kinds)]

    def run_for(self, seconds: float, **options: Any) -> None:
        """Start, announce a change, and let time pass."""
        self.start(**options)
        self.change()
        self.advance(seconds)


class FanOutTests(LoggedCase):
    def ended(self) -> FanOutEnded:
        event: FanOutEnded
        (event,) = self.logged(FanOutEnded)
        return event

    def counts(self) -> tuple[int, int, int]:
        event = self.ended()
        return event.delivered, event.failed, event.waiting

    def test_begun_and_ended_with_counts(self) -> None:
        bad, *_ = self.subscribe_many(5)
        self.notifier.outcomes[bad] = NO
        self.notifier.takes = 0.25
        self.run_for(2)
        (begun,) = self.logged(FanOutBegun)
        self.assertEqual(begun.topic, FEED)
        self.assertEqual(self.counts(), (4, 1, 0))
        event = self.ended()
        assert event.first is not None
        self.assertTrue(0.25 <= event.first < 0.35, event)
        self.assertTrue(event.first <= event.last < 1, event)
        self.assertTrue(begun.at < event.at)

    def test_nobody_accepts(self) -> None:
        (bad,) = self.subscribe_many(1)
        self.notifier.outcomes[bad] = NO
        self.run_for(2)
        self.assertEqual((self.counts(), self.ended().first), ((0, 1, 0), None))

    def test_who_is_told_of_the_end_of_the_topic_has_not_failed(self) -> None:
        self.subscribe_many(2)
        self.start()
        self.end_topic("it is gone")
        self.advance(2)
        self.assertEqual((self.counts(), self.subscriptions()), ((0, 0, 0), []))

    def test_those_that_answer_later_are_counted_as_waiting(self) -> None:
        slow, *_ = self.subscribe_many(3)
        self.notifier.holds.add(slow)
        self.run_for(2)
        self.assertEqual(self.counts(), (2, 0, 1))
        self.notifier.held[0][1].callback(None)
        self.advance(2)
        self.assertEqual(self.counts(), (2, 0, 1))

    def test_turns_are_one_fan_out(self) -> None:
        """A walk that stops for others, and goes on later, begins and ends once."""
        other = "http://feeds.example/other.xml"
        self.patch(walk, "TURN_SUBSCRIPTIONS", 10)
        self.subscribe_many(60)
        self.subscribe_many(60, other)
        self.start(max_walks=1, slice_size=10)
        self.change()
        self.change(other)
        self.advance(20)
        for topic in (FEED, other):
            events = [one for one in self.logged(FanOutBegun, FanOutEnded) if one.topic == topic]
            self.assertEqual([type(one) for one in events], [FanOutBegun, FanOutEnded])
            self.assertEqual(events[1].delivered, 60)

    def test_after_a_crash_it_ends_and_does_not_begin_again(self) -> None:
        urls = self.subscribe_many(300)
        self.notifier.holds.update(urls[200:])
        self.run_for(0.3)
        self.crash()
        self.notifier.holds.clear()
        self.bus.events.clear()
        self.start()
        self.advance(5)
        self.assertEqual(self.logged(FanOutBegun), [])
        self.assertEqual(self.ended().failed, 0)


class NotificationTests(LoggedCase):
    retries = (5.0,)

    def failures(self) -> list[tuple[str, bool, bool]]:
        """The reason of each failure, whether it is retried, and whether the subscription ends."""
        return [
            (one.reason, one.retry_at is not None, one.ends)
            for one in self.logged(NotificationFailed)
        ]

    def fail_all(self, outcome: Outcome) -> None:
        (url,) = self.subscribe_many(1)
        self.notifier.outcomes[url] = outcome
        self.run_for(2)

    def test_failed_then_given_up(self) -> None:
        self.fail_all(NO)
        self.assertEqual(self.failures(), [("status 500", True, False)])
        (event,) = self.logged(NotificationFailed)
        self.assertAlmostEqual(event.retry_at - event.at, 5.0, 1)
        self.advance(10)
        self.assertEqual(self.failures()[1:], [("status 500", False, False)])

    def test_gone(self) -> None:
        self.fail_all(evolve(NO, gone=True))
        self.assertEqual(self.failures(), [("status 500", False, True)])

    def test_topic_that_ended(self) -> None:
        self.subscribe_many(1)
        self.start()
        self.end_topic("it is gone")
        self.advance(2)
        (event,) = self.logged(NotificationFailed)
        self.assertEqual((event.ends, event.subscription.ended), (True, "it is gone"))

    def test_it_is_published_after_it_is_stored(self) -> None:
        self.unavailable.add("record_slice")
        self.fail_all(NO)
        self.assertEqual(self.failures(), [])
        self.unavailable.clear()
        self.advance(15)
        self.assertEqual(self.failures()[0], ("status 500", True, False))

    def test_single_successes(self) -> None:
        urls = self.subscribe_many(2)
        self.run_for(2)
        delivered = [one.subscription.callback.url for one in self.logged(NotificationDelivered)]
        self.assertEqual(sorted(delivered), sorted(urls))

    def test_single_successes_that_nobody_wants(self) -> None:
        self.patch(self.bus, "wants", lambda kind: False)
        self.subscribe_many(2)
        self.run_for(2)
        self.assertEqual(self.logged(NotificationDelivered), [])


class HostTests(LoggedCase):
    def test_unreachable_and_reachable(self) -> None:
        """A whole host, or only one of its ports."""
        for outcome, port in ((NO_ANSWER, None), (REFUSED, 8000)):
            self.subscribe_many(THRESHOLD, host="reader.example:8000")
            self.notifier.outcomes["reader.example"] = outcome
            self.run_for(2, breaker_pause=10)
            (event,) = self.logged(HostUnreachable)
            self.assertEqual((event.host, event.port), ("reader.example", port))
            self.assertEqual((event.reason, event.failures), (outcome.reason, THRESHOLD))
            self.assertAlmostEqual(event.retry_at - event.at, 10.0, 1)
            self.notifier.outcomes.clear()
            self.advance(30)
            (closed,) = self.logged(HostReachable)
            self.assertEqual((closed.host, closed.port), ("reader.example", port))
            self.stop()
            self.setUp()
