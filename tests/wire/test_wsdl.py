"""zeep reads the WSDL documents; its requests and the codec's responses fit together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import zeep
from lxml import etree
from twisted.trial.unittest import SynchronousTestCase
from zeep.transports import Transport

from rsscloud_broker.wire import soap
from rsscloud_broker.wire.wsdl import RSSCLOUD, WEBLOG_UPDATES, rsscloud_wsdl, weblog_updates_wsdl

CLOUD = "http://broker.example/soap?a=1&b=2"
UPDATES = 'http://broker.example/weblogUpdates?"'


class CodecTransport(Transport):
    """A transport of zeep that answers with the codec, without a network."""

    def __init__(self, document: bytes, answer: Any, fault: str = "") -> None:
        super().__init__()
        self.document = document
        self.answer = answer
        self.fault = fault
        self.calls: list[tuple[str, str, soap.SoapCall]] = []

    def load(self, url: str) -> bytes:
        return self.document

    def post_xml(self, address: str, envelope: Any, headers: dict[str, str]) -> SimpleNamespace:
        call = soap.decode_call(etree.tostring(envelope))
        self.calls.append((address, soap.action_of(headers["SOAPAction"]), call))
        if self.fault:
            status, content = 500, soap.encode_fault("Client", self.fault)
        else:
            status, content = 200, soap.encode_response(call, self.answer, literal=True)
        headers = {"Content-Type": "text/xml; charset=utf-8"}
        return SimpleNamespace(
            status_code=status, content=content, headers=headers, encoding="utf-8"
        )


class RssCloudTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.transport = CodecTransport(rsscloud_wsdl(CLOUD), True)
        self.service = zeep.Client("http://broker.example/soap?wsdl", transport=self.transport)

    def service_called(self, operation: str, *args: Any, **kwargs: Any) -> soap.SoapCall:
        self.assertIs(getattr(self.service.service, operation)(*args, **kwargs), True)
        [(address, action, call)] = self.transport.calls
        self.assertEqual((address, action), (CLOUD, "/rssCloud"))
        self.assertEqual((call.operation, call.namespace), (operation, RSSCLOUD))
        return call

    def test_please_notify(self) -> None:
        urls = ["http://a.example/", "http://b.example/"]
        call = self.service_called("pleaseNotify", "", 5337, "/notify", "http-post", urls)
        expected: dict[str, Any] = {"notifyProcedure": "", "port": "5337", "path": "/notify"}
        expected |= {"protocol": "http-post", "urlList": urls}
        self.assertEqual(call.parameters, expected)

    def test_please_notify_at_a_domain(self) -> None:
        fields = {"notifyProcedure": "updated", "port": "80", "path": "/soap", "protocol": "soap"}
        fields |= {"urlList": "http://a.example/", "domain": "reader.example"}
        self.assertEqual(self.service_called("pleaseNotify", **fields).parameters, fields)

    def test_ping(self) -> None:
        call = self.service_called("ping", "http://a.example/?é=1&x=2")
        self.assertEqual(call.parameters, {"url": "http://a.example/?é=1&x=2"})

    def test_fault(self) -> None:
        self.transport.fault = "No <resources> specified."
        fault = self.assertRaises(zeep.exceptions.Fault, self.service.service.ping, "x")
        self.assertEqual((fault.code, fault.message), ("SOAP-ENV:Client", self.transport.fault))


class WeblogUpdatesTests(SynchronousTestCase):
    def setUp(self) -> None:
        thanks = {"flerror": False, "message": "Thanks for the ping."}
        self.transport = CodecTransport(weblog_updates_wsdl(UPDATES), thanks)
        client = zeep.Client("http://broker.example/weblogUpdates?wsdl", transport=self.transport)
        self.service = client.service

    def assert_answered(self, result: Any, operation: str, parameters: dict[str, Any]) -> None:
        self.assertEqual((result.flerror, result.message), (False, "Thanks for the ping."))
        [(address, action, call)] = self.transport.calls
        self.assertEqual((address, action), (UPDATES, "/weblogUpdates"))
        self.assertEqual(call, soap.SoapCall(operation, WEBLOG_UPDATES, parameters))

    def test_ping(self) -> None:
        result = self.service.ping("Ünser Weblog", "http://a.example/")
        parameters = {"weblogname": "Ünser Weblog", "weblogurl": "http://a.example/"}
        self.assert_answered(result, "ping", parameters)

    def test_extended_ping(self) -> None:
        site = {"weblogname": "A", "weblogurl": "http://a.example/"}
        more = {"changesurl": "http://a.example/new", "rssurl": "http://a.example/feed"}
        for parameters in (site, site | more | {"tags": "one|two"}):
            self.setUp()
            result = self.service.extendedPing(**parameters)
            self.assert_answered(result, "extendedPing", parameters)


class DocumentTests(SynchronousTestCase):
    def test_one_service_each(self) -> None:
        for make, name in ((rsscloud_wsdl, "rssCloud"), (weblog_updates_wsdl, "weblogUpdates")):
            root = etree.fromstring(make("https://x.example/?a&b"))
            (service,) = root.findall("{*}service")
            self.assertEqual(service.get("name"), name)
            (location,) = root.findall(".//{http://schemas.xmlsoap.org/wsdl/soap/}address")
            self.assertEqual(location.get("location"), "https://x.example/?a&b")
