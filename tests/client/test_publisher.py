"""Pings of feeds and of sites, by each protocol, and what brokers answer."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeAlias

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.client.publisher import PROTOCOLS, ping_feed, ping_site
from rsscloud_broker.client.web import ClientError
from rsscloud_broker.wire import soap, xmlrpc
from tests.client.recording import Answer, Asked, Server, fields_of, web_to

BROKER = "http://broker.example:5337/"
FEED = "http://example.org/rss.xml?a=1&b=ü"
HOME = "http://example.org/"
THANKS = {"flerror": False, "message": "Thanks for the ping."}
REFUSAL = {"flerror": True, "message": "Too long."}

Ping: TypeAlias = Coroutine[Any, Any, str]


def soap_answer(operation: str, result: object) -> Answer:
    return Answer(soap.encode_response(soap.SoapCall(operation), result))


def xmlrpc_answer(result: Any) -> Answer:
    return Answer(xmlrpc.encode_response(result))


class PublisherTests(SynchronousTestCase):
    def feed(self, protocol: str, answer: Answer) -> Ping:
        """Ping for the feed at a broker that gives an answer."""
        self.server = Server(answer)
        return ping_feed(web_to(self.server), BROKER, FEED, protocol)

    def site(self, protocol: str, answer: Answer, name: str = "Site", rss: str = "") -> Ping:
        """Ping for the site at a broker that gives an answer."""
        self.server = Server(answer)
        return ping_site(web_to(self.server), BROKER, name, HOME, rss, protocol)

    @property
    def asked(self) -> Asked:
        (asked,) = self.server.asked
        return asked

    def complaint(self, ping: Ping) -> str:
        return str(self.failureResultOf(ping, ClientError).value)


class PingFeedTests(PublisherTests):
    """rssCloud pings"""

    def test_by_rest(self) -> None:
        answer = Answer(b'<result success="true" msg="Thanks for the ping."/>')
        self.assertEqual(self.successResultOf(self.feed("rest", answer)), "Thanks for the ping.")
        asked = self.asked
        self.assertEqual(
            (asked.method, asked.uri, asked.headers["host"], fields_of(asked)),
            ("POST", "/rsscloud/ping", "broker.example:5337", {"url": FEED}),
        )

    def test_by_calls(self) -> None:
        self.assertTrue(self.successResultOf(self.feed("xml-rpc", xmlrpc_answer(True))))
        self.assertEqual(self.asked.uri, "/RPC2")
        self.assertEqual(xmlrpc.decode_call(self.asked.body), ("rssCloud.ping", [FEED]))
        self.assertTrue(self.successResultOf(self.feed("soap", soap_answer("ping", True))))
        self.assertEqual(self.asked.uri, "/soap")
        self.assertEqual(self.asked.headers["soapaction"], '"/rssCloud"')
        call = soap.SoapCall("ping", "", {"url": FEED})
        self.assertEqual(soap.decode_call(self.asked.body), call)

    def test_refusals(self) -> None:
        """With the words of the broker, or else its address."""
        for protocol, answer, said in (
            ("rest", Answer(b'<result success="false" msg="No such feed."/>'), "No such feed."),
            ("xml-rpc", Answer(xmlrpc.encode_fault(4, "No such feed.")), "No such feed."),
            ("soap", Answer(soap.encode_fault("Client", "No such feed."), 500), "No such feed."),
            ("rest", Answer(b"<result/>"), "http://broker.example:5337"),
            ("xml-rpc", xmlrpc_answer(False), "http://broker.example:5337"),
            ("soap", soap_answer("ping", False), "http://broker.example:5337"),
        ):
            self.assertIn(said, self.complaint(self.feed(protocol, answer)), protocol)

    def test_what_no_broker_answers(self) -> None:
        for protocol in PROTOCOLS:
            for status in (301, 404, 500, 503):
                said = self.complaint(self.feed(protocol, Answer(b"Oops & sorry", status)))
                self.assertIn(f"HTTP status {status}", said, protocol)
            for body in (b"", b"hello", b"<html><body>Hello", b"<html/>"):
                self.assertTrue(self.complaint(self.feed(protocol, Answer(body))), body)


class PingSiteTests(PublisherTests):
    """weblogs.com pings"""

    def test_by_rest(self) -> None:
        page = (
            b"<title>Ping</title><main><h1>Pinged</h1> <p>Thanks for\nthe ping.</p>"
            b"<h2>Now</h2> <p>Go on.</p></main>"
        )
        for name, more in (("Müll & Co", {}), ("Site", {"rssUrl": FEED})):
            ping = self.site("rest", Answer(page), name, more.get("rssUrl", ""))
            self.assertEqual(self.successResultOf(ping), "Pinged Thanks for the ping.")
            self.assertTrue(self.asked.uri.startswith("/pingSiteForm?"))
            self.assertEqual(fields_of(self.asked), {"name": name, "url": HOME, **more})

    def test_by_xmlrpc(self) -> None:
        for rss, call in (
            ("", ("weblogUpdates.ping", ["Site", HOME])),
            (FEED, ("weblogUpdates.extendedPing", ["Site", HOME, "", FEED])),
        ):
            ping = self.site("xml-rpc", xmlrpc_answer(THANKS), rss=rss)
            self.assertEqual(self.successResultOf(ping), "Thanks for the ping.", call[0])
            self.assertEqual(self.asked.uri, "/RPC2", call[0])
            self.assertEqual(xmlrpc.decode_call(self.asked.body), call, call[0])

    def test_by_soap(self) -> None:
        site = {"weblogname": "Site", "weblogurl": HOME}
        for operation, rss, more in (
            ("ping", "", {}),
            ("extendedPing", FEED, {"changesurl": "", "rssurl": FEED, "tags": ""}),
        ):
            ping = self.site("soap", soap_answer(operation, THANKS), rss=rss)
            self.assertEqual(self.successResultOf(ping), "Thanks for the ping.", operation)
            named = (self.asked.uri, self.asked.headers["soapaction"])
            self.assertEqual(named, ("/weblogUpdates", '"/weblogUpdates"'), operation)
            call = soap.SoapCall(operation, "", site | more)
            self.assertEqual(soap.decode_call(self.asked.body), call, operation)

    def test_flerror_in_other_forms(self) -> None:
        """Some servers write an int, or a text without a type."""
        for protocol, answer in (
            ("xml-rpc", xmlrpc_answer({"flerror": 0, "message": "Thanks."})),
            ("soap", soap_answer("ping", {"flerror": "false", "message": "Thanks."})),
        ):
            self.assertEqual(self.successResultOf(self.site(protocol, answer)), "Thanks.")

    def test_refusals(self) -> None:
        page = b"<style>p{}</style><body><p>Too <b>long</b>.</p></body>"
        for protocol, answer in (
            ("rest", Answer(page, 400)),
            ("xml-rpc", xmlrpc_answer(REFUSAL)),
            ("xml-rpc", Answer(xmlrpc.encode_fault(4, "Too long."))),
            ("soap", soap_answer("ping", REFUSAL)),
            ("soap", Answer(soap.encode_fault("Client", "Too long."), 500)),
        ):
            self.assertEqual(self.complaint(self.site(protocol, answer)), "Too long.", protocol)

    def test_answers_of_another_kind(self) -> None:
        for protocol, answer in (
            ("rest", Answer(b"", 502)),
            ("xml-rpc", xmlrpc_answer("thanks")),
            ("xml-rpc", xmlrpc_answer({})),
            ("soap", soap_answer("ping", "thanks")),
            ("soap", Answer(b"<html>")),
        ):
            said = self.complaint(self.site(protocol, answer))
            self.assertTrue(said.startswith("http://broker.example:5337"), said)
