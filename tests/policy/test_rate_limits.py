"""Tests the rate limits, with a clock that the tests move and a real store."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config import RateLimitOptions
from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import CallbackFailed, TooMany
from rsscloud_broker.model import Callback, Intent, Lease, Subscription
from rsscloud_broker.policy.rate_limits import (
    COUNT_PAUSE,
    MAX_FAILURES,
    MAX_KEYS,
    Admission,
    Quota,
    RateLimit,
)
from rsscloud_broker.testing import memory_store
from rsscloud_broker.testing.clock import Clock
from tests.core.house import NOW

FEED = "http://feeds.example/rss.xml"
CALLER = "192.0.2.7"
OTHER = "192.0.2.8"


def reader(path: int | str = "new", host: str = "reader.example") -> Callback:
    """A callback at a host."""
    return Callback(f"http://{host}/{path}", "http-post")


class RateLimitTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock(NOW)

    def limit(self, rate: float, burst: int) -> RateLimit:
        return RateLimit(rate, burst, self.clock)

    def taken(self, limit: RateLimit, key: str = "a") -> int:
        """How many tokens can be taken at once."""
        count = 0
        while not limit.take(key):
            count += 1
        return count

    def test_a_bucket_is_full_at_first(self) -> None:
        for rate, burst in ((100, 2000), (10, 2000), (0.1, 1), (1 / 3, 7), (999.9, 12_345)):
            taken = self.taken(self.limit(rate, burst))
            # The clock moves a little at every reading.
            self.assertTrue(burst <= taken <= burst * 1.001, (rate, burst, taken))

    def test_tokens_come_back(self) -> None:
        limit = self.limit(10, 50)
        self.taken(limit)
        for seconds, back in ((0.05, 0), (0.05, 1), (1, 10), (2.5, 25), (1000, 50)):
            self.clock.advance(seconds)
            self.assertEqual(self.taken(limit), back, seconds)

    def test_the_rate_can_be_kept_up(self) -> None:
        limit = self.limit(50, 1)
        for _ in range(1000):
            self.assertEqual(limit.take("a"), 0)
            self.clock.advance(0.02)

    def test_says_when_the_bucket_is_half_full(self) -> None:
        limit = self.limit(10, 2000)
        self.taken(limit)
        self.assertEqual(limit.take("a"), 100)
        self.clock.advance(100)
        self.assertEqual(self.taken(limit), 1000)

    def test_says_when_there_is_a_token(self) -> None:
        for rate, burst, seconds in ((0.1, 1, 10), (100, 1, 1), (100, 2000, 10), (1 / 60, 2, 60)):
            limit = self.limit(rate, burst)
            self.taken(limit)
            for _ in range(100):  # refusals cost nothing
                self.assertEqual(limit.take("a"), seconds)
            self.clock.advance(seconds)
            self.assertEqual(limit.take("a"), 0)

    def test_no_limit(self) -> None:
        limit = self.limit(0, 1)
        self.assertEqual([limit.take("a") for _ in range(1000)], [0] * 1000)
        self.assertEqual(len(limit), 0)

    def test_a_wall_clock_that_is_set_back_locks_nobody_out(self) -> None:
        limit = self.limit(1, 10)
        self.taken(limit)
        self.clock.set_wall(-86_400)
        self.assertEqual(limit.take("a"), 5)
        self.clock.advance(10)
        self.assertEqual(self.taken(limit), 10)

    def test_what_was_taken_remains_taken_when_the_limit_changes(self) -> None:
        limit = self.limit(0.001, 10)
        for _ in range(6):
            limit.take("a")
        limit.change(0.002, 15)
        self.assertEqual((self.taken(limit, "a"), self.taken(limit, "b")), (9, 15))
        limit.change(0.002, 5)  # of a bucket of 5 no more than 5 are missing
        self.assertLessEqual(limit.take("a"), 1 / 0.002 * 5)
        self.clock.advance(1 / 0.002 + 1)
        self.assertEqual(self.taken(limit, "a"), 1)

    def test_a_limit_that_comes_and_goes(self) -> None:
        limit = self.limit(0, 5)
        for _ in range(6):
            self.assertEqual(limit.take("a"), 0)
        limit.change(0.001, 5)
        self.assertEqual(self.taken(limit, "a"), 5)
        limit.change(0, 5)
        self.assertEqual(limit.take("a"), 0)
        limit.change(0.001, 5)
        self.assertEqual(self.taken(limit, "a"), 5)

    def test_memory_is_bounded(self) -> None:
        limit = self.limit(100, 2000)
        tracemalloc.start()
        try:
            for number in range(MAX_KEYS + 20_000):
                limit.take(f"2001:db8:{number:x}::/64")
            used, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        self.assertEqual(len(limit), MAX_KEYS)
        self.assertLess(used, 32 * 2**20)


class AdmissionTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock(NOW)
        self.store: Any = memory_store()
        self.addCleanup(self.store.stopService)
        self.counters = Counters()

    def admission(self, **limits: Any) -> Admission:
        return Admission(
            RateLimitOptions(**limits),
            self.store.has_subscription,
            self.store.count_of_host,
            self.clock,
            self.counters,
        )

    def intent(self, number: int = 0, **fields: Any) -> Intent:
        """An intent whose host and topic are used by no other, unless they are given."""
        values: Mapping[str, Any] = {
            "topic": f"http://feeds{number}.example/",
            "callback": Callback(f"http://reader{number}.example/notify", "http-post"),
            "source": CALLER,
            **fields,
        }
        return Intent(lease_seconds=90_000, **values)

    def admit(self, admission: Admission, intent: Intent) -> Quota:
        return self.successResultOf(Deferred.fromCoroutine(admission.verification(intent)))

    def refusal(self, admission: Admission, intent: Intent) -> TooMany:
        verification = Deferred.fromCoroutine(admission.verification(intent))
        error: TooMany = self.failureResultOf(verification, TooMany).value
        return error

    def ping(self, admission: Admission, times: int, source: str = CALLER) -> None:
        for _ in range(times):
            admission.ping(source)

    def limited(self, kind: str) -> float:
        """The counter of refusals of one kind."""
        name = "rsscloud_limited_requests_total"
        return self.counters.registry.get_sample_value(name, {"kind": kind}) or 0


class PingTests(AdmissionTestCase):
    def test_a_busy_blog_host_is_let_in(self) -> None:
        """The host sends a burst of 1,000, and then 50 a second for an hour."""
        admission = self.admission()
        self.ping(admission, 1000)
        for _ in range(3600 * 10):
            for _ in range(5):
                admission.ping(CALLER)
            self.clock.advance(0.1)
        self.assertEqual(self.limited("pings"), 0)

    def test_too_many(self) -> None:
        admission = self.admission(pings_per_source=2, pings_burst=4)
        self.ping(admission, 4)
        said = "more than 2 pings a second came from your address; try again in 1 seconds"
        self.assertEqual(str(self.assertRaises(TooMany, admission.ping, CALLER)), said)
        self.assertEqual(self.limited("pings"), 1)
        admission.ping(OTHER)
        self.clock.advance(1)
        admission.ping(CALLER)

    def test_too_many_in_a_day(self) -> None:
        admission = self.admission(pings_per_source=0, pings_per_day=48)
        self.ping(admission, 48)
        said = "more than 48 pings a day came from your address; try again in 3600 seconds"
        self.assertEqual(str(self.assertRaises(TooMany, admission.ping, CALLER)), said)
        self.assertEqual(self.limited("pings of a day"), 1)
        admission.ping(OTHER)
        self.clock.advance(3600)
        self.ping(admission, 2)  # as many as come back in an hour
        self.assertRaises(TooMany, admission.ping, CALLER)

    def test_one_ping_a_day(self) -> None:
        admission = self.admission(pings_per_day=1)
        admission.ping(CALLER)
        error = self.assertRaises(TooMany, admission.ping, CALLER)
        self.assertEqual(error.retry_after, 86_400)

    def test_what_is_one_source(self) -> None:
        table = [
            ("192.0.2.7", "::ffff:192.0.2.7", True),
            ("192.0.2.7", "192.0.2.8", False),
            ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
            ("2001:db8:0:1::1", "2001:0db8:0:1::1%eth0", True),
            ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
            ("fe80::1%eth0", "fe80::1%eth1", True),
            ("::1", "0.0.0.1", False),
            ("no address", "no address", True),
            ("no address", "192.0.2.7", False),
        ]
        for one, other, same in table:
            admission = self.admission(pings_per_source=1, pings_burst=1)
            admission.ping(one)
            if same:
                self.assertRaises(TooMany, admission.ping, other)
            else:
                admission.ping(other)

    def test_who_is_exempt(self) -> None:
        table = [
            ("10.1.2.3", True),
            ("::ffff:10.1.2.3", True),
            ("2001:db8::5", True),
            ("", True),
            ("192.0.2.7", False),
            ("2001:db9::5", False),
            ("no address", False),
        ]
        for source, exempt in table:
            admission = self.admission(
                pings_per_source=1, pings_burst=1, exempt=("10.0.0.0/8", "2001:db8::/32")
            )
            admission.ping(source)
            if exempt:
                admission.ping(source)
            else:
                self.assertRaises(TooMany, admission.ping, source)


class ReadingTests(AdmissionTestCase):
    """Limits on fetches of topics without subscribers."""

    def test_too_many_at_a_host(self) -> None:
        admission = self.admission(fetches_per_host=0.5, fetches_host_burst=3)
        for number in range(3):
            self.assertEqual(admission.admit_fetch(f"http://feeds.example/{number}"), 0)
        url = "http://FEEDS.example:8080/3"
        pause = admission.admit_fetch(url)
        self.assertGreater(pause, 0)
        self.assertEqual(self.limited("fetches of a host"), 0)  # the caller decides
        self.assertEqual(
            str(admission.too_many_fetches(url, pause)),
            "more than 0.5 fetches a second of topics without subscribers were requested from the "
            "host feeds.example; try again in 3 seconds",
        )
        self.assertEqual(self.limited("fetches of a host"), 1)
        self.assertEqual(admission.admit_fetch("http://other.example/"), 0)
        self.clock.advance(2)
        self.assertEqual(admission.admit_fetch(FEED), 0)


class VerificationTests(AdmissionTestCase):
    def test_an_aggregator_renews_a_thousand_feeds_in_one_go(self) -> None:
        admission = self.admission()
        callback = reader()
        for challenge in (False, True):
            for number in range(1000):
                self.admit(admission, self.intent(number, callback=callback, challenge=challenge))

    def test_too_many_of_a_source(self) -> None:
        admission = self.admission(verifications_per_source=1, verifications_burst=2)
        self.admit(admission, self.intent(1))
        self.admit(admission, self.intent(2))
        error = self.refusal(admission, self.intent(3))
        self.assertEqual(error.reason, "more than 1 registrations a second came from your address")
        self.assertEqual(self.limited("verifications of a source"), 1)
        self.admit(admission, self.intent(3, source=OTHER))
        self.clock.advance(error.retry_after)
        self.admit(admission, self.intent(3))

    def test_pings_and_verifications_are_counted_apart(self) -> None:
        admission = self.admission(
            pings_per_source=1, pings_burst=1, verifications_per_source=1, verifications_burst=1
        )
        admission.ping(CALLER)
        self.admit(admission, self.intent())

    def test_too_many_for_a_host(self) -> None:
        admission = self.admission(verifications_per_host=1, verifications_host_burst=1)
        callback = reader()
        self.admit(admission, self.intent(1, topic="http://feeds.example/1"))
        self.admit(admission, self.intent(2, callback=callback, challenge=True))
        other = evolve(callback, url="https://reader.example:8080/b")
        for host, named in (
            ("feeds.example", {"topic": "HTTPS://Feeds.Example.:8080/2"}),
            ("reader.example", {"callback": other, "challenge": True}),
        ):
            error = self.refusal(admission, self.intent(3, source=OTHER, **named))
            said = f"more than 1 registrations a second named the host {host}"
            self.assertEqual(error.reason, said)
        self.assertEqual(self.limited("verifications of a host"), 2)
        self.admit(admission, self.intent(4))
        # A callback that is the caller's own is no target.
        for number in range(5, 10):
            self.admit(admission, self.intent(number, callback=reader(host=CALLER)))

    def test_topic_and_callback_of_one_host_count_once(self) -> None:
        admission = self.admission(verifications_per_host=1, verifications_host_burst=2)
        callback = reader(host="feeds1.example")
        for _ in range(2):
            self.admit(admission, self.intent(1, callback=callback, challenge=True))

    def test_exempt(self) -> None:
        admission = self.admission(
            verifications_per_source=1,
            verifications_burst=1,
            verifications_per_host=1,
            verifications_host_burst=1,
            subscriptions_per_host=1,
            exempt=("192.0.2.0/24",),
        )
        for number in range(5):
            self.put(number)
            self.admit(admission, self.intent(number, topic=FEED))

    def put(self, number: int, host: str = "reader.example") -> Subscription:
        """Store a subscription of a callback at a host."""
        wanted = Subscription(FEED, reader(number, host), Lease(NOW, 90_000))
        stored: Subscription = self.successResultOf(self.store.put_subscription(wanted))
        return stored

    def test_too_many_subscriptions_of_a_host(self) -> None:
        admission = self.admission(subscriptions_per_host=3)
        kept = [self.put(number) for number in range(3)]
        new = Callback("https://reader.example:8443/new", "http-post")
        error = self.refusal(admission, self.intent(callback=new))
        self.assertEqual(error.retry_after, 3600)
        self.assertEqual(
            error.reason,
            "the host reader.example has 3 subscriptions, those being verified among them, "
            "as many as one may have",
        )
        self.assertEqual(self.limited("subscriptions of a host"), 1)
        for each in kept:  # a stored subscription can be renewed
            self.admit(admission, self.intent(topic=FEED, callback=each.callback))
        self.admit(admission, self.intent(1))  # another host has its own quota
        self.successResultOf(self.store.remove_subscription(FEED, kept[0].callback))
        self.clock.advance(COUNT_PAUSE)
        self.admit(admission, self.intent(callback=new))

    def test_limits_can_change(self) -> None:
        admission = self.admission(pings_per_source=0.001, pings_burst=2, subscriptions_per_host=1)
        self.put(0)
        admission.ping(CALLER)
        new = reader()
        self.refusal(admission, self.intent(callback=new))
        admission.change(
            RateLimitOptions(
                pings_per_source=0.001,
                pings_burst=3,
                pings_per_day=4,
                subscriptions_per_host=2,
                exempt=(f"{OTHER}/32",),
            )
        )
        self.admit(admission, self.intent(callback=new))
        self.ping(admission, 2)  # the first ping still counts
        self.assertRaises(TooMany, admission.ping, CALLER)
        self.ping(admission, 9, OTHER)
        admission.change(RateLimitOptions(pings_burst=1))
        self.assertIn("100 pings a second", str(self.assertRaises(TooMany, admission.ping, CALLER)))

    def test_those_that_are_let_in_have_their_places(self) -> None:
        admission = self.admission(subscriptions_per_host=3)
        self.put(0)
        for number in (1, 2):
            self.admit(admission, self.intent(callback=reader(number)))
        self.refusal(admission, self.intent(callback=reader()))
        self.clock.advance(COUNT_PAUSE - 1)
        self.refusal(admission, self.intent(callback=reader()))
        self.clock.advance(1)  # the others did not confirm
        self.admit(admission, self.intent(callback=reader()))

    def test_a_place_that_is_given_back(self) -> None:
        admission = self.admission(subscriptions_per_host=1)

        def admit(number: int) -> Quota:
            return self.admit(admission, self.intent(callback=reader(number)))

        early = admit(0)
        early.left += 1
        admit(1).left += 1
        admit(2)
        self.clock.advance(COUNT_PAUSE)
        admit(1)
        early.left += 1  # the subscriptions were counted again since
        self.refusal(admission, self.intent(callback=reader(2)))

    def test_those_that_come_at_the_same_time(self) -> None:
        counts: list[Deferred[int]] = []

        def count(host: str, limit: int) -> Deferred[int]:
            counts.append(Deferred())
            return counts[-1]

        self.patch(self.store, "count_of_host", count)
        admission = self.admission(subscriptions_per_host=3)
        intents = [self.intent(number, callback=reader(number)) for number in range(10)]
        asked = [Deferred.fromCoroutine(admission.verification(intent)) for intent in intents]
        for counted in counts:
            counted.callback(1)
        for verification in asked[:2]:
            self.successResultOf(verification)
        for verification in asked[2:]:
            self.failureResultOf(verification, TooMany)

    def test_renewals_take_no_places(self) -> None:
        admission = self.admission(subscriptions_per_host=3)
        kept = [self.put(number) for number in range(2)]
        for each in kept * 2:
            self.admit(admission, self.intent(topic=FEED, callback=each.callback))
        self.admit(admission, self.intent(callback=reader()))

    def test_a_clock_that_is_set_back(self) -> None:
        admission = self.admission(subscriptions_per_host=1)
        kept = self.put(1)
        self.refusal(admission, self.intent(callback=reader()))
        self.successResultOf(self.store.remove_subscription(FEED, kept.callback))
        self.clock.set_wall(-86_400)
        self.clock.advance(COUNT_PAUSE)
        self.admit(admission, self.intent(1, callback=reader(), source=OTHER))

    def test_a_dot_at_the_end_makes_no_other_host(self) -> None:
        admission = self.admission(subscriptions_per_host=1)
        self.put(1, "reader.example.")
        self.refusal(admission, self.intent(callback=reader()))

    def test_a_host_is_counted_only_when_it_may_be_full(self) -> None:
        counted: list[str] = []
        count_of_host = self.store.count_of_host

        def count(host: str, limit: int) -> Any:
            counted.append(host)
            return count_of_host(host, limit)

        self.patch(self.store, "count_of_host", count)
        admission = self.admission(subscriptions_per_host=100)
        for number in range(100):
            self.admit(admission, self.intent(number, callback=reader(number)))
            self.put(number)
        self.assertEqual(counted, ["reader.example"])
        self.refusal(admission, self.intent(callback=reader()))

    def test_no_limit_of_subscriptions(self) -> None:
        admission = self.admission(subscriptions_per_host=0)
        callback = self.put(1).callback
        self.admit(admission, self.intent(topic="http://new.example/", callback=callback))


class FailureTests(AdmissionTestCase):
    failure = CallbackFailed("it said no", refused=True)

    def remembered(self, admission: Admission, intent: Intent) -> CallbackFailed:
        verification = Deferred.fromCoroutine(admission.verification(intent))
        error: CallbackFailed = self.failureResultOf(verification, CallbackFailed).value
        return error

    def test_is_remembered_for_ten_seconds(self) -> None:
        admission = self.admission()
        admission.failed(self.intent(), self.failure)
        error = self.remembered(admission, self.intent(source=OTHER))
        self.assertEqual((error.reason, error.refused), ("it said no", True))
        self.assertEqual(self.limited("failed a moment ago"), 1)
        self.clock.advance(9.9)
        self.remembered(admission, self.intent())
        self.clock.advance(0.1)
        self.admit(admission, self.intent())

    def test_costs_no_token(self) -> None:
        admission = self.admission(verifications_per_source=1, verifications_burst=1)
        admission.failed(self.intent(), self.failure)
        for _ in range(5):
            self.remembered(admission, self.intent())
        self.admit(admission, self.intent(1))

    def test_another_trial_is_not_what_failed(self) -> None:
        admission = self.admission()
        intent = self.intent()
        admission.failed(intent, self.failure)
        callback = intent.callback
        for other in (
            evolve(intent, topic=FEED),
            evolve(intent, challenge=True),
            evolve(intent, callback=evolve(callback, url="http://reader0.example/other")),
            evolve(intent, callback=evolve(callback, protocol="soap")),
            evolve(intent, callback=evolve(callback, procedure="a.b")),
        ):
            self.admit(admission, other)

    def test_memory_is_bounded(self) -> None:
        admission = self.admission(verifications_per_source=0)
        failure = CallbackFailed("x" * 10_000)
        long = "x" * 2000
        tracemalloc.start()
        try:
            for number in range(MAX_FAILURES + 1000):
                admission.failed(self.intent(topic=f"http://{number}.example/{long}"), failure)
            used, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        self.assertLess(used, 16 * 2**20)
        self.admit(admission, self.intent(topic=f"http://0.example/{long}"))
        last = self.intent(topic=f"http://{MAX_FAILURES}.example/{long}")
        self.assertEqual(len(self.remembered(admission, last).reason), 300)
