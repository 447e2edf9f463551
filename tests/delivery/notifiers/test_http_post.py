"""The notifiers for http-post and https-post: their requests, and the outcomes of the answers."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase, TestCase

from rsscloud_broker.delivery.notifiers import HttpPostNotifier
from rsscloud_broker.errors import AddressRefused, OutboundError
from rsscloud_broker.interfaces import INotifier, IOutbound, OutboundReply, OutboundRequest
from rsscloud_broker.model import Callback, Intent, Notification, Outcome
from rsscloud_broker.testing import FakeOutbound, make_notifier_tests, reply

TOPIC = "http://feeds.example/a b.xml?x=1&y=é"
CALLBACK = "http://reader.example:5337/notify"
FORM = "application/x-www-form-urlencoded"


def made(protocol: str) -> Callable[[TestCase, IOutbound], INotifier]:
    return lambda case, outbound: HttpPostNotifier(protocol, outbound)


class HttpPostContractTests(make_notifier_tests(made("http-post"))):  # type: ignore[misc] # made at run time
    """http-post keeps the contract of notifiers."""


class HttpsPostContractTests(make_notifier_tests(made("https-post"))):  # type: ignore[misc] # made at run time
    """https-post keeps the contract of notifiers."""


def challenge_of(request: OutboundRequest) -> str:
    return parse_qs(urlsplit(request.url).query)["challenge"][0]


def exact(request: OutboundRequest) -> OutboundReply:
    return reply(200, challenge_of(request).encode())


class HttpPostTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.outbound = FakeOutbound()
        self.notifier = HttpPostNotifier("http-post", self.outbound)

    def notify(self, url: str = CALLBACK) -> Outcome:
        notification = Notification(TOPIC, Callback(url, "http-post"))
        return self.successResultOf(Deferred.fromCoroutine(self.notifier.notify(notification)))

    def verify(self, challenge: bool, url: str = CALLBACK) -> Outcome:
        intent = Intent(TOPIC, Callback(url, "http-post"), 90_000, challenge)
        return self.successResultOf(Deferred.fromCoroutine(self.notifier.verify(intent)))


class NotifyTests(HttpPostTestCase):
    def test_request(self) -> None:
        self.assertEqual(self.notify(), Outcome(True))
        body = b"url=http%3A%2F%2Ffeeds.example%2Fa+b.xml%3Fx%3D1%26y%3D%C3%A9"
        expected = OutboundRequest("POST", CALLBACK, {"content-type": FORM}, body, 5)
        self.assertEqual(self.outbound.requests, [expected])

    def test_callback_is_called_exactly_as_it_was_named(self) -> None:
        for url in ("https://r.example/a%2Fb?x=%7E+1", "http://[::1]:80/?", "http://r.example"):
            self.notify(url)
            self.assertEqual(self.outbound.requests[-1].url, url)

    def test_reasons_are_one_short_line(self) -> None:
        self.outbound.otherwise = OutboundError("a\nb\x00c" + "x" * 5000)
        outcome = self.notify()
        self.assertTrue(outcome.reason.startswith("a bcxx"))
        self.assertEqual(len(outcome.reason), 300)

    def test_an_address_that_is_not_called(self) -> None:
        self.outbound.otherwise = AddressRefused("the address 10.1.2.3 is not public")
        for outcome in (self.notify(), self.verify(True), self.verify(False)):
            self.assertFalse(outcome.success)
            self.assertTrue(outcome.refused)
            self.assertEqual(outcome.reason, "the address 10.1.2.3 is not public")


class VerifyTests(HttpPostTestCase):
    def test_caller_itself_gets_a_test_notification(self) -> None:
        self.assertEqual(self.verify(challenge=False), Outcome(True))
        self.notify()
        first, second = self.outbound.requests
        self.assertEqual(first, second)

    def test_challenge_is_a_get(self) -> None:
        self.outbound.otherwise = exact
        self.assertEqual(self.verify(challenge=True), Outcome(True))
        (request,) = self.outbound.requests
        self.assertEqual((request.method, request.body, request.redirects), ("GET", b"", 5))
        self.assertTrue(request.url.startswith(f"{CALLBACK}?url=http%3A%2F%2Ffeeds.example%2F"))
        query = parse_qs(urlsplit(request.url).query)
        self.assertEqual((query.keys(), query["url"]), ({"url", "challenge"}, [TOPIC]))

    def test_challenge_is_added_to_a_query(self) -> None:
        self.outbound.otherwise = exact
        self.assertEqual(self.verify(True, CALLBACK + "?feed=7&x="), Outcome(True))
        self.assertIn("/notify?feed=7&x=&url=http", self.outbound.requests[0].url)

    def test_challenges_differ(self) -> None:
        self.outbound.otherwise = exact
        for _ in range(2):
            self.verify(challenge=True)
        first, second = map(challenge_of, self.outbound.requests)
        self.assertNotEqual(first, second)
        self.assertEqual((len(first), len(second)), (20, 20))

    def test_answer_that_contains_the_challenge(self) -> None:
        self.outbound.otherwise = lambda request: reply(
            200, b"<p>" + challenge_of(request).encode() + b"</p>\r\n"
        )
        self.assertEqual(self.verify(challenge=True), Outcome(True))

    def test_answer_without_the_challenge(self) -> None:
        refusal = Outcome(False, "the answer to the challenge does not contain it")
        for body in (b"", b"hello", TOPIC.encode()):
            self.outbound.otherwise = reply(200, body)
            self.assertEqual(self.verify(challenge=True), refusal)
        self.outbound.otherwise = lambda request: reply(200, challenge_of(request)[:-1].encode())
        self.assertEqual(self.verify(challenge=True), refusal)
