from typing import Any
from xmlrpc import client as xmlrpc_client

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.client.listener import MAX_BODY_BYTES, Listener
from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.wire import soap
from tests.client.recording import web_to

TOPIC = "http://example.org/rss.xml"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
XML = {"Content-Type": "text/xml"}


class ListenerTests(SynchronousTestCase):
    """The listener's answers to a cloud, and the notifications that it passes on."""

    def setUp(self) -> None:
        self.heard: list[str] = []
        self.web = web_to(Listener({TOPIC}, self.heard.append))

    def get(self, query: str) -> OutboundReply:
        getting = self.web.get(f"http://localhost/notify?{query}")
        return self.successResultOf(Deferred.fromCoroutine(getting))

    def post(self, headers: dict[str, str], body: bytes) -> OutboundReply:
        posting = self.web.post("http://localhost/notify", headers, body)
        return self.successResultOf(Deferred.fromCoroutine(posting))


class FormTests(ListenerTests):
    """http-post"""

    def test_the_challenge_is_repeated(self) -> None:
        """But not for another topic, nor to those who look whether anything is there."""
        utf_8 = "text/plain; charset=utf-8"
        for query, status, kind, body in (
            (f"url={TOPIC}&challenge=%3Cb%3Ex91", 200, "text/plain", b"<b>x91"),
            ("url=http://example.com/&challenge=x91", 404, utf_8, b"not subscribed to that url"),
            (f"url={TOPIC}", 200, utf_8, b"send notifications here by POST"),
            ("", 200, utf_8, b"send notifications here by POST"),
        ):
            reply = self.get(query)
            self.assertEqual((reply.status, reply.headers["content-type"]), (status, kind))
            self.assertTrue(reply.body.startswith(body), reply.body)
        self.assertEqual(self.heard, [])

    def test_notifications(self) -> None:
        for body, status in (
            (b"url=http%3A%2F%2Fexample.com%2F", 404),
            (b"url=" + b"x" * MAX_BODY_BYTES, 413),
            (b"url=http%3A%2F%2Fexample.org%2Frss.xml", 200),
        ):
            self.assertEqual(self.post(FORM, body).status, status)
            self.assertEqual(self.heard, [TOPIC] if status == 200 else [])


class XMLRPCTests(ListenerTests):
    """xml-rpc, as the standard library of Python writes and reads it."""

    def call(self, method: str, *parameters: Any) -> object:
        call = xmlrpc_client.dumps(parameters, method)
        values, _ = xmlrpc_client.loads(self.post(XML, call.encode()).body.decode())
        return values[0]

    def test_a_notification(self) -> None:
        self.assertIs(self.call("rssCloud.notify", TOPIC), True)
        self.assertEqual(self.heard, [TOPIC])

    def test_calls_that_make_no_sense_are_faults(self) -> None:
        for method, parameters, reason in (
            ("rssCloud.bang", (TOPIC,), "rssCloud.bang is not defined"),
            ("rssCloud.notify", (), "not subscribed"),
            ("rssCloud.notify", (TOPIC, TOPIC), "not subscribed"),
            ("rssCloud.notify", (7,), "not subscribed"),
            ("rssCloud.notify", ([TOPIC],), "not subscribed"),
            ("rssCloud.notify", ("http://example.com/",), "not subscribed"),
        ):
            with self.assertRaisesRegex(xmlrpc_client.Fault, reason):
                self.call(method, *parameters)
        self.assertEqual(self.heard, [])

    def test_what_is_not_xml_is_a_fault(self) -> None:
        for body in (b"", b"hello", b"<methodCall>", b"<!DOCTYPE x><methodCall/>", b"<a/>"):
            with self.assertRaises(xmlrpc_client.Fault):
                xmlrpc_client.loads(self.post(XML, body).body.decode())
        self.assertEqual(self.heard, [])


class SoapTests(ListenerTests):
    """soap"""

    def call(self, body: bytes) -> OutboundReply:
        return self.post(XML | {"SOAPAction": '"/notify"'}, body)

    def test_a_notification(self) -> None:
        reply = self.call(soap.encode_call("notify", {"url": TOPIC}))
        self.assertEqual(reply.status, 200)
        self.assertIs(soap.decode_response(reply.body), True)
        self.assertEqual(self.heard, [TOPIC])

    def test_calls_that_make_no_sense_are_faults(self) -> None:
        for body in (
            soap.encode_call("bang", {"url": TOPIC}),
            soap.encode_call("notify", {}),
            soap.encode_call("notify", {"url": 7}),
            soap.encode_call("notify", {"url": [TOPIC, TOPIC]}),
            soap.encode_call("notify", {"url": "http://example.com/"}),
            b"<nonsense/>",
            b"not XML",
        ):
            reply = self.call(body)
            self.assertEqual(reply.status, 500, body)
            self.assertRaises(soap.SoapFault, soap.decode_response, reply.body)
        self.assertEqual(self.heard, [])
