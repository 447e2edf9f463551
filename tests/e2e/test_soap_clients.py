"""SOAP as zeep makes it of the WSDL that a running broker hands out."""

from __future__ import annotations

from typing import Any

import zeep
from zeep.transports import Transport

from tests.e2e.fixture import TIMEOUT, Broker, EndToEndTestCase
from tests.e2e.servers import SoapReceiver


class SoapClientTests(EndToEndTestCase):
    def service(self, broker: Broker, path: str) -> Any:
        transport = Transport(timeout=TIMEOUT, operation_timeout=TIMEOUT)
        transport.session.trust_env = False  # no proxy lies between two ports of this machine
        self.addCleanup(transport.session.close)
        return zeep.Client(f"{broker.url}{path}?wsdl", transport=transport).service


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
        fault = self.assertRaises(zeep.exceptions.Fault, cloud.ping, "")
        self.assertEqual(fault.code, "SOAP-ENV:Client")
        self.assertIn("url", str(fault.message))


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
