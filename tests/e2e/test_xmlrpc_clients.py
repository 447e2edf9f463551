"""XML-RPC as the standard library of Python speaks it, against a running broker."""

from __future__ import annotations

from typing import Any
from xmlrpc.client import Fault, MultiCall, ServerProxy

from tests.e2e.fixture import Broker, EndToEndTestCase
from tests.e2e.servers import XMLRPCReceiver


class XMLRPCClientTests(EndToEndTestCase):
    def proxy(self, broker: Broker, path: str = "/RPC2", **options: Any) -> Any:
        proxy = ServerProxy(f"{broker.url}{path}", **options)
        self.addCleanup(proxy("close"))
        return proxy

    def fault_of(self, *call: Any) -> Fault:
        fault: Fault = self.assertRaises(Fault, *call)
        return fault


class PingTests(XMLRPCClientTests):
    def assert_thanked(self, answer: Any) -> None:
        self.assertEqual(answer, {"flerror": False, "message": "Thanks for the ping."})

    def test_every_kind_is_listed(self) -> None:
        broker = self.own_broker()
        broker.start()
        updates = self.proxy(broker).weblogUpdates
        home = "http://site.example/"
        self.assert_thanked(updates.ping("Two", home))
        self.assert_thanked(updates.ping("Three", home, f"{home}new"))
        self.assert_thanked(updates.ping("Four", home, f"{home}new", "news"))
        self.assert_thanked(updates.extendedPing("WordPress", home, f"{home}feed/"))
        self.assert_thanked(updates.extendedPing("Extended", home, "", f"{home}rss", "one|two"))
        self.assert_thanked(updates.extendedPing("Untagged", home, f"{home}new", f"{home}rss"))
        self.assert_thanked(updates.rssUpdate("A <Feed> & “more”", f"{home}rss?a=1&b=2"))
        self.assert_thanked(updates.ping("Two", home))  # again: one record is kept

        broker.restart()
        self.assert_listed(
            broker,
            {"name": "Two", "url": home},
            {"name": "Three", "url": home},
            {"name": "Four", "url": home},
            {"name": "WordPress", "url": home, "rssUrl": f"{home}feed/"},
            {"name": "Extended", "url": home, "rssUrl": f"{home}rss"},
            {"name": "Untagged", "url": home, "rssUrl": f"{home}rss"},
            {"name": "A <Feed> & “more”", "rssUrl": f"{home}rss?a=1&b=2"},
        )
        self.assertEqual(len(broker.change_list()), 7)


class RssCloudTests(XMLRPCClientTests):
    def test_from_registration_to_notification(self) -> None:
        broker = self.shared_broker()
        origin, receiver = self.origin(), self.served(XMLRPCReceiver())
        cloud = self.proxy(broker).rssCloud
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


class SystemTests(XMLRPCClientTests):
    def test_multicall(self) -> None:
        calls = MultiCall(self.proxy(self.shared_broker()))
        calls.rssCloud.hello()
        calls.weblogUpdates.ping("Multi", "http://multi.example/")
        calls.no.such.thing()
        calls.weblogUpdates.ping("", "http://multi.example/")
        results: Any = calls()
        self.assertIs(results[0], True)
        self.assertIs(results[1]["flerror"], False)
        self.assertIn("is not defined", self.fault_of(results.__getitem__, 2).faultString)
        self.assertIs(results[3]["flerror"], True)
