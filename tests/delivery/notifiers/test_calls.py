"""The notifiers for xml-rpc and soap: their requests, and the outcomes of the answers."""

from __future__ import annotations

from typing import Any, ClassVar

from twisted.trial.unittest import SynchronousTestCase, TestCase

from rsscloud_broker.delivery.notifiers import SoapNotifier, XMLRPCNotifier
from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import INotifier, IOutbound
from rsscloud_broker.model import Callback, Intent, Notification, Outcome
from rsscloud_broker.testing import FakeOutbound, make_notifier_tests, reply
from rsscloud_broker.wire import soap, xmlrpc
from tests.delivery.notifiers.test_http_post import exact

TOPIC = "http://feeds.example/rss.xml?a=1&b=<é>"
URL = "http://reader.example:5337/RPC2?x=1"

XMLRPC_ACCEPTED = reply(200, xmlrpc.encode_response(True))
SOAP_ACCEPTED = reply(200, soap.encode_response(soap.SoapCall("notify"), True))


def xml_rpc(case: TestCase, outbound: IOutbound) -> INotifier:
    return XMLRPCNotifier(outbound)


def soap_notifier(case: TestCase, outbound: IOutbound) -> INotifier:
    return SoapNotifier(outbound)


class XMLRPCContractTests(make_notifier_tests(xml_rpc, XMLRPC_ACCEPTED)):  # type: ignore[misc] # made at run time
    """xml-rpc keeps the contract of notifiers."""


class SoapContractTests(make_notifier_tests(soap_notifier, SOAP_ACCEPTED)):  # type: ignore[misc] # made at run time
    """soap keeps the contract of notifiers."""


class CallTestCase(SynchronousTestCase):
    kind: ClassVar[type[XMLRPCNotifier] | type[SoapNotifier]]

    def setUp(self) -> None:
        self.outbound = FakeOutbound()
        outbound: IOutbound = self.outbound
        self.notifier: INotifier = self.kind(outbound)

    def notify(self, procedure: str = "river.feedUpdated", url: str = URL) -> Outcome:
        callback = Callback(url, self.notifier.protocol, procedure)
        call = self.notifier.notify(Notification(TOPIC, callback))
        return self.successResultOf(call)  # type: ignore[arg-type] # it is a coroutine

    def verify(self, challenge: bool) -> Outcome:
        callback = Callback(URL, self.notifier.protocol, "river.feedUpdated")
        call = self.notifier.verify(Intent(TOPIC, callback, 90_000, challenge))
        return self.successResultOf(call)  # type: ignore[arg-type] # it is a coroutine

    def outcome_of(self, status: int, body: bytes, kind: str = "text/xml") -> Outcome:
        self.outbound.otherwise = reply(status, body, content_type=kind)
        return self.notify()

    def assert_verified(self) -> None:
        """A server at its own address is called, and any other gets a challenge."""
        self.assertEqual(self.verify(challenge=False), Outcome(True))
        self.notify()
        first, second = self.outbound.requests
        self.assertEqual(first, second)
        refusal = Outcome(False, "the answer to the challenge does not contain it")
        self.assertEqual(self.verify(challenge=True), refusal)  # it accepts any call
        self.outbound.otherwise = exact
        self.assertEqual(self.verify(challenge=True), Outcome(True))
        for request in self.outbound.requests[2:]:
            self.assertEqual((request.method, request.body), ("GET", b""))
            self.assertTrue(request.url.startswith(f"{URL}&url=http%3A%2F%2Ffeeds.example%2F"))
        self.outbound.otherwise = OutboundError("nobody is there")
        for challenge in (False, True):
            self.assertEqual(
                self.verify(challenge), Outcome(False, "nobody is there", answered=False)
            )


class XMLRPCTests(CallTestCase):
    kind = XMLRPCNotifier

    def test_request(self) -> None:
        self.outbound.otherwise = XMLRPC_ACCEPTED
        self.assertEqual(self.notify(), Outcome(True))
        (request,) = self.outbound.requests
        self.assertEqual((request.method, request.url, request.redirects), ("POST", URL, 5))
        self.assertEqual(request.headers, {"content-type": "text/xml; charset=utf-8"})
        self.assertEqual(xmlrpc.decode_call(request.body), ("river.feedUpdated", [TOPIC]))

    def test_verification(self) -> None:
        self.outbound.otherwise = XMLRPC_ACCEPTED
        self.assert_verified()

    def test_any_value_accepts(self) -> None:
        values: list[Any] = [True, False, "", 0, [], {"flerror": True}]
        for value in values:
            self.assertEqual(self.outcome_of(200, xmlrpc.encode_response(value)), Outcome(True))
        no_value = b"<methodResponse><params/></methodResponse>"
        self.assertEqual(self.outcome_of(200, no_value), Outcome(True))

    def test_fault(self) -> None:
        self.assertEqual(
            self.outcome_of(200, xmlrpc.encode_fault(7, "No such\nprocedure")),
            Outcome(False, "the callback answered with a fault: fault 7: No such procedure"),
        )

    def test_fault_in_the_encoding_of_the_header(self) -> None:
        _, _, fault = xmlrpc.encode_fault(7, "Erreur inattendue à la fin").rpartition(b"?>")
        latin = fault.decode().encode("latin-1")
        self.assertIn("à la fin", self.outcome_of(200, latin, "text/xml; charset=latin1").reason)

    def test_what_else_a_2xx_says_is_ignored(self) -> None:
        for body in (b"", b"thanks", b"<html/>", b"<methodResponse>", xmlrpc.encode_call("a", [])):
            self.assertEqual(self.outcome_of(200, body), Outcome(True), body)


class SoapTests(CallTestCase):
    kind = SoapNotifier

    def test_request(self) -> None:
        self.outbound.otherwise = SOAP_ACCEPTED
        self.assertEqual(self.notify(), Outcome(True))
        (request,) = self.outbound.requests
        self.assertEqual((request.method, request.url, request.redirects), ("POST", URL, 5))
        expected = {"content-type": "text/xml; charset=utf-8", "soapaction": '"/RPC2"'}
        self.assertEqual(request.headers, expected)
        call = soap.decode_call(request.body)
        self.assertEqual((call.operation, call.namespace), ("feedUpdated", ""))
        self.assertEqual(call.parameters, {"url": TOPIC})
        self.assertIn(b"xsd:string", request.body)

    def test_action_is_the_path_as_it_is_asked_for(self) -> None:
        for path, action in (
            ("/a/b;c=d%20e", '"/a/b;c=d%20e"'),
            ("/caf\xe9", '"/caf%C3%A9"'),
            ("/a\u200bb", '"/a%E2%80%8Bb"'),
            ('/a"b', '"/a%22b"'),
            ("", '""'),
        ):
            url = f"http://reader.example{path}"
            self.assertEqual(self.notify(url=url), Outcome(True))
            request = self.outbound.requests[-1]
            self.assertEqual((request.url, request.headers["soapaction"]), (url, action))

    def test_operation_is_the_last_name_of_the_procedure(self) -> None:
        for procedure in ("feedUpdated", "a.b.feedUpdated", "a/feedUpdated", "x:feedUpdated"):
            self.assertEqual(self.notify(procedure), Outcome(True))
            call = soap.decode_call(self.outbound.requests[-1].body)
            self.assertEqual(call.operation, "feedUpdated")

    def test_procedure_that_cannot_be_an_element(self) -> None:
        for procedure in ("", "river.", "two words", "<a>", "1st"):
            outcome = self.notify(procedure)
            self.assertFalse(outcome.success)
            self.assertIn("cannot be the name of an element", outcome.reason)
        self.assertEqual(self.outbound.requests, [])

    def test_verification(self) -> None:
        self.assert_verified()

    def test_any_result_accepts(self) -> None:
        for value in (True, False, "x", {"flerror": True}):
            body = soap.encode_response(soap.SoapCall("feedUpdated"), value)
            self.assertEqual(self.outcome_of(200, body), Outcome(True))
        for status, body in ((200, b""), (202, b" \r\n"), (204, b"")):
            self.assertEqual(self.outcome_of(status, body), Outcome(True))

    def test_fault(self) -> None:
        outcome = self.outcome_of(200, soap.encode_fault("Server", "No such procedure"))
        self.assertFalse(outcome.success)
        self.assertIn("answered with a fault", outcome.reason)
        self.assertIn("No such procedure", outcome.reason)

    def test_what_else_a_2xx_says_is_ignored(self) -> None:
        for body in (b"thanks", b"<html>", b"<html/>", XMLRPC_ACCEPTED.body):
            self.assertEqual(self.outcome_of(200, body), Outcome(True), body)
