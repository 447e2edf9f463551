"""The notifier for websub: its requests to callbacks, and the outcomes of the answers."""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import parse_qs, urlsplit

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase, TestCase

from rsscloud_broker.delivery.notifiers import WebSubNotifier, WebSubNotifierOptions
from rsscloud_broker.delivery.notifiers.websub import RETRIES
from rsscloud_broker.errors import AddressRefused, OutboundError
from rsscloud_broker.interfaces import INotifier, IOutbound, OutboundReply, OutboundRequest
from rsscloud_broker.model import Callback, Content, Denial, Intent, Notification, Outcome
from rsscloud_broker.testing import FakeOutbound, make_notifier_tests, reply

TOPIC = "http://feeds.example/rss.xml?x=1&y=2"
CALLBACK = "http://reader.example/websub/8f31"
HUB = "http://broker.example/hub"
BODY = b"\xff\xfe<rss>\r\n\x00\xe9</rss>\n"


def query_of(request: OutboundRequest) -> dict[str, list[str]]:
    return parse_qs(urlsplit(request.url).query, keep_blank_values=True)


def repeats(request: OutboundRequest) -> OutboundReply:
    """A subscriber that repeats every challenge."""
    challenge = query_of(request).get("hub.challenge", ["thanks"])[0]
    return reply(200, challenge.encode())


def notifier(case: TestCase, outbound: IOutbound) -> INotifier:
    return WebSubNotifier(outbound, WebSubNotifierOptions())


class WebSubContractTests(make_notifier_tests(notifier, repeats)):  # type: ignore[misc] # made at run time
    """websub keeps the contract of notifiers."""


class WebSubTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.outbound = FakeOutbound(otherwise=repeats)
        self.notifier = WebSubNotifier(self.outbound, WebSubNotifierOptions())

    @property
    def request(self) -> OutboundRequest:
        """The one request that the notifier has made."""
        (request,) = self.outbound.requests
        return request

    def verify(self, *, url: str = CALLBACK, unsubscribe: bool = False, **options: str) -> Outcome:
        intent = Intent(
            TOPIC, Callback(url, "websub"), 864_000, options=options, unsubscribe=unsubscribe
        )
        return self.successResultOf(Deferred.fromCoroutine(self.notifier.verify(intent)))

    def notify(self, content: Content | None = None, **options: str) -> Outcome:
        content = content or Content(BODY, "application/rss+xml; charset=utf-16")
        notification = Notification(TOPIC, Callback(CALLBACK, "websub"), options, content)
        return self.successResultOf(Deferred.fromCoroutine(self.notifier.notify(notification)))


class VerificationTests(WebSubTestCase):
    """WebSub, section 5.3: verification of intent."""

    def test_subscription(self) -> None:
        """5.3.1: mode, topic, challenge and lease go into the query."""
        self.assertEqual(self.verify(), Outcome(True))
        self.assertEqual((self.request.method, self.request.body), ("GET", b""))
        query = query_of(self.request)
        self.assertGreaterEqual(len(query.pop("hub.challenge")[0]), 20)
        self.assertEqual(
            query,
            {"hub.mode": ["subscribe"], "hub.topic": [TOPIC], "hub.lease_seconds": ["864000"]},
        )

    def test_unsubscription(self) -> None:
        """5.3: an unsubscription has no lease."""
        self.assertEqual(self.verify(unsubscribe=True), Outcome(True))
        query = query_of(self.request)
        self.assertEqual(set(query), {"hub.mode", "hub.topic", "hub.challenge"})
        self.assertEqual(query["hub.mode"], ["unsubscribe"])

    def test_each_challenge_is_used_once(self) -> None:
        """5.3: the challenge is random."""
        for _ in range(20):
            self.verify()
        challenges = {query_of(request)["hub.challenge"][0] for request in self.outbound.requests}
        self.assertEqual(len(challenges), 20)

    def test_the_token_of_old_clients_is_echoed(self) -> None:
        """PubSubHubbub 0.3, section 6.2.1: hub.verify_token comes back."""
        self.verify(verify_token="a b&c")
        self.assertEqual(query_of(self.request)["hub.verify_token"], ["a b&c"])

    def test_the_query_of_a_callback_is_kept(self) -> None:
        """5.1: parameters are appended; those of the callback stay."""
        self.verify(url=f"{CALLBACK}?hub.mode=mine&a=%7E")
        self.assertTrue(self.request.url.startswith(f"{CALLBACK}?hub.mode=mine&a=%7E&hub.mode="))

    def test_only_the_challenge_confirms(self) -> None:
        """5.3.1: the body equals the challenge, and no more."""
        for body in (b"{}\n", b" {}", b"{}{}", b"", b"yes", b"<p>{}</p>", b'"{}"'):

            def answer(request: OutboundRequest, body: bytes = body) -> OutboundReply:
                return reply(200, body.replace(b"{}", repeats(request).body))

            self.outbound.otherwise = answer
            outcome = self.verify()
            self.assertEqual(
                outcome,
                Outcome(False, "the answer is not the challenge, alone and exactly"),
                body,
            )

    def test_any_2xx_confirms(self) -> None:
        """5.3.1: any 2xx status confirms, if the body is the challenge."""
        for status in (200, 201, 202, 299):
            self.outbound.otherwise = lambda request, status=status: reply(
                status, repeats(request).body
            )
            self.assertEqual(self.verify(), Outcome(True))

    def test_other_statuses_refuse(self) -> None:
        """5.3.1: redirects and errors are no confirmation, whatever their body says."""
        for status in (301, 302, 303, 307, 308, 400, 404, 410):
            self.outbound.otherwise = lambda request, status=status: reply(
                status, repeats(request).body, location="http://elsewhere.example/"
            )
            outcome = self.verify()
            self.assertEqual((outcome.success, outcome.answered), (False, True))
            self.assertIsNone(outcome.retry_after)
        self.assertEqual({request.redirects for request in self.outbound.requests}, {0})

    def test_some_failures_pass(self) -> None:
        """If the callback's server is busy or broken, the broker asks again."""
        for status in (408, 429, 500, 502, 503):
            self.outbound.otherwise = reply(status)
            self.assertEqual(self.verify().retry_after, 0.0, status)
            self.outbound.otherwise = reply(status, retry_after="7")
            self.assertEqual(self.verify().retry_after, 7.0, status)

    def test_no_answer(self) -> None:
        self.outbound.otherwise = OutboundError("nobody is there")
        self.assertEqual(self.verify(), Outcome(False, "nobody is there", answered=False))
        self.outbound.otherwise = AddressRefused("a private address")
        self.assertTrue(self.verify().refused)


class DeliveryTests(WebSubTestCase):
    """WebSub, section 7: content distribution."""

    def test_content_goes_byte_for_byte(self) -> None:
        """7: the request is a POST with the body and the Content-Type of the topic."""
        self.assertEqual(self.notify(hub=HUB), Outcome(True))
        self.assertEqual((self.request.method, self.request.url), ("POST", CALLBACK))
        self.assertEqual(self.request.body, BODY)
        self.assertEqual(
            self.request.headers,
            {
                "content-type": "application/rss+xml; charset=utf-16",
                "link": f'<{HUB}>; rel="hub", <{TOPIC}>; rel="self"',
            },
        )

    def test_content_without_a_type(self) -> None:
        self.notify(Content(BODY))
        self.assertEqual(self.request.headers["content-type"], "application/octet-stream")

    def test_types_that_headers_cannot_hold(self) -> None:
        for came, given in (
            (b"text/xml;\r\nx: y", "text/xml; x: y"),
            (b'text/xml; name="caf\xe9"; charset=x', 'text/xml; name="caf"; charset=x'),
            (b"text/h\xe9", "application/octet-stream"),
            (b"\xa0\xff", "application/octet-stream"),
            ("text/xml; name=\u200b".encode(), "application/octet-stream"),
        ):
            self.outbound.requests.clear()
            self.notify(Content(BODY, came.decode("latin-1")))
            self.assertEqual(self.request.headers["content-type"], given)

    def test_types_go_byte_for_byte(self) -> None:
        """7: the Content-Type of the topic is sent on byte for byte, if it is UTF-8."""
        came = 'text/xml; name="café 日本"'.encode()
        self.notify(Content(BODY, came.decode("latin-1")))
        self.assertEqual(self.request.headers["content-type"].encode(), came)

    def test_a_hub_that_is_not_known(self) -> None:
        self.notify()
        self.assertEqual(self.request.headers["link"], f'<{TOPIC}>; rel="self"')

    def test_links_that_were_handed_in(self) -> None:
        """7: the links of pushed content are sent on, together with the hub and the topic."""
        for given, link in (
            (
                '<http://p.example/>; rel="self"',
                f'<http://p.example/>; rel="self", <{HUB}>; rel="hub"',
            ),
            (
                '<http://h.example/>; rel="hub", </t>; rel=self',
                '<http://h.example/>; rel="hub", </t>; rel=self',
            ),
            (
                "</next>; rel=next",
                f'</next>; rel=next, <{HUB}>; rel="hub", <{TOPIC}>; rel="self"',
            ),
            (
                '<http://p.example/>;\trel="self"\t;\ttitle="a\tb",\t</t>; rel=hub\t',
                '<http://p.example/>; rel="self" ; title="a b", </t>; rel=hub',
            ),
            ('<broken>; rel="', f'<{HUB}>; rel="hub", <{TOPIC}>; rel="self"'),
        ):
            self.outbound.requests.clear()
            self.notify(Content(BODY, "text/plain", given), hub=HUB)
            self.assertEqual(self.request.headers["link"], link)

    def test_signature(self) -> None:
        """7.1: the signature is an HMAC of the body, by sha256 unless another method is set."""
        self.notify(secret="sesamé")
        digest = hmac.new("sesamé".encode(), BODY, hashlib.sha256).hexdigest()
        self.assertEqual(self.request.headers["x-hub-signature"], f"sha256={digest}")

    def test_signature_by_other_methods(self) -> None:
        """7.1: the configuration sets the method; an option of the subscription overrides it."""
        for method in ("sha1", "sha256", "sha384", "sha512"):
            digest = hmac.new(b"s", BODY, method).hexdigest()
            self.notify(secret="s", method=method)
            self.notifier = WebSubNotifier(self.outbound, WebSubNotifierOptions(signature=method))
            self.notify(secret="s")
            for request in self.outbound.requests[-2:]:
                self.assertEqual(request.headers["x-hub-signature"], f"{method}={digest}")

    def test_no_secret_no_signature(self) -> None:
        """7.1: without a secret there is no signature header."""
        self.notify(method="sha1")
        self.assertNotIn("x-hub-signature", self.request.headers)

    def test_answers(self) -> None:
        """7: any 2xx is a success, whatever its body; redirects fail; 410 ends the subscription."""
        for status in (200, 202, 204, 299):
            self.outbound.otherwise = reply(status, b"<fault>no</fault>")
            self.assertEqual(self.notify(), Outcome(True))
        for status in (301, 302, 307, 308, 400, 404, 500):
            self.outbound.otherwise = reply(status, location="http://elsewhere.example/")
            expected = Outcome(False, f"the callback answered with status {status}")
            self.assertEqual(self.notify(), expected)
        self.outbound.otherwise = reply(410)
        self.assertTrue(self.notify().gone)
        self.assertEqual({request.redirects for request in self.outbound.requests}, {0})

    def test_content_that_is_not_there(self) -> None:
        notification = Notification(TOPIC, Callback(CALLBACK, "websub"))
        calling = Deferred.fromCoroutine(self.notifier.notify(notification))
        outcome = self.successResultOf(calling)
        self.assertEqual((outcome.success, self.outbound.requests), (False, []))
        self.assertIn("no content", outcome.reason)


class DenialTests(WebSubTestCase):
    """WebSub, section 5.2: subscription validation."""

    def deny(self, url: str = CALLBACK) -> Outcome:
        denial = Denial(TOPIC, Callback(url, "websub"), "the topic\r\nis gone")
        return self.successResultOf(Deferred.fromCoroutine(self.notifier.deny(denial)))

    def test_request(self) -> None:
        """5.2: GET with the mode, the topic and the reason."""
        self.assertEqual(self.deny(f"{CALLBACK}?a=1"), Outcome(True))
        self.assertEqual((self.request.method, self.request.redirects), ("GET", 0))
        self.assertEqual(
            query_of(self.request),
            {
                "a": ["1"],
                "hub.mode": ["denied"],
                "hub.topic": [TOPIC],
                "hub.reason": ["the topic is gone"],
            },
        )

    def test_some_failures_pass(self) -> None:
        """If the callback's server is busy or broken, the broker sends the denial again."""
        for status in (408, 429, 500, 503):
            self.outbound.otherwise = reply(status)
            self.assertEqual(self.deny().retry_after, 0.0, status)


class ScheduleTests(SynchronousTestCase):
    def test_by_default(self) -> None:
        """Retries back off up to six hours, and failures never drop a subscription."""
        notifier = WebSubNotifier(FakeOutbound(), WebSubNotifierOptions())
        self.assertEqual(notifier.retries, (5, 30, 120, 600, 1800, 7200, 21600))
        self.assertEqual(notifier.retries, RETRIES)
        self.assertIsNone(notifier.drop_after_failures)
        self.assertTrue(notifier.carries_content)
