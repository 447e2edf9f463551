from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.client.publisher import PROTOCOLS, ping_feed, ping_site
from rsscloud_broker.client.web import ClientError
from rsscloud_broker.wire import soap, xmlrpc
from tests.client.recording import Answer, Server, fields_of, web_to

BROKER = "http://broker.example:5337/"
FEED = "http://example.org/rss.xml?a=1&b=ü"
HOME = "http://example.org/"


def soap_answer(operation: str, result: object) -> Answer:
    return Answer(soap.encode_response(soap.SoapCall(operation), result))


class PublisherTests(SynchronousTestCase):
    def said(self, ping: Coroutine[Any, Any, str]) -> str:
        return self.successResultOf(Deferred.fromCoroutine(ping))

    def complaint(self, ping: Coroutine[Any, Any, str]) -> str:
        return str(self.failureResultOf(Deferred.fromCoroutine(ping), ClientError).value)


class PingFeedTests(PublisherTests):
    """rssCloud pings"""

    def test_by_rest(self) -> None:
        server = Server(Answer(b'<result success="true" msg="Thanks for the ping."/>'))
        said = self.said(ping_feed(web_to(server), BROKER, FEED, "rest"))
        self.assertEqual(said, "Thanks for the ping.")
        (asked,) = server.asked
        self.assertEqual(
            (asked.method, asked.uri, asked.host, fields_of(asked)),
            ("POST", "/rsscloud/ping", "broker.example:5337", {"url": FEED}),
        )

    def test_by_xmlrpc(self) -> None:
        server = Server(Answer(xmlrpc.encode_response(True)))
        self.assertTrue(self.said(ping_feed(web_to(server), BROKER, FEED, "xml-rpc")))
        (asked,) = server.asked
        self.assertEqual(asked.uri, "/RPC2")
        self.assertEqual(xmlrpc.decode_call(asked.body), ("rssCloud.ping", [FEED]))

    def test_by_soap(self) -> None:
        server = Server(soap_answer("ping", True))
        self.assertTrue(self.said(ping_feed(web_to(server), BROKER, FEED, "soap")))
        (asked,) = server.asked
        self.assertEqual((asked.uri, asked.soap_action), ("/soap", '"/rssCloud"'))
        self.assertEqual(soap.decode_call(asked.body), soap.SoapCall("ping", "", {"url": FEED}))

    def test_refusals(self) -> None:
        for protocol, answer in (
            ("rest", Answer(b'<result success="false" msg="No such feed."/>')),
            ("xml-rpc", Answer(xmlrpc.encode_fault(4, "No such feed."))),
            ("soap", Answer(soap.encode_fault("Client", "No such feed."), 500)),
        ):
            with self.subTest(protocol):
                ping = ping_feed(web_to(Server(answer)), BROKER, FEED, protocol)
                self.assertEqual(self.complaint(ping), "No such feed.")

    def test_refusals_without_words(self) -> None:
        for protocol, answer in (
            ("rest", Answer(b"<result/>")),
            ("xml-rpc", Answer(xmlrpc.encode_response(False))),
            ("soap", soap_answer("ping", False)),
        ):
            with self.subTest(protocol):
                ping = ping_feed(web_to(Server(answer)), BROKER, FEED, protocol)
                self.assertIn("http://broker.example:5337", self.complaint(ping))

    def test_http_errors(self) -> None:
        for protocol in PROTOCOLS:
            for status in (301, 404, 500, 503):
                with self.subTest(f"{protocol} {status}"):
                    web = web_to(Server(Answer(b"Oops & sorry", status)))
                    complaint = self.complaint(ping_feed(web, BROKER, FEED, protocol))
                    self.assertIn(f"HTTP status {status}", complaint)

    def test_answers_of_another_kind(self) -> None:
        for protocol in PROTOCOLS:
            for body in (b"", b"hello", b"<html><body>Hello", b"<html/>"):
                with self.subTest(f"{protocol} {body!r}"):
                    ping = ping_feed(web_to(Server(Answer(body))), BROKER, FEED, protocol)
                    self.assertTrue(self.complaint(ping))


class PingSiteTests(PublisherTests):
    """weblogs.com pings"""

    def test_by_rest(self) -> None:
        page = (
            b"<title>Ping</title><main><h1>Pinged</h1> <p>Thanks for\nthe ping.</p>"
            b"<h2>Now</h2> <p>Go on.</p></main>"
        )
        server = Server(Answer(page))
        said = self.said(ping_site(web_to(server), BROKER, "Müll & Co", HOME, protocol="rest"))
        self.assertEqual(said, "Pinged Thanks for the ping.")
        (asked,) = server.asked
        self.assertTrue(asked.uri.startswith("/pingSiteForm?"))
        self.assertEqual(fields_of(asked), {"name": "Müll & Co", "url": HOME})

    def test_by_rest_with_a_feed(self) -> None:
        server = Server(Answer(b"<p>Thanks for the ping."))
        self.said(ping_site(web_to(server), BROKER, "Site", HOME, FEED, "rest"))
        (asked,) = server.asked
        self.assertTrue(asked.uri.startswith("/pingSiteForm?"))
        self.assertEqual(fields_of(asked), {"name": "Site", "url": HOME, "rssUrl": FEED})

    def test_by_xmlrpc(self) -> None:
        for rss, call in (
            ("", ("weblogUpdates.ping", ["Site", HOME])),
            (FEED, ("weblogUpdates.extendedPing", ["Site", HOME, "", FEED])),
        ):
            with self.subTest(call[0]):
                answer = {"flerror": False, "message": "Thanks for the ping."}
                server = Server(Answer(xmlrpc.encode_response(answer)))
                said = self.said(ping_site(web_to(server), BROKER, "Site", HOME, rss, "xml-rpc"))
                self.assertEqual(said, "Thanks for the ping.")
                self.assertEqual(server.asked[0].uri, "/RPC2")
                self.assertEqual(xmlrpc.decode_call(server.asked[0].body), call)

    def test_by_soap(self) -> None:
        site = {"weblogname": "Site", "weblogurl": HOME}
        for rss, call in (
            ("", soap.SoapCall("ping", "", site)),
            (
                FEED,
                soap.SoapCall(
                    "extendedPing", "", site | {"changesurl": "", "rssurl": FEED, "tags": ""}
                ),
            ),
        ):
            with self.subTest(call.operation):
                answer = {"flerror": False, "message": "Thanks for the ping."}
                server = Server(soap_answer(call.operation, answer))
                said = self.said(ping_site(web_to(server), BROKER, "Site", HOME, rss, "soap"))
                self.assertEqual(said, "Thanks for the ping.")
                (asked,) = server.asked
                self.assertEqual(
                    (asked.uri, asked.soap_action), ("/weblogUpdates", '"/weblogUpdates"')
                )
                self.assertEqual(soap.decode_call(asked.body), call)

    def test_flerror_in_other_forms(self) -> None:
        """Some servers write an int, or a text without a type."""
        for answer in (
            Answer(xmlrpc.encode_response({"flerror": 0, "message": "Thanks."})),
            soap_answer("ping", {"flerror": "false", "message": "Thanks."}),
        ):
            ping = ping_site(
                web_to(Server(answer)),
                BROKER,
                "Site",
                HOME,
                protocol="xml-rpc" if b"methodResponse" in answer.body else "soap",
            )
            self.assertEqual(self.said(ping), "Thanks.")

    def test_refusals(self) -> None:
        refusal = {"flerror": True, "message": "Too long."}
        for protocol, answer in (
            ("rest", Answer(b"<style>p{}</style><body><p>Too <b>long</b>.</p></body>", 400)),
            ("xml-rpc", Answer(xmlrpc.encode_response(refusal))),
            ("xml-rpc", Answer(xmlrpc.encode_fault(4, "Too long."))),
            ("soap", soap_answer("ping", refusal)),
            ("soap", Answer(soap.encode_fault("Client", "Too long."), 500)),
        ):
            with self.subTest(protocol):
                web = web_to(Server(answer))
                ping = ping_site(web, BROKER, "Site", HOME, protocol=protocol)
                self.assertEqual(self.complaint(ping), "Too long.")

    def test_answers_of_another_kind(self) -> None:
        for protocol, answer in (
            ("rest", Answer(b"", 502)),
            ("xml-rpc", Answer(xmlrpc.encode_response("thanks"))),
            ("xml-rpc", Answer(xmlrpc.encode_response({}))),
            ("soap", soap_answer("ping", "thanks")),
            ("soap", Answer(b"<html>")),
        ):
            with self.subTest(protocol):
                web = web_to(Server(answer))
                ping = ping_site(web, BROKER, "Site", HOME, protocol=protocol)
                self.assertTrue(self.complaint(ping).startswith("http://broker.example:5337"))
