"""A call that fails has its request and its answer in the outcome, without secrets."""

from __future__ import annotations

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.delivery.notifiers.calling import call
from rsscloud_broker.delivery.notifiers.recording import MAX_HEADERS, MAX_VALUE
from rsscloud_broker.delivery.notifiers.websub import WebSubNotifier, WebSubNotifierOptions
from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import OutboundReply, OutboundRequest
from rsscloud_broker.model import Callback, Content, Exchange, Notification
from rsscloud_broker.model.values import HIDDEN, KEPT_OF_BODY
from rsscloud_broker.testing import FakeOutbound, reply

URL = "http://reader.example/notify"
FORM = {"content-type": "application/x-www-form-urlencoded"}


class RecordingTests(SynchronousTestCase):
    def exchange(self, answer: OutboundReply | Exception, body: bytes = b"url=x") -> Exchange:
        outbound = FakeOutbound(otherwise=answer)
        calling = call(outbound, OutboundRequest("POST", URL, FORM, body), lambda reply: "no")
        exchange = self.successResultOf(Deferred.fromCoroutine(calling)).exchange
        assert exchange is not None
        return exchange

    def test_answer(self) -> None:
        found = self.exchange(reply(500, b"\x00oops", server="nginx"))
        expected = Exchange("POST", URL, FORM, b"url=x", 500, {"server": "nginx"}, b"\x00oops")
        self.assertEqual(found, expected)

    def test_answer_that_is_not_accepted(self) -> None:
        self.assertEqual(self.exchange(reply(200)).status, 200)

    def test_no_answer(self) -> None:
        found = self.exchange(OutboundError("nobody is there"))
        self.assertEqual(found, Exchange("POST", URL, FORM, b"url=x"))
        self.assertIsNone(found.status)

    def test_the_url_that_answered(self) -> None:
        moved = evolve(reply(500), url="http://elsewhere.example/")
        self.assertEqual(self.exchange(moved).url, "http://elsewhere.example/")

    def test_a_success_has_none(self) -> None:
        calling = call(FakeOutbound(), OutboundRequest("POST", URL, FORM))
        self.assertIsNone(self.successResultOf(Deferred.fromCoroutine(calling)).exchange)

    def test_the_beginning_of_bodies(self) -> None:
        found = self.exchange(reply(500, b"a" * 9000), b"b" * 9000)
        self.assertEqual(found.answer_body, b"a" * KEPT_OF_BODY)
        self.assertEqual(found.request_body, b"b" * KEPT_OF_BODY)

    def test_few_and_short_headers(self) -> None:
        many = {f"x-{number}": "v" * 9000 + "\x00" for number in range(200)}
        found = self.exchange(evolve(reply(500), headers=many)).answer_headers
        self.assertEqual(len(found), MAX_HEADERS)
        self.assertEqual(set(found.values()), {"v" * MAX_VALUE})

    def test_secrets_are_hidden(self) -> None:
        answer = evolve(reply(500), headers={"set-cookie": "session=sesame", "server": "x"})
        notifier = WebSubNotifier(FakeOutbound(otherwise=answer), WebSubNotifierOptions())
        notification = Notification(
            "http://feeds.example/rss.xml",
            Callback(URL, "websub"),
            {"secret": "sesame", "hub": "http://hub.example/"},
            Content(b"<rss/>", "application/rss+xml"),
        )
        outcome = self.successResultOf(Deferred.fromCoroutine(notifier.notify(notification)))
        assert outcome.exchange is not None
        self.assertEqual(outcome.exchange.request_headers["x-hub-signature"], HIDDEN)
        self.assertEqual(outcome.exchange.answer_headers, {"set-cookie": HIDDEN, "server": "x"})
        self.assertNotIn("sesame", str(outcome.exchange.request_headers))
