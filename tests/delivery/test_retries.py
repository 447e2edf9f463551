"""Notifications that failed or were put off are made again, in time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from attrs import evolve

from rsscloud_broker.delivery.breakers import FIRST_PAUSE, THRESHOLD
from rsscloud_broker.model import Lease, Outcome
from rsscloud_broker.util.retry import UNAVAILABLE_PAUSE
from tests.delivery.engine import FEED, NO_ANSWER, REFUSED, EngineTestCase

URL = "http://reader0.example/0"


class RetriesTestCase(EngineTestCase):
    def refuse_a_change(self) -> None:
        """Notify the one subscriber of a change, which it refuses."""
        self.subscribe_many(1)
        self.notifier.outcomes[URL] = REFUSED
        self.start_walk()

    def renew(self, topic: str = FEED) -> None:
        """Have the one subscriber of a topic subscribe anew."""
        (found,) = self.subscriptions(topic)
        self.put(evolve(found, lease=Lease(self.clock.wall_seconds(), 90_000)))


class ScheduleTests(RetriesTestCase):
    def test_after_5_s_30_s_2_min_10_min_30_min_it_is_one_error(self) -> None:
        self.refuse_a_change()
        at, expected = 0.0, [0.0]
        for pause in self.retries:
            self.assertEqual(self.subscriptions()[0].consecutive_errors, 0)
            at += pause
            expected.append(at)
            self.advance(pause - 3, 60)
            self.advance(4)
        self.assert_times(URL, expected, delta=2)
        (found,) = self.subscriptions()
        self.assertEqual((found.consecutive_errors, found.last_error), (1, "refused"))
        self.assertEqual((found.dropping, self.waiting()), (False, {}))
        self.assertEqual(self.count("notifications_given_up_total", protocol="http-post"), 1)
        self.advance(7200, 60)
        self.assertEqual(len(self.notifier.calls), 6)

    def test_success_is_one_whenever_it_comes(self) -> None:
        self.notifier.retries = (1.0,)
        self.subscribe_many(1)
        self.notifier.outcomes[URL] = REFUSED
        self.start()
        for _ in range(2):
            self.change()
            self.advance(3)
        self.assertEqual(self.subscriptions()[0].consecutive_errors, 2)
        self.change()
        self.notifier.outcomes.clear()
        self.advance(3)
        (found,) = self.subscriptions()
        self.assertEqual((found.consecutive_errors, found.last_error), (0, ""))
        self.assertEqual((len(self.notifier.calls), self.waiting()), (6, {}))

    def claim_late(self) -> Callable[[], None]:
        """One subscriber refused, and the store has claimed the notification that waits for it.

        :returns: lets the store say so.
        """
        self.refuse_a_change()
        self.advance(self.retries[0] - 1)
        release = self.hold_a_claim(2)
        self.notifier.outcomes.clear()
        return release

    def test_who_leaves_while_it_is_claimed_is_told_no_more(self) -> None:
        release = self.claim_late()
        self.leave(*self.subscriptions())
        release()
        self.advance(60)
        self.assertEqual(len(self.notifier.calls), 1)

    def test_who_asks_something_else_while_it_is_claimed_gets_that(self) -> None:
        release = self.claim_late()
        (found,) = self.subscriptions()
        self.put(evolve(found, options={"secret": "new"}))
        self.notifier.forget()
        release()
        self.advance(60)
        options = [notification.options for notification in self.notifier.notifications]
        self.assertEqual((options, self.waiting()), ([{"secret": "new"}], {}))

    def test_restart_goes_on_with_the_schedule(self) -> None:
        self.refuse_a_change()
        for _ in range(4):
            self.advance(9)
            self.crash()
            self.start()
        self.advance(10)
        self.assert_times(URL, [0, 5, 35], delta=1)
        self.assertEqual(self.waiting(), {URL: 3})

    def test_what_was_due_while_nothing_ran_is_made_at_the_start(self) -> None:
        self.refuse_a_change()
        self.crash()
        self.advance(3600, 600)
        self.start()
        self.advance(1)
        self.assert_times(URL, [0, 3600])

    def test_claims_come_up_again(self) -> None:
        self.refuse_a_change()
        self.notifier.holds, self.notifier.outcomes = {URL}, {}
        self.advance(6)
        self.assertEqual(len(self.notifier.calls), 2)
        self.restart()
        self.advance(2)
        self.assert_times(URL, [0, 5, 6], delta=2)
        self.assertEqual(self.waiting(), {})


class CoalescingTests(RetriesTestCase):
    def test_changes_while_one_waits_make_no_second(self) -> None:
        self.refuse_a_change()
        for _ in range(2):
            self.change()
        self.assertEqual((self.waiting(), self.walks()), ({URL: 0}, []))
        self.notifier.outcomes.clear()
        self.advance(60)
        self.assert_times(URL, [0, 5])
        self.assertEqual(self.waiting(), {})

    def test_who_subscribes_anew_is_told_at_once(self) -> None:
        self.subscribe(URL)
        self.notifier.outcomes[URL] = Outcome(False, "status 503", retry_after=3600.0)
        self.start_walk()
        self.notifier.outcomes.clear()
        self.advance(10)
        self.renew()
        self.advance(1)
        self.assert_times(URL, [0, 10])
        self.assertEqual(self.waiting(), {})

    def test_who_renews_late_is_told_at_once(self) -> None:
        """A retry was due after the lease, and before the subscription was removed."""
        self.subscribe(URL)
        self.notifier.outcomes[URL] = REFUSED
        self.start()
        self.advance(90_000 - 20, 600.0)
        self.change()
        self.advance(600, 1.0)
        self.assertEqual(len(self.notifier.calls), 2)
        self.notifier.outcomes.clear()
        self.renew()
        self.advance(1)
        self.assertEqual((len(self.notifier.calls), self.waiting()), (3, {}))

    def test_who_renews_during_a_call_that_fails_is_told_at_once(self) -> None:
        """As a subscriber does that starts anew, even if it was gone for a moment."""
        gone = Outcome(False, "status 410", gone=True)
        for topic, outcome in (("a", REFUSED), ("b", NO_ANSWER), ("c", gone)):
            url, feed = f"http://{topic}.example/", f"{FEED}?{topic}"
            self.notifier.retries = (5.0, 600.0)
            self.subscribe(url, feed)
            self.notifier.outcomes[url] = REFUSED
            self.start_walk(feed)
            self.notifier.holds = {url}
            self.advance(6)
            self.renew(feed)
            self.notifier.outcomes[url] = outcome
            self.notifier.release()
            self.notifier.outcomes.clear()
            self.advance(10)
            found = [(one.attempts, one.consecutive_errors) for one in self.subscriptions(feed)]
            self.assertEqual((len(self.times(url)), found), (3, [(None, 0)]))
            self.stop()

    def test_change_begins_the_schedule_anew(self) -> None:
        """Who has come back does not wait for the end of a long pause."""
        self.refuse_a_change()
        self.advance(60)
        self.assert_times(URL, [0, 5, 35])
        self.change()
        self.advance(10)
        self.notifier.outcomes.clear()
        self.change()
        self.advance(10)
        self.assert_times(URL, [0, 5, 35, 60, 65, 70], delta=0.6)
        self.assertEqual(self.waiting(), {})

    def test_what_fails_through_all_changes_is_given_up(self) -> None:
        self.notifier.retries = (5.0, 30.0)
        self.subscribe_many(1)
        self.notifier.outcomes[URL] = REFUSED
        self.start()
        for _ in range(5):
            self.change()
            self.advance(10)
            self.assertEqual(self.count("notifications_given_up_total", protocol="http-post"), 0)
        self.change()
        self.advance(10)
        self.assertEqual(self.count("notifications_given_up_total", protocol="http-post"), 1)
        pauses = [after - before for before, after in pairwise(self.times(URL))]
        self.assertGreater(min(pauses), 4.9)
        self.assertEqual(self.subscriptions()[0].consecutive_errors, 1)

    def test_change_after_a_success_that_is_not_saved_yet(self) -> None:
        """The walk still reads that a notification waits, but none does any more."""
        self.refuse_a_change()
        self.slow = {"record_deliveries"}
        self.notifier.outcomes.clear()
        self.advance(6)
        self.assertEqual((self.times(URL), self.waiting()), (self.times(URL)[:2], {URL: 1}))
        self.change()
        self.hurry()
        self.advance(1)
        self.assertEqual(len(self.times(URL)), 3)
        self.assertEqual((self.waiting(), self.walks()), ({}, []))

    def test_claim_is_not_given_out_twice(self) -> None:
        self.refuse_a_change()
        self.notifier.holds, self.notifier.outcomes = {URL}, {}
        self.advance(120, 1)
        self.assertEqual(len(self.notifier.calls), 2)
        self.notifier.end()
        self.advance(120, 1)
        self.assertEqual((len(self.notifier.calls), self.waiting()), (2, {}))


class ClosedHostTests(RetriesTestCase):
    def test_all_are_told_as_soon_as_it_answers_again(self) -> None:
        """They do not wait for the ends of their own pauses."""
        for number, outcome in enumerate((NO_ANSWER, evolve(NO_ANSWER, port_only=True))):
            topic, host = f"{FEED}?{number}", f"dead{number}.example"
            self.jitter = 1.0
            urls = self.subscribe_many(6, topic, host)
            self.notifier.outcomes[host] = outcome
            self.start_walk(topic)
            self.advance(10)
            self.assertEqual(len(self.notifier.calls), THRESHOLD)
            self.assertEqual(sorted(self.waiting(topic).values()), [0] + [1] * THRESHOLD)
            self.notifier.outcomes.clear()
            self.notifier.calls.clear()
            self.advance(65)
            self.assertEqual((sorted(self.called()), self.waiting(topic)), (urls, {}))
            self.stop()
            self.notifier.calls.clear()

    def test_survives_a_restart(self) -> None:
        """After a crash, and after a stop, which stores what is not stored yet."""
        self.subscribe_many(20, host="dead.example")
        self.notifier.outcomes["dead.example"] = NO_ANSWER
        self.start_walk()
        self.advance(2)
        self.crash()
        self.start()
        self.assertEqual(self.count("open_breakers"), 1)
        self.change()
        self.advance(FIRST_PAUSE / 2)
        self.assertEqual(len(self.notifier.calls), THRESHOLD)
        self.subscribe_many(20, f"{FEED}?2", host="other.example")
        self.notifier.outcomes["other.example"] = NO_ANSWER
        self.change(f"{FEED}?2")
        self.stop()
        states = {one.host: one.failures for one in self.successResultOf(self.store.hosts())}
        self.assertEqual(states, dict.fromkeys(("dead.example", "other.example"), THRESHOLD))

    def test_put_off_and_made_when_it_answers_again(self) -> None:
        urls = self.subscribe_many(50, host="dead.example")
        self.notifier.outcomes["dead.example"] = NO_ANSWER
        self.start_walk(slice_size=10)
        self.advance(FIRST_PAUSE - 1)
        self.assertEqual(len(self.notifier.calls), THRESHOLD)
        self.assertEqual(self.count("open_breakers"), 1)
        self.assertEqual(sorted(self.waiting().values()), [0] * (50 - THRESHOLD) + [1] * THRESHOLD)
        self.advance(FIRST_PAUSE)
        self.assertEqual(len(self.notifier.calls), THRESHOLD + 1)
        self.notifier.calls.clear()
        self.notifier.outcomes.clear()
        self.advance(4 * FIRST_PAUSE)
        self.assertEqual(sorted(self.called()), sorted(urls))
        self.assertEqual((self.waiting(), self.count("open_breakers")), ({}, 0))

    def test_black_hole_costs_a_probe_now_and_then(self) -> None:
        self.subscribe_many(50, host="dead.example")
        self.notifier.outcomes["dead.example"] = NO_ANSWER
        self.start_walk()
        self.advance(4 * 3600, 30)
        # Five at first; then after 1, 2, 4, 8, 16, 32 and 60 minutes, and a bit more each time.
        self.assertLessEqual(len(self.notifier.calls), THRESHOLD + 10)
        given_up = sum(one.consecutive_errors for one in self.subscriptions())
        self.assertEqual(len(self.waiting()) + given_up, 50)


class UnavailableTests(RetriesTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.refuse_a_change()
        self.notifier.outcomes.clear()

    def test_store_that_cannot_be_used(self) -> None:
        for operation in ("claim_due", "next_due", "record_deliveries"):
            self.notifier.calls.clear()
            self.unavailable.add(operation)
            self.advance(3 * UNAVAILABLE_PAUSE, 0.5)
            self.assertIn(operation, self.asked)
            self.unavailable.clear()
            self.advance(UNAVAILABLE_PAUSE + 1, 0.5)
            self.assertEqual((self.called(), self.waiting()), ([URL], {}), operation)
            self.notifier.outcomes[URL] = REFUSED
            self.change()
            self.notifier.outcomes.clear()

    def test_stop_does_not_wait_for_it(self) -> None:
        self.unavailable.add("claim_due")
        self.advance(6)
        self.unavailable.add("record_deliveries")
        self.stop()
        self.unavailable.clear()
        self.start()
        self.advance(2)
        self.assertEqual((self.called(), self.waiting()), ([URL, URL], {}))

    def test_bug_in_the_store(self) -> None:
        for operation in ("claim_due", "record_deliveries"):
            self.notifier.outcomes[URL] = REFUSED
            self.change()
            self.notifier.outcomes.clear()
            self.notifier.calls.clear()
            works = getattr(self.store, operation)

            def broken(*args: object) -> None:
                raise ZeroDivisionError

            self.patch(self.store, operation, broken)
            self.advance(40, 0.5)
            self.patch(self.store, operation, works)
            self.assertTrue(self.flushLoggedErrors(ZeroDivisionError))
            self.advance(30, 0.5)
            self.assertEqual((set(self.called()), self.waiting()), ({URL}, {}), operation)

    def test_what_is_due_while_the_store_is_slow(self) -> None:
        """To be woken while a look goes on must not be lost."""
        self.advance(4.5)
        self.slow = {"next_due"}
        self.advance(1.5)  # URL is notified; the look is not over yet
        self.notifier.outcomes[URL] = REFUSED
        self.change()
        self.advance(6)
        self.notifier.outcomes.clear()
        self.hurry()
        self.advance(2)
        self.assertEqual((len(self.called()), self.waiting()), (4, {}))
