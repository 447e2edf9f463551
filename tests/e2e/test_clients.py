"""One client of each protocol, made by others: from a registration to a notification."""

from __future__ import annotations

import json
from typing import Any
from xmlrpc.client import ServerProxy

import zeep
from zeep.transports import Transport

from tests.e2e.fixture import TIMEOUT, Broker, EndToEndTestCase, run
from tests.e2e.programs import output, program
from tests.e2e.servers import HttpPostReceiver, SoapReceiver, XMLRPCReceiver


class CurlTests(EndToEndTestCase):
    def test_from_registration_to_notification(self) -> None:
        broker, curl = self.shared_broker(), [program("curl"), "-s", "-S"]
        origin, receiver = self.origin(), self.served(HttpPostReceiver())
        topic = origin.feed()
        form = f"notifyProcedure=&port={receiver.port}&path=/notify&protocol=http-post"
        said = output([*curl, "-d", f"{form}&url1={topic}", f"{broker.url}/rsscloud/pleaseNotify"])
        self.assertIn('success="true"', said)
        receiver.heard.clear()
        origin.change(topic)
        accept = ("-H", "Accept: application/json")
        said = output([*curl, *accept, "-d", f"url={topic}", f"{broker.url}/ping"])
        self.assertEqual(json.loads(said), {"success": True, "msg": "Thanks for the ping."})
        self.assert_told(receiver, topic)


class CommandTests(EndToEndTestCase):
    """The command of the broker, in processes of its own."""

    def test_ping_by_every_protocol(self) -> None:
        broker, origin = self.shared_broker(), self.origin()
        feed, receiver = origin.feed(), self.served(HttpPostReceiver())
        self.subscribed(broker, receiver, feed)
        for what in ([feed], ["--name", "A Site", "--url", "http://a.example/", "--rss", feed]):
            for protocol in ("rest", "xml-rpc", "soap"):
                origin.change(feed)
                how = ("--broker", broker.url, "--protocol", protocol)
                done = run("rsscloud-broker", "ping", *what, *how)
                self.assertEqual((done.returncode, done.stderr), (0, ""), (what[0], protocol))
                self.assert_told(receiver, feed)


class StandardLibraryTests(EndToEndTestCase):
    """XML-RPC as the standard library of Python speaks it."""

    def test_from_registration_to_notification(self) -> None:
        broker = self.shared_broker()
        origin, receiver = self.origin(), self.served(XMLRPCReceiver())
        proxy = ServerProxy(f"{broker.url}/RPC2")
        self.addCleanup(proxy("close"))
        cloud: Any = proxy.rssCloud
        topics = [origin.feed("/one.xml"), origin.feed("/two.xml")]
        where = (receiver.procedure, receiver.port, receiver.path, "xml-rpc", topics)
        self.assertIs(cloud.pleaseNotify(*where), True)
        # The broker has made its test calls before it agrees.
        self.assertEqual(sorted(receiver.heard), topics)
        receiver.heard.clear()

        self.assertIs(cloud.ping(topics[0]), True)  # nothing has changed
        for topic in topics:
            origin.change(topic)
            self.assertIs(cloud.ping(topic), True)
            self.assert_told(receiver, topic)


class ZeepTests(EndToEndTestCase):
    """SOAP as zeep makes it of the WSDL that a running broker hands out."""

    def service(self, broker: Broker, path: str) -> Any:
        transport = Transport(timeout=TIMEOUT, operation_timeout=TIMEOUT)
        transport.session.trust_env = False  # no proxy lies between two ports of this machine
        self.addCleanup(transport.session.close)
        return zeep.Client(f"{broker.url}{path}?wsdl", transport=transport).service

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

    def test_pings_are_listed(self) -> None:
        broker = self.running_broker()
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
