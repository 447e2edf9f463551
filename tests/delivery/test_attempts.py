"""Tests what is stored after one attempt, and after several for the same subscription."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import capturedLogs
from twisted.python.monkey import MonkeyPatcher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rsscloud_broker.counters import Counters
from rsscloud_broker.delivery.attempt import Attempt
from rsscloud_broker.delivery.attempts import SOON, Attempts
from rsscloud_broker.delivery.breakers import FIRST_PAUSE, THRESHOLD, Breakers
from rsscloud_broker.delivery.contents import UNDER_WAY, Contents
from rsscloud_broker.delivery.dispatch import Dispatcher
from rsscloud_broker.delivery.outcomes import JITTER
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import IDirectNotifier
from rsscloud_broker.model import Callback, Content, Lease, Notification, Outcome, Subscription
from rsscloud_broker.model.work import Delivery, HostState
from rsscloud_broker.testing import RecordingBus, memory_store
from rsscloud_broker.testing.clock import About, Clock
from rsscloud_broker.util.deferreds import BreakOff, Done
from tests.delivery.engine import FEED, NO_ANSWER, NOW, REFUSED, ScriptedNotifier

HOST = "reader.example"
URL = f"http://{HOST}/notify"
RETRIES = (5.0, 30.0, 120.0)


def subscription(number: int = 1, host: str = HOST) -> Subscription:
    callback = Callback(f"http://{host}/notify", "http-post")
    return Subscription(FEED, callback, Lease(NOW, 90_000), id=number)


class AttemptsTestCase(SynchronousTestCase):
    """A test case that submits attempts.

    :ivar delivered: the delivery of each attempt, in order.
    :ivar began: the ids of the subscriptions whose attempts began, or were over, in order.
    """

    def setUp(self) -> None:
        self.clock = Clock(NOW)
        self.store = memory_store()
        self.addCleanup(self.store.stopService)
        self.jitter = 0.0
        self.notifier = ScriptedNotifier(self.clock, RETRIES)
        self.counters = Counters()
        self.delivered: list[Delivery] = []
        self.began: list[int] = []
        self.make()

    def make(self, slots: int = 200, per_host: int = 4, max_slow: int = 2000) -> None:
        self.breakers = Breakers(self.clock, self.counters, lambda: None)
        dispatcher = Dispatcher(
            self.clock, self.counters, slots=slots, per_host=per_host, max_slow=max_slow
        )
        self.attempts = Attempts(
            {"http-post": self.notifier},
            self.clock,
            dispatcher,
            self.breakers,
            self.counters,
            Contents(self.store, RecordingBus(), self.clock),
            jitter=lambda: self.jitter,
        )

    def submit(
        self, wanted: Subscription | None = None, *, changed: bool = True, **carried: Any
    ) -> Attempt:
        return self.attempts.submit(
            wanted or subscription(),
            self.delivered.append,
            changed=changed,
            began=lambda attempt: self.began.append(attempt.subscription.id),
            **carried,
        )

    def outcome(self, outcome: Outcome, attempts: int | None = None) -> Delivery:
        """The delivery of an attempt that has an outcome."""
        self.notifier.outcomes[HOST] = outcome
        self.submit(evolve(subscription(), attempts=attempts), changed=attempts is None)
        return self.delivered[-1]

    def hold(self) -> None:
        self.notifier.holds = {HOST}

    def break_notifier(self, error: Exception) -> MonkeyPatcher:
        """Have each notification raise an error, until what is returned is restored."""

        async def broken(notification: object) -> Outcome:
            raise error

        patched: MonkeyPatcher = self.patch(self.notifier, "notify", broken)
        return patched

    def ended(self, outcome: str) -> float:
        """How many notifications are counted as having ended in this way."""
        return self.count("notifications_total", protocol="http-post", outcome=outcome)

    def count(self, name: str, **labels: str) -> float:
        return self.counters.registry.get_sample_value(f"rsscloud_{name}", labels) or 0.0


class OutcomeTests(AttemptsTestCase):
    def test_success(self) -> None:
        attempt = self.submit()
        self.assertEqual(self.delivered, [Delivery(subscription(), Outcome(True), NOW, 3, 1)])
        self.assertEqual((attempt.over, self.began), (True, [1]))
        self.assertEqual(self.attempts.under_way, [])
        self.assertEqual(self.ended("delivered"), 1)

    def test_subscriber_is_told_the_topic_as_it_wrote_it(self) -> None:
        written = "HTTP://Feeds.example/rss.xml"
        self.submit(evolve(subscription(), written=written))
        self.submit(evolve(subscription(), written=written, ended="it is gone"))
        self.assertEqual([one.topic for one in self.notifier.notifications], [written])
        self.assertEqual([denial.topic for denial in self.notifier.denials], [written])

    def test_failure_waits_as_the_schedule_says(self) -> None:
        for tried, pause in ((None, 5.0), (0, 5.0), (1, 30.0), (2, 120.0)):
            delivery = self.outcome(REFUSED, tried)
            expected = (REFUSED, (tried or 0) + 1, NOW + pause)
            self.assertEqual((delivery.outcome, delivery.attempts, delivery.retry_at), expected)
        self.assertEqual(self.ended("failed"), 4)
        self.assertEqual(self.count("notification_retries_total"), 2)
        self.assertEqual(self.count("notifications_given_up_total", protocol="http-post"), 0)

    def test_given_up_at_the_end_of_the_schedule(self) -> None:
        delivery = self.outcome(REFUSED, 3)
        self.assertEqual(delivery, Delivery(delivery.subscription, REFUSED, NOW, 3, 4))
        self.assertEqual(self.count("notifications_given_up_total", protocol="http-post"), 1)

    def test_an_interrupted_attempt_is_not_the_last(self) -> None:
        """Its subscriber may be innocent; one that ends couriers each time is given up."""
        interrupted = evolve(REFUSED, port_only=False, answered=False, interrupted=True)
        for tried, pause in ((None, 5.0), (2, 120.0), (3, 5.0)):
            self.assertEqual(self.outcome(interrupted, tried).retry_at, NOW + pause)
        self.assertIsNone(self.outcome(interrupted, 4).retry_at)
        self.assertIsNone(self.outcome(REFUSED, 4).retry_at)

    def test_given_up_after_failing_for_longer_than_its_schedules(self) -> None:
        self.notifier.outcomes[HOST] = REFUSED
        longest = 1.5 * sum(RETRIES)
        for age, given_up in ((longest - 1, False), (longest + 1, True)):
            failing = evolve(subscription(), attempts=0, failing_since=NOW - age)
            self.submit(failing, changed=False)
            self.assertEqual(self.delivered[-1].retry_at is None, given_up)

    def test_jitter_only_lengthens(self) -> None:
        self.jitter = 1.0
        self.assertEqual(self.outcome(REFUSED).retry_at, NOW + 5 * (1 + JITTER))

    def test_retry_after_is_honoured(self) -> None:
        delivery = self.outcome(evolve(REFUSED, retry_after=90.0))
        self.assertEqual((delivery.retry_at, delivery.not_before), (NOW + 90, NOW + 90))
        self.assertEqual(self.outcome(evolve(REFUSED, retry_after=90.0), 2).retry_at, NOW + 120)

    def test_gone(self) -> None:
        gone = Outcome(False, "status 410", gone=True)
        delivery = self.outcome(gone)
        self.assertEqual((delivery.outcome, delivery.retry_at), (gone, None))
        self.assertEqual(self.ended("gone"), 1)

    def test_any_answer_is_one_for_the_host(self) -> None:
        self.breakers.restore([HostState(HOST, THRESHOLD, NOW)])
        self.outcome(REFUSED)
        self.assertEqual(self.breakers.take_changes(), [HostState(HOST, 0, 0.0)])

    def test_no_answer_is_none_for_the_host(self) -> None:
        for _ in range(THRESHOLD):
            self.outcome(NO_ANSWER)
        found_dead = HostState(HOST, THRESHOLD, NOW + FIRST_PAUSE)
        self.assertEqual(self.breakers.take_changes(), [found_dead])

    def test_broker_that_cannot_call_says_nothing_of_anybody(self) -> None:
        self.break_notifier(Unavailable("too many open files"))
        for _ in range(2 * THRESHOLD):
            self.submit()
        put_off = Delivery(subscription(), None, NOW, None, 0, NOW + SOON)
        self.assertEqual(self.delivered, [put_off] * 2 * THRESHOLD)
        self.assertEqual(self.breakers.take_changes(), [])
        self.assertEqual(self.ended("unavailable"), 2 * THRESHOLD)

    def test_broker_that_cannot_call_takes_no_slot_of_a_host(self) -> None:
        """Nor does it earn one: as many begin at once as before."""
        for _ in range(5):
            self.submit()
        broken = self.break_notifier(Unavailable("the process that made the request has ended"))
        for _ in range(20):
            self.submit()
        broken.restore()
        self.hold()
        before = len(self.notifier.calls)
        for number in range(10):
            self.submit(subscription(number))
        self.assertEqual(len(self.notifier.calls) - before, 5)

    def test_broker_that_cannot_call_says_so_once_for_a_while(self) -> None:
        self.break_notifier(Unavailable("too many open files"))
        with capturedLogs() as logs:
            for _ in range(10):
                self.submit()
            self.assertEqual(len(logs), 1)
            self.clock.advance(SOON)
            self.submit()
        self.assertEqual(len(logs), 2)

    def test_bug_of_a_notifier_says_nothing_of_the_host(self) -> None:
        self.break_notifier(ZeroDivisionError("no good"))
        self.breakers.restore([HostState(HOST, THRESHOLD, NOW)])
        for _ in range(2):
            self.submit()
        self.assertEqual([one.attempts for one in self.delivered], [1, 1])
        self.assertEqual(self.breakers.take_changes(), [])
        self.assertEqual(self.count("open_breakers"), 1)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)

    def test_content_that_is_not_there_yet_is_no_attempt(self) -> None:
        """No breaker counts it as a failure of the host either."""
        waiting = evolve(subscription(), wants_content=True, attempts=2)
        self.breakers.restore([HostState(HOST, THRESHOLD, NOW)])
        pauses = []
        for pause in (1, 59, 3600):
            self.clock.advance(pause)
            self.submit(waiting, changed=False)
            put_off = self.delivered[-1]
            self.assertEqual((put_off.outcome, put_off.attempts), (None, 2))
            assert put_off.retry_at is not None
            pauses.append(put_off.retry_at - self.clock.wall_seconds())
        self.assertEqual(pauses, [About(SOON), About(60), About(600.0)])
        self.assertEqual((self.notifier.calls, self.breakers.take_changes()), ([], []))
        self.assertEqual(
            (self.count("open_breakers"), self.count("notification_retries_total")), (1, 0)
        )

    def test_no_call_says_nothing_of_the_host(self) -> None:
        """As where the broker would not call it, or need not to deny something."""
        for _ in range(2 * THRESHOLD):
            self.outcome(Outcome(False, "a private address", answered=False, refused=True))
        self.assertEqual(len(self.notifier.calls), 2 * THRESHOLD)
        self.assertEqual(self.breakers.take_changes(), [])
        self.breakers.restore([HostState(HOST, THRESHOLD, NOW)])
        self.notifier.outcomes[HOST] = Outcome(True, answered=False)
        self.submit(evolve(subscription(), ended="it is gone"))
        self.assertEqual((len(self.notifier.denials), self.breakers.take_changes()), (1, []))


@implementer(IDirectNotifier)
class DirectNotifier(ScriptedNotifier):
    """A notifier whose notifications end when the test says so.

    :ivar under_way: what is notified of the end of each notification, in order.
    """

    def __init__(self, clock: Clock, retries: tuple[float, ...]) -> None:
        super().__init__(clock, retries)
        self.under_way: list[Done[Outcome]] = []

    def begin(self, notification: Notification, done: Done[Outcome]) -> BreakOff:
        self.under_way.append(done)
        return lambda: done(CancelledError())


class DirectTests(AttemptsTestCase):
    """A notifier that tells of the end of notifications directly."""

    def setUp(self) -> None:
        super().setUp()
        self.direct = self.notifier = DirectNotifier(self.clock, RETRIES)
        self.make(slots=1)

    def test_outcome(self) -> None:
        self.submit()
        self.submit(subscription(2, "other.example"))
        self.assertEqual((self.began, self.delivered), ([1], []))
        self.direct.under_way[0](Outcome(True))
        self.assertEqual(self.delivered, [Delivery(subscription(), Outcome(True), NOW, 3, 1)])
        self.assertEqual(self.began, [1, 2])

    def test_broker_that_cannot_call(self) -> None:
        self.submit()
        self.direct.under_way[0](Unavailable("too many open files"))
        self.assertEqual(self.delivered, [Delivery(subscription(), None, NOW, None, 0, NOW + SOON)])

    def test_bug_at_the_end(self) -> None:
        self.submit()
        self.direct.under_way[0](ZeroDivisionError("no good"))
        self.assertEqual(self.delivered[0].outcome, Outcome(False, "the notifier failed: no good"))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_bug_at_the_begin(self) -> None:
        def broken(notification: Notification, done: Done[Outcome]) -> BreakOff:
            raise ZeroDivisionError("no good")

        self.patch(self.direct, "begin", broken)
        self.submit()
        self.submit(subscription(2))
        failed = Outcome(False, "the notifier failed: no good")
        self.assertEqual([one.outcome for one in self.delivered], [failed] * 2)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)

    def test_told_twice(self) -> None:
        """What comes later changes nothing, and frees no slot that others have."""
        self.submit()
        for _ in range(2):
            self.direct.under_way[0](Outcome(True))
        self.submit(subscription(2))
        self.submit(subscription(3))
        self.assertEqual((len(self.delivered), self.began), (1, [1, 2]))

    def test_broken_off_when_the_broker_stops(self) -> None:
        self.submit()
        self.attempts.withdraw_all()
        self.attempts.call_off()
        self.assertEqual(self.delivered, [Delivery(subscription(), None, NOW, None, 0, NOW)])
        self.assertEqual(self.count("notifications_in_flight"), 0)

    def test_content_counts_until_the_end(self) -> None:
        self.make()
        large = [Content(bytes([number]) * UNDER_WAY) for number in range(2)]
        for number, content in enumerate(large):
            eager = evolve(subscription(number, f"host{number}"), wants_content=True)
            self.submit(eager, content=content)
        self.assertEqual([one.outcome for one in self.delivered], [None])
        self.direct.under_way[0](Outcome(True))
        eager = evolve(subscription(3), wants_content=True)
        self.submit(eager, content=large[1])
        self.assertEqual(len(self.direct.under_way), 2)


class PutOffTests(AttemptsTestCase):
    def put_off(self, pause: float, attempts: int = 0) -> Delivery:
        return Delivery(
            subscription(), None, About(self.clock.wall_seconds()), None, attempts, NOW + pause
        )

    def test_host_that_does_not_answer(self) -> None:
        self.breakers.restore([HostState(HOST, THRESHOLD, NOW + 7)])
        self.jitter = 1.0
        self.submit()
        self.assertEqual(self.delivered, [self.put_off(7 * (1 + JITTER))])
        self.assertEqual((self.notifier.calls, self.began), ([], [1]))
        self.assertEqual(self.ended("put_off"), 1)

    def test_one_that_could_not_try_is_followed_by_another(self) -> None:
        self.breakers.restore([HostState(HOST, THRESHOLD, NOW)])
        broken = self.break_notifier(Unavailable("too many open files"))
        self.submit()
        broken.restore()
        self.notifier.outcomes[HOST] = Outcome(False, "private", answered=False, refused=True)
        self.submit()
        self.notifier.outcomes.clear()
        self.submit()
        self.assertEqual(self.delivered[-1].outcome, Outcome(True))

    def test_one_that_may_try_and_is_withdrawn_is_followed_by_another(self) -> None:
        self.make(slots=1)
        self.notifier.holds = {"other.example"}
        self.submit(subscription(2, "other.example"))
        self.breakers.restore([HostState(HOST, THRESHOLD, NOW)])
        self.attempts.withdraw(self.submit())
        self.submit()
        self.notifier.end()
        self.assertEqual(self.delivered[-1].outcome, Outcome(True))

    def test_host_that_is_found_dead_while_some_wait_for_it(self) -> None:
        """The waiting attempts are put off, and not tried one after the other."""
        self.make(per_host=THRESHOLD)
        self.hold()
        self.notifier.outcomes[HOST] = NO_ANSWER
        for number in range(100):
            self.submit(subscription(number))
        self.clock.advance(15)
        self.notifier.end()
        # A waiting attempt took the slot of each failed one but the last.
        called = 2 * THRESHOLD - 1
        self.assertEqual(len(self.notifier.calls), called)
        later = [one.retry_at for one in self.delivered if one.outcome is None]
        self.assertEqual(later, [NOW + 15 + FIRST_PAUSE] * (100 - called))
        self.assertEqual(len(self.began), 100)
        self.notifier.end()
        self.assertEqual((len(self.notifier.calls), self.attempts.under_way), (called, []))

    def test_withdrawn(self) -> None:
        self.make(per_host=1)
        self.hold()
        self.submit(subscription(2))
        waits = self.submit()
        self.attempts.withdraw(waits)
        self.assertEqual((self.delivered, self.began), ([self.put_off(SOON)], [2, 1]))
        self.attempts.withdraw(waits)
        self.notifier.end()
        self.assertEqual((len(self.delivered), len(self.notifier.calls)), (2, 1))

    def test_what_has_begun_is_not_withdrawn(self) -> None:
        self.hold()
        self.attempts.withdraw(self.submit())
        self.assertEqual((self.delivered, self.began), ([], [1]))

    def test_stopping(self) -> None:
        self.make(slots=1)
        self.notifier.holds = {HOST, "other.example"}
        self.submit()
        self.submit(subscription(2, "other.example"))
        self.attempts.withdraw_all()
        self.submit(subscription(3, "third.example"))
        self.assertEqual([one.subscription.id for one in self.delivered], [2, 3])
        idle = Deferred.fromCoroutine(self.attempts.when_idle())
        self.assertNoResult(idle)
        self.attempts.call_off()
        self.successResultOf(idle)
        self.assertEqual([one.retry_at for one in self.delivered], [NOW] * len(self.delivered))
        self.assertEqual({one.outcome for one in self.delivered}, {None})
        self.assertEqual((self.began, len(self.notifier.calls)), ([1, 2, 3], 1))
        self.assertEqual(self.breakers.take_changes(), [])


class LeftTests(AttemptsTestCase):
    """A topic changes while a notification of an earlier change is pending."""

    def change(self, attempts: int, content_id: int | None = None, **fields: Any) -> Delivery:
        waiting = evolve(subscription(), attempts=attempts, **fields)
        self.submit(waiting, content=Content(b"news"), content_id=content_id)
        return self.delivered[-1]

    def test_one_that_failed_is_told_by_it(self) -> None:
        for wants_content, content_id in ((False, None), (False, 7), (True, None)):
            left = self.change(1, content_id, wants_content=wants_content)
            self.assertEqual((left.outcome, left.pause, left.content_id), (None, RETRIES[0], None))
            self.assertEqual((left.attempts, left.retry_at), (0, NOW))
        left = self.change(0, failing_since=NOW)  # its schedule has begun anew
        self.assertEqual((left.outcome, left.pause), (None, RETRIES[0]))
        self.assertEqual((self.notifier.calls, self.attempts.under_way), ([], []))

    def test_one_that_was_put_off_is_told_at_once(self) -> None:
        self.change(0)
        self.assertEqual(len(self.notifier.calls), 1)

    def test_what_was_handed_in_waits_for_what_was_before_it(self) -> None:
        for attempts in (0, 2):
            waits = self.change(attempts, 7, wants_content=True)
            self.assertEqual((waits.outcome, waits.content_id, waits.retry_at), (None, 7, NOW))
        self.assertEqual(self.notifier.calls, [])

    def test_what_was_handed_in_waits_for_what_is_under_way(self) -> None:
        self.hold()
        eager = evolve(subscription(), wants_content=True)
        for key in (7, 8):
            self.submit(eager, content=Content(b"news"), content_id=key)
        (waits,) = self.delivered
        self.assertEqual((waits.content_id, waits.retry_at), (8, NOW + 1.0))
        self.notifier.end()
        told = self.delivered[-1]
        self.assertEqual((told.content_id, told.outcome, told.retry_at), (7, Outcome(True), None))


class SameSubscriptionTests(AttemptsTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.hold()
        self.nothing = Delivery(subscription(), None, NOW)

    def test_change_during_an_attempt_is_told_of_after_it(self) -> None:
        self.submit()
        followers = [self.submit() for _ in range(3)]
        self.assertEqual((self.began, self.delivered), ([1] * 4, []))
        self.clock.advance(1)
        self.notifier.end()
        at = NOW + 1
        again = Delivery(subscription(), Outcome(True), at, 3, attempts=0, retry_at=at)
        self.assertEqual(self.delivered, [again, *[evolve(self.nothing, at=at)] * 3])
        self.assertTrue(all(follower.over for follower in followers))
        self.assertEqual((len(self.notifier.calls), self.attempts.under_way), (1, []))

    def test_retry_that_comes_up_during_an_attempt_changes_nothing(self) -> None:
        self.submit()
        self.submit(changed=False)
        self.notifier.end()
        told = Delivery(subscription(), Outcome(True), NOW, 3, 1)
        self.assertEqual(self.delivered, [told, self.nothing])
        self.assertEqual(len(self.notifier.calls), 1)

    def test_change_before_the_attempt_began_is_told_of_by_it(self) -> None:
        self.make(per_host=1)
        self.submit(subscription(2))
        self.submit(changed=False)
        self.submit()
        self.notifier.end(URL)
        self.notifier.end(URL)
        told = Delivery(subscription(), Outcome(True), NOW, 3, 1)
        self.assertEqual(self.delivered[1:], [told, self.nothing])

    def test_one_that_fails_under_a_lost_claim_leaves_the_newer_claim_to_the_store(self) -> None:
        """A process that stood still has claimed anew what is under way: see ``ClaimsLost``."""
        self.notifier.outcomes[HOST] = REFUSED
        self.submit(evolve(subscription(), attempts=1, claim=1), changed=False)
        self.submit(evolve(subscription(), attempts=1, claim=2), changed=False)
        self.notifier.end()
        follower = self.delivered[1]
        self.assertEqual((follower.outcome, follower.retry_at), (None, NOW))
        self.assertEqual(follower.subscription.claim, 2)

    def test_change_during_an_attempt_that_fails(self) -> None:
        """It keeps to the schedule, if there is another attempt, and else begins one anew.

        The earlier notification that was given up counts as an error all the same.
        """
        later = Outcome(False, "status 503", retry_after=600.0)
        for outcome, tried, attempts, pause in (
            (REFUSED, 1, 2, 30),
            (REFUSED, 3, 0, SOON),
            (later, 3, 0, 600),
        ):
            self.delivered.clear()
            self.notifier.outcomes[HOST] = outcome
            self.submit(evolve(subscription(), attempts=tried), changed=False)
            self.submit()
            self.notifier.end()
            again = self.delivered[0]
            found = (again.outcome, again.attempts, again.retry_at)
            self.assertEqual(found, (outcome, attempts, NOW + pause))
        self.assertEqual(again.not_before, NOW + 600)

    def test_failure_of_one_that_is_followed_counts_once(self) -> None:
        self.notifier.outcomes[HOST] = REFUSED
        waiting = evolve(subscription(), attempts=3)
        self.submit(waiting, changed=False)
        self.submit(evolve(waiting, attempts=0))
        self.notifier.end()
        self.assertEqual([one.outcome for one in self.delivered], [REFUSED, None])

    def test_one_that_follows_does_not_wait_for_a_place(self) -> None:
        self.submit()
        follower = self.submit()
        self.assertEqual((follower.begun, follower.follows, follower.over), (True, True, False))

    def test_change_does_not_bring_back_who_is_gone(self) -> None:
        gone = self.notifier.outcomes[HOST] = Outcome(False, "status 410", gone=True)
        self.submit()
        self.submit()
        self.notifier.end()
        self.assertEqual((self.delivered[0].outcome, self.delivered[0].retry_at), (gone, None))

    def test_follower_of_one_that_is_withdrawn(self) -> None:
        self.make(per_host=1)
        self.submit(subscription(2))
        waits = self.submit(changed=False)
        self.submit()
        self.attempts.withdraw(waits)
        self.assertEqual([one.retry_at for one in self.delivered], [NOW + SOON, None])
        self.assertEqual(self.began, [2, 1, 1])
