"""SOAP as zeep makes it of the WSDL that a running broker hands out."""

from __future__ import annotations

from typing import Any

import zeep
from zeep.transports import Transport

from tests.e2e.fixture import TIMEOUT, Broker, EndToEndTestCase, request
from tests.e2e.servers import HttpPostReceiver, SoapReceiver


class SoapClientTests(EndToEndTestCase):
    def service(self, broker: Broker, path: str) -> Any:
        transport = Transport(timeout=TIMEOUT, operation_timeout=TIMEOUT)
        transport.session.trust_env = False  # no proxy lies between two ports of this machine
        self.addCleanup(transport.session.close)
        return zeep.Client(f"{broker.url}{path}?wsdl", transport=transport).service

    def fault_of(self, operation: Any, *parameters: Any) -> str:
        fault = self.assertRaises(zeep.exceptions.Fault, operation, *parameters)
        self.assertEqual(fault.code, "SOAP-ENV:Client")
        return str(fault.message)


class DescriptionTests(EndToEndTestCase):
    def test_where_the_wsdl_is(self) -> None:
        broker = self.shared_broker()
        for path in ("/soap", "/rssCloud", "/weblogUpdates"):
            with self.subTest(path):
                answer = request(f"{broker.url}{path}?wsdl")
                self.assertEqual(answer.status, 200)
                self.assertIn(f':{broker.port}{path}"', answer.text)


class RssCloudTests(SoapClientTests):
    def test_from_registration_to_notification(self) -> None:
        broker = self.shared_broker()
        origin, receiver = self.origin(), self.served(SoapReceiver())
        cloud = self.service(broker, "/soap")
        topics = [origin.feed("/one.xml"), origin.feed("/two.xml?é=1&b=2")]
        registered = cloud.pleaseNotify(
            receiver.procedure, receiver.port, receiver.path, "soap", topics
        )
        self.assertIs(registered, True)
        self.assertEqual(sorted(receiver.heard), sorted(topics))
        receiver.heard.clear()
        origin.change(topics[0])
        self.assertIs(cloud.ping(topics[0]), True)
        self.assert_told(receiver, topics[0])

    def test_with_a_domain(self) -> None:
        origin, receiver = self.origin(), self.served(HttpPostReceiver())
        cloud = self.service(self.shared_broker(), "/soap")
        registered = cloud.pleaseNotify(
            notifyProcedure="",
            port=receiver.port,
            path=receiver.path,
            protocol="http-post",
            urlList=[origin.feed()],
            domain="127.0.0.1",
        )
        self.assertIs(registered, True)
        self.assertEqual((receiver.challenged, receiver.heard), ([origin.url("/rss.xml")], []))

    def test_faults(self) -> None:
        cloud = self.service(self.shared_broker(), "/soap")
        origin, receiver = self.origin(), self.served(SoapReceiver())
        where = (receiver.port, receiver.path)
        topic, nothing = origin.feed(), origin.url("/nothing.xml")
        for parameters, reason in (
            (("x", *where, "smoke", [topic]), "the protocol, <i>smoke</i>, is unsupported"),
            (("x", *where, "soap", [nothing]), "an error reading the resource at URL"),
            (("x", receiver.port, "/wrong", "soap", [topic]), "we tested the handler"),
            (("x", "nonsense", "/", "soap", [topic]), "port"),
        ):
            with self.subTest(reason):
                self.assertIn(reason, self.fault_of(cloud.pleaseNotify, *parameters))
        self.assertIn("url", self.fault_of(cloud.ping, ""))


class WeblogUpdatesTests(SoapClientTests):
    def test_pings_are_listed(self) -> None:
        broker = self.own_broker()
        broker.start()
        updates = self.service(broker, "/weblogUpdates")
        home = "http://site.example/"
        for answer in (
            updates.ping("Ünser Weblog", home),
            updates.extendedPing("Extended", home, f"{home}new", f"{home}rss", "one|two"),
            updates.extendedPing(weblogname="Bare", weblogurl=home),
        ):
            self.assertEqual((answer.flerror, answer.message), (False, "Thanks for the ping."))
        broker.restart()
        self.assert_listed(
            broker,
            {"name": "Ünser Weblog", "url": home},
            {"name": "Extended", "url": home, "rssUrl": f"{home}rss"},
            {"name": "Bare", "url": home},
        )

    def test_refusals(self) -> None:
        updates = self.service(self.shared_broker(), "/weblogUpdates")
        answer = updates.ping("", "http://site.example/")
        self.assertIs(answer.flerror, True)
        self.assertIn("the weblog name must not be empty", answer.message)
