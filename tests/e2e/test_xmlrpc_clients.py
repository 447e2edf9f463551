"""XML-RPC as the standard library of Python speaks it, against a running broker."""

from __future__ import annotations

from typing import Any
from xmlrpc.client import Fault, MultiCall, ServerProxy

from tests.e2e.fixture import Broker, EndToEndTestCase
from tests.e2e.servers import XMLRPCReceiver

#: Where blog engines send their pings.
PATHS = "/ /RPC2 /rpc2 /RPC /rpc /rpc/ping /ping/RPC2 /ping /ping/ /xmlrpc.php /weblogUpdates /soap"


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

    def test_every_path(self) -> None:
        broker = self.shared_broker()
        for path in PATHS.split():
            with self.subTest(path):
                updates = self.proxy(broker, path).weblogUpdates
                self.assert_thanked(updates.ping(path, f"http://site.example{path}"))

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

    def test_latin1(self) -> None:
        broker = self.own_broker()
        broker.start()
        proxy = self.proxy(broker, encoding="iso-8859-1")
        self.assert_thanked(proxy.weblogUpdates.ping("Café Zürich", "http://site.example/"))
        broker.restart()
        self.assert_listed(broker, {"name": "Café Zürich"})

    def test_refusals(self) -> None:
        updates = self.proxy(self.shared_broker()).weblogUpdates
        for name, url, reason in (
            ("", "http://site.example/", "the weblog name must not be empty"),
            ("x" * 1025, "http://site.example/", "the weblogName was too long"),
            ("A", "http://site.example/" + "x" * 255, "the weblogUrl was too long"),
            ("A", "javascript:alert(1)", "the URL must begin with http:// or https://"),
        ):
            with self.subTest(reason):
                answer: Any = updates.ping(name, url)
                self.assertIs(answer["flerror"], True)
                self.assertIn(reason, answer["message"])

    def test_faults(self) -> None:
        updates = self.proxy(self.shared_broker()).weblogUpdates
        for parameters in (("A",), ("A", "http://a.example/", "", "", ""), ("A", True)):
            with self.subTest(parameters):
                self.fault_of(updates.ping, *parameters)


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

    def test_old_names(self) -> None:
        broker = self.shared_broker()
        origin, receiver = self.origin(), self.served(XMLRPCReceiver())
        old = self.proxy(broker).xmlStorageSystem
        topic = origin.feed()
        for register in (old.rssPleaseNotify, old.requestNotification):
            # The port as a string, one topic without an array, our own domain.
            where = (receiver.procedure, str(receiver.port), receiver.path, "xml-rpc", topic)
            self.assertIs(register(*where, "127.0.0.1"), True)
        self.assertIs(old.requestNotification("a", 1, "/", "xml-rpc", topic), False)
        self.fault_of(old.requestNotification, "a")

    def test_ping_of_what_cannot_be_read(self) -> None:
        topic = self.origin().url("/nothing.xml")
        self.assertIs(self.proxy(self.shared_broker()).rssCloud.ping(topic), True)

    def test_faults(self) -> None:
        broker = self.shared_broker()
        cloud = self.proxy(broker).rssCloud
        origin, receiver = self.origin(), self.served(XMLRPCReceiver())
        where = (receiver.port, receiver.path)
        for call, reason in (
            ((cloud.ping,), "enough parameters"),
            ((cloud.ping, "http://a.example/", "b"), "too many parameters"),
            ((cloud.pleaseNotify, "x", 80), "enough parameters"),
            ((cloud.nonsense, 1), '"rssCloud.nonsense" is not defined'),
            ((self.proxy(broker).nonsense,), '"nonsense" is not defined'),
            (
                (cloud.pleaseNotify, "x", *where, "smoke", [origin.feed()]),
                "the protocol, <i>smoke</i>, is unsupported",
            ),
            ((cloud.pleaseNotify, "x", *where, "xml-rpc", []), "No resources specified."),
            (
                (cloud.pleaseNotify, "x", *where, "xml-rpc", [origin.url("/nothing.xml")]),
                "there was an error reading the resource at URL",
            ),
            (
                (cloud.pleaseNotify, "no.such.one", *where, "xml-rpc", [origin.feed()]),
                "the call failed when we tested the handler",
            ),
        ):
            with self.subTest(reason):
                fault = self.fault_of(*call)
                self.assertEqual(fault.faultCode, 4)
                self.assertIn(reason, fault.faultString)
        self.assertEqual(receiver.heard, [])


class SystemTests(XMLRPCClientTests):
    def test_introspection(self) -> None:
        system = self.proxy(self.shared_broker()).system
        names: Any = system.listMethods()
        for name in ("rssCloud.ping", "weblogUpdates.extendedPing", "system.multicall"):
            self.assertIn(name, names)
        for name in names:
            with self.subTest(name):
                self.assertNotEqual(system.methodHelp(name), "")
                signatures: Any = system.methodSignature(name)
                self.assertIsInstance(signatures[0][0], str)

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
