"""The outcome of a call says whether and when to try again."""

from __future__ import annotations

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.delivery.notifiers import HttpPostNotifier, SoapNotifier, XMLRPCNotifier
from rsscloud_broker.delivery.notifiers.calling import Accept, call
from rsscloud_broker.errors import AddressRefused, Interrupted, OutboundError
from rsscloud_broker.interfaces import INotifier, OutboundReply, OutboundRequest
from rsscloud_broker.model import Callback, Notification, Outcome
from rsscloud_broker.testing import FakeOutbound, reply
from rsscloud_broker.wire.http_dates import MAX_RETRY_AFTER, retry_after

URL = "http://reader.example/notify"


class CallTests(SynchronousTestCase):
    def outcome_of(
        self, answer: OutboundReply | Exception, accept: Accept | None = None
    ) -> Outcome:
        outbound = FakeOutbound(otherwise=answer)
        calling = call(outbound, OutboundRequest("POST", URL), accept)
        return self.successResultOf(Deferred.fromCoroutine(calling))

    def test_success(self) -> None:
        for status in (200, 201, 202, 204, 299):
            self.assertEqual(self.outcome_of(reply(status, b"whatever")), Outcome(True))

    def test_status_counts_more_than_the_body(self) -> None:
        """Which is not looked at then: it may be a fault, or have the challenge in it."""
        for status in (302, 404, 500):
            outcome = self.outcome_of(reply(status, b"a fault"), self.fail)
            self.assertEqual(outcome.reason, f"the callback answered with status {status}")

    def test_any_status_is_an_answer(self) -> None:
        for status in (302, 400, 404, 500, 503):
            reason = f"the callback answered with status {status}"
            self.assertEqual(self.outcome_of(reply(status)), Outcome(False, reason))

    def test_status_410_is_gone(self) -> None:
        expected = Outcome(False, "the callback answered with status 410", gone=True)
        self.assertEqual(self.outcome_of(reply(410)), expected)

    def test_status_410_behind_redirects(self) -> None:
        """A 410 counts only if all redirects to it were permanent."""
        for statuses, gone in (
            ((301,), True),
            ((308, 301), True),
            ((302,), False),
            ((307,), False),
            ((301, 307), False),
            ((302, 308), False),
        ):
            hops = tuple((status, "http://elsewhere.example/") for status in statuses)
            outcome = self.outcome_of(evolve(reply(410), hops=hops))
            self.assertEqual((outcome.success, outcome.gone), (False, gone), statuses)

    def test_courier_that_ended_meanwhile(self) -> None:
        outcome = self.outcome_of(Interrupted("the process that made the request has ended"))
        self.assertEqual((outcome.success, outcome.answered), (False, False))
        self.assertTrue(outcome.interrupted)

    def test_retry_after(self) -> None:
        for status in (429, 503):
            expected = evolve(self.outcome_of(reply(status)), retry_after=120.0)
            self.assertEqual(self.outcome_of(reply(status, retry_after="120")), expected)
        self.assertIsNone(self.outcome_of(reply(200, retry_after="120")).retry_after)

    def test_no_answer(self) -> None:
        expected = Outcome(False, "nobody is there", answered=False)
        self.assertEqual(self.outcome_of(OutboundError("nobody is there")), expected)

    def test_address_that_is_refused(self) -> None:
        expected = Outcome(False, "a private address", answered=False, refused=True)
        self.assertEqual(self.outcome_of(AddressRefused("a private address")), expected)


class RetryAfterTests(SynchronousTestCase):
    def test_values(self) -> None:
        for value, seconds in (
            ("0", 0.0),
            (" 7 ", 7.0),
            ("86400", MAX_RETRY_AFTER),
            ("9" * 400, MAX_RETRY_AFTER),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("1e3", None),
            ("٣", None),
            ("²", None),
            ("soon", None),
        ):
            headers = {"retry-after": value, "date": "Wed, 21 Oct 2026 07:28:00 GMT"}
            self.assertEqual(retry_after(headers), seconds, value)
        self.assertIsNone(retry_after({}))

    def test_dates_count_from_that_of_the_answer(self) -> None:
        at_half_past = "Wed, 21 Oct 2026 07:30:00 GMT"
        for date, seconds in (
            ("Wed, 21 Oct 2026 07:28:00 GMT", 120.0),
            ("Wed, 21 Oct 2026 07:30:01 GMT", 0.0),
            ("Wed, 21 Oct 1998 07:30:00 GMT", MAX_RETRY_AFTER),
            ("yesterday", None),
            ("", None),
        ):
            headers = {"retry-after": at_half_past, "date": date}
            self.assertEqual(retry_after(headers), seconds, date)
        self.assertIsNone(retry_after({"retry-after": at_half_past}))


class ScheduleTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.outbound = FakeOutbound()

    def notifiers(self) -> list[INotifier]:
        return [
            HttpPostNotifier("http-post", self.outbound),
            XMLRPCNotifier(self.outbound),
            SoapNotifier(self.outbound),
        ]

    def test_by_default(self) -> None:
        for notifier in self.notifiers():
            self.assertEqual(notifier.retries, (5, 30, 120, 600, 1800))
            self.assertEqual(notifier.drop_after_failures, 3)

    def test_every_protocol_says_whether_it_was_answered(self) -> None:
        for notifier in self.notifiers():
            self.outbound.otherwise = OutboundError("nobody is there")
            expected = Outcome(False, "nobody is there", answered=False)
            self.assertEqual(self.outcome_of(notifier), expected)
            self.outbound.otherwise = reply(410)
            self.assertTrue(self.outcome_of(notifier).gone)

    def outcome_of(self, notifier: INotifier) -> Outcome:
        notification = Notification("http://f.example/", Callback(URL, notifier.protocol, "p"))
        call = notifier.notify(notification)
        return self.successResultOf(Deferred.fromCoroutine(call))  # type: ignore[arg-type] # it is a coroutine
