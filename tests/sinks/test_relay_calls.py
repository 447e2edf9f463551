"""What a relay sends by each protocol, and how it judges the answers."""

from __future__ import annotations

from urllib.parse import parse_qs, parse_qsl, urlsplit

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import AddressRefused, OutboundError
from rsscloud_broker.interfaces import OutboundRequest
from rsscloud_broker.model import Ping
from rsscloud_broker.sinks.relay_calls import Protocol, RelayAnswer, Sender, TargetCalls, message_of
from rsscloud_broker.testing import FakeOutbound, reply
from rsscloud_broker.testing.clock import Clock
from rsscloud_broker.wire import soap, xmlrpc

NOON = 1_790_683_200.0
HERE = "http://here.example"
URL = "http://sink.example/RPC2"
SITE = Ping("A & B", "http://blog.example/?a=1&b=2", NOON)
FEED = evolve(SITE, rss_url="http://blog.example/feed", tags=("one", "two"))
THANKS = xmlrpc.encode_response({"flerror": False, "message": "Thanks for the ping."})
UNKNOWN = xmlrpc.encode_fault(-32601, "server error. requested method does not exist")


class MessageTests(SynchronousTestCase):
    def test_xml_rpc(self) -> None:
        extended = [SITE.name, SITE.url, "", FEED.rss_url]
        for ping, method, values in (
            (SITE, "ping", [SITE.name, SITE.url]),
            (FEED, "extendedPing", [*extended, "one|two"]),
            (evolve(FEED, tags=()), "extendedPing", extended),
        ):
            message = message_of("xml-rpc", URL, ping)
            self.assertEqual((message.method, message.url), ("POST", URL))
            call = (f"weblogUpdates.{method}", values)
            self.assertEqual(xmlrpc.decode_call(message.body), call)
        plain = message_of("xml-rpc", URL, FEED, plain=True)
        self.assertEqual(xmlrpc.decode_call(plain.body)[0], "weblogUpdates.ping")

    def test_soap(self) -> None:
        message = message_of("soap", URL, FEED)
        self.assertEqual(message.headers["soapaction"], '"/weblogUpdates"')
        call = soap.decode_call(message.body)
        self.assertEqual(call.operation, "extendedPing")
        self.assertEqual(call.parameters["rssurl"], FEED.rss_url)
        self.assertEqual(call.parameters["weblogname"], SITE.name)

    def test_get(self) -> None:
        expected = {"name": SITE.name, "url": SITE.url}
        for url in ("http://sink.example/ping", "http://sink.example/ping?key=7"):
            asked = message_of("get", url, SITE)
            self.assertEqual((asked.method, asked.body), ("GET", b""))
            query = dict(parse_qsl(urlsplit(asked.url).query))
            self.assertEqual(query, expected | ({"key": "7"} if "key" in url else {}))
        fed = urlsplit(message_of("get", "http://sink.example/", FEED).url)
        self.assertEqual(parse_qs(fed.query)["rssUrl"], [FEED.rss_url])

        asked = message_of("get", "http://sink.example/ping?u={url}", SITE)
        url = "http://sink.example/ping?u=http%3A%2F%2Fblog.example%2F%3Fa%3D1%26b%3D2"
        self.assertEqual(asked.url, url)

    def test_forms_name_the_feed(self) -> None:
        published = {"hub.mode": "publish", "hub.url": FEED.rss_url, "hub.topic": FEED.rss_url}
        table: tuple[tuple[Protocol, Ping, dict[str, str]], ...] = (
            ("rsscloud", FEED, {"url": FEED.rss_url}),
            ("rsscloud", SITE, {"url": SITE.url}),
            ("websub", FEED, published),
        )
        for protocol, ping, form in table:
            sent = message_of(protocol, URL, ping).body.decode()
            self.assertEqual(dict(parse_qsl(sent)), form)


class CallTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.outbound = FakeOutbound()
        self.clock = Clock()

    def call(self, protocol: Protocol = "xml-rpc", ping: Ping = SITE) -> RelayAnswer:
        calls = TargetCalls(Sender(self.outbound, HERE), self.clock, protocol, URL)
        return self.successResultOf(Deferred.fromCoroutine(calls(ping)))

    def test_accepted(self) -> None:
        call, thanks = soap.SoapCall("ping"), {"flerror": False, "message": "OK"}
        true = soap.encode_response(call, thanks)
        answers: tuple[tuple[Protocol, bytes], ...] = (
            ("xml-rpc", THANKS),
            ("xml-rpc", xmlrpc.encode_response(True)),
            ("soap", true),
            ("soap", soap.encode_response(call, thanks, literal=True)),
            ("xml-rpc", xmlrpc.encode_response({"flerror": 0})),
            ("get", b"<html>Thanks</html>"),
            ("rsscloud", b'<result success="true" msg="Thanks for the ping."/>'),
            ("rsscloud", b"OK"),
            ("websub", b""),
        )
        for protocol, body in answers:
            self.outbound.otherwise = reply(200, body)
            answer = self.call(protocol)
            self.assertTrue(answer.accepted and answer.healthy, (protocol, answer))

    def test_accepted_in_the_encoding_of_the_header(self) -> None:
        """The document declares none, and would be UTF-8."""
        call, thanks = soap.SoapCall("ping"), {"flerror": False, "message": "Ping reçu"}
        declared = b"<?xml version='1.0' encoding='utf-8'?>"
        answers: tuple[tuple[Protocol, bytes], ...] = (
            ("xml-rpc", xmlrpc.encode_response(thanks)),
            ("soap", soap.encode_response(call, thanks)),
            ("rsscloud", '<result success="true" msg="Ping reçu"/>'.encode()),
        )
        for protocol, body in answers:
            latin = body.removeprefix(declared).decode().encode("latin-1")
            kind = "text/xml; charset=ISO-8859-1"
            self.outbound.otherwise = reply(200, latin, content_type=kind)
            answer = self.call(protocol)
            self.assertTrue(answer.accepted and answer.healthy, (protocol, answer))
            self.assertEqual(answer.text, "Ping reçu")

    def test_refused_for_good(self) -> None:
        too_fast = xmlrpc.encode_response({"flerror": True, "message": "Slow down cowboy!"})
        client = soap.encode_fault("Client", "No such operation")
        answers: tuple[tuple[Protocol, int, bytes, str], ...] = (
            ("xml-rpc", 200, too_fast, "refused it: Slow down cowboy!"),
            ("xml-rpc", 200, UNKNOWN, "fault -32601"),
            ("soap", 500, client, "No such operation"),
            ("rsscloud", 200, b'<result success="false" msg="No."/>', "refused it: No."),
            ("get", 404, b"", "status 404"),
            ("websub", 410, b"", "status 410"),
        )
        for protocol, status, body, reason in answers:
            self.outbound.otherwise = reply(status, body)
            answer = self.call(protocol)
            self.assertFalse(answer.accepted or answer.again, (protocol, status))
            self.assertIn(reason, answer.text)

    def test_refused_for_now(self) -> None:
        for status, headers, pause in (
            (503, {"retry_after": "120"}, 120.0),
            (429, {}, None),
            (500, {}, None),
            (403, {"retry_after": "7"}, 7.0),
        ):
            self.outbound.otherwise = reply(status, b"", **headers)
            answer = self.call()
            self.assertTrue(answer.again and not answer.healthy, status)
            self.assertEqual(answer.retry_after, pause)
        self.outbound.otherwise = reply(500, soap.encode_fault("Server", "no database"))
        self.assertTrue(self.call("soap").again)
        self.outbound.otherwise = OutboundError("nobody is there")
        self.assertTrue(self.call().again)

    def test_garbage_is_no_acceptance(self) -> None:
        for body in (b"", b"<html>hello</html>", b"\x00" * 5000):
            self.outbound.otherwise = reply(200, body)
            answer = self.call()
            self.assertFalse(answer.accepted or answer.healthy or answer.again)
            self.assertIn("not as a ping server does", answer.text)

    def test_forbidden_address_is_not_tried_again(self) -> None:
        self.outbound.otherwise = AddressRefused("it leads to a private network")
        expected = RelayAnswer(False, "it leads to a private network", healthy=False)
        self.assertEqual(self.call(), expected)

    def test_answers_of_strangers_are_short_lines(self) -> None:
        long = xmlrpc.encode_response({"flerror": True, "message": "no\n" * 1000})
        self.outbound.otherwise = reply(200, long)
        self.assertLess(len(self.call().text), 250)
        self.assertNotIn("\n", self.call().text)

    def test_falls_back_to_a_plain_ping(self) -> None:
        methods: list[str] = []

        def answer(request: OutboundRequest) -> object:
            method, _ = xmlrpc.decode_call(request.body)
            methods.append(method.partition(".")[2])
            return reply(200, UNKNOWN if methods[-1] == "extendedPing" else THANKS)

        self.outbound.otherwise = answer  # type: ignore[assignment] # it returns a reply
        calls = TargetCalls(Sender(self.outbound, HERE), self.clock, "xml-rpc", URL)
        for _ in range(2):
            self.assertTrue(self.successResultOf(Deferred.fromCoroutine(calls(FEED))).accepted)
        self.clock.advance(3600.0)
        self.successResultOf(Deferred.fromCoroutine(calls(FEED)))
        self.assertEqual(methods, ["extendedPing", "ping", "ping", "extendedPing", "ping"])

    def test_says_which_brokers_the_ping_has_passed(self) -> None:
        self.outbound.otherwise = reply(200, THANKS)
        self.call(ping=evolve(SITE, origin="http://first.example"))
        headers = self.outbound.requests[0].headers
        self.assertEqual(headers["ping-via"], f"http://first.example {HERE}")
        self.assertEqual(headers["ping-time"], "2026-09-29T12:00:00.000000Z")
