"""SOAP and XML-RPC as clients of other languages speak them, against a running broker.

Each client is a script in ``clients`` that makes many calls and prints the answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from json import loads
from pathlib import Path
from typing import Any

from attrs import frozen

from tests.e2e.fixture import Broker, EndToEndTestCase, until
from tests.e2e.programs import NODE_MODULES, node, output, perl, php
from tests.e2e.servers import HttpPostReceiver, Origin

CLIENTS = Path(__file__).with_name("clients")

THANKS = "Thanks for the ping."
NO_NAME = "Can't accept the ping because the weblog name must not be empty."
UNSUPPORTED = "the protocol, <i>smoke</i>, is unsupported"


@frozen
class Said:
    """How a call ended, as the client's language has it.

    :ivar answer: what the broker answered; None if that was a fault.
    :ivar fault: code and text of the fault; None if there was none.
    """

    answer: Any
    fault: str | None


class Subscriber(HttpPostReceiver):
    """A subscriber of a feed that changes whenever its subscriber was called.

    So each ping that follows a registration tells of a change.
    """

    def __init__(self, origin: Origin) -> None:
        super().__init__()
        self._origin = origin

    def hear(self, topic: str) -> None:
        super().hear(topic)
        self._origin.change(topic)


class ForeignClientTests(EndToEndTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.origin_of_feeds = self.origin()
        self.feed = self.origin_of_feeds.feed()
        self.subscriber = self.served(Subscriber(self.origin_of_feeds))

    def calls(self, broker: Broker, command: Sequence[str], **variables: str) -> dict[str, Said]:
        """How each call of a client ended, by its name."""
        arguments = [broker.url, self.feed, str(self.subscriber.port)]
        printed = output([*command, *arguments], **variables)
        return {
            name: Said(answer, fault) for name, answer, fault in map(loads, printed.splitlines())
        }

    def assert_thanked(self, said: Said, *, no: object = False) -> None:
        """A ping of a weblog was taken in.

        :param no: what the client makes of the boolean that is false.
        """
        self.assertEqual(said, Said({"flerror": no, "message": THANKS}, None))

    def assert_refused(self, said: Said, *, yes: object = True) -> None:
        """A ping of a weblog without a name was refused."""
        self.assertEqual(said, Said({"flerror": yes, "message": NO_NAME}, None))

    def assert_fault(self, said: Said, code: str, reason: str = UNSUPPORTED) -> None:
        self.assertIsNone(said.answer)
        self.assertTrue(str(said.fault).startswith(f"{code}: "), said)
        self.assertIn(reason, str(said.fault))

    def assert_told_of(self, *queries: str) -> None:
        """The subscriber was called to verify each subscription, and then told of a change."""
        topics = [f"{self.feed}{query}" for query in queries]

        def calls() -> list[int]:
            heard = Counter(self.subscriber.heard)
            return [heard[topic] for topic in topics]

        until(lambda: min(calls()) >= 2, "notifications")
        self.assertEqual(calls(), [2] * len(topics))


class PHPTests(ForeignClientTests):
    def test_soap_client(self) -> None:
        command = php(CLIENTS / "soap_client.php")
        broker = self.running_broker()
        said = self.calls(broker, command)
        for ping in ("wsdl weblog", "wsdl weblog extended", "nameless weblog", "named weblog"):
            self.assert_thanked(said[ping])
        self.assert_refused(said["wsdl weblog refused"])
        for kind in ("wsdl", "nameless", "named"):
            self.assertIs(said[f"{kind} register"].answer, True)
            self.assertIs(said[f"{kind} ping"].answer, True)
        self.assert_fault(said["wsdl fault"], "SOAP-ENV:Client")
        for kind in ("nameless", "named"):
            self.assert_fault(said[f"{kind} fault"], "SOAP-ENV:Client", '"nonsense" is not defined')
        self.assert_told_of("?wsdl", "?nameless", "?named")
        broker.restart()
        self.assert_listed(
            broker,
            {"name": "PHP Café ☕", "url": "http://php.example/"},
            {"name": "PHP mit Feed", "rssUrl": self.feed},
            {"name": "PHP ☕ nameless"},
            {"name": "PHP ☕ named"},
        )


class PerlTests(ForeignClientTests):
    def test_soap_lite(self) -> None:
        command = perl(CLIENTS / "soap_lite.pl", "SOAP::Lite")
        broker = self.running_broker()
        said = self.calls(broker, command)
        # By a WSDL of the document/literal style SOAP::Lite leaves all values as they are.
        self.assert_thanked(said["wsdl weblog"], no="false")
        self.assert_thanked(said["wsdl weblog extended"], no="false")
        self.assert_refused(said["wsdl weblog refused"], yes="true")
        self.assertEqual(said["wsdl register"], Said("true", None))
        self.assertEqual(said["wsdl ping"], Said("true", None))
        self.assert_fault(said["wsdl fault"], "SOAP-ENV:Client")
        for kind in ("nameless", "named"):
            for ping in ("weblog", "weblog latin-1", "weblog number"):
                self.assert_thanked(said[f"{kind} {ping}"], no=0)
            self.assertEqual(said[f"{kind} register"], Said(1, None))
            self.assertEqual(said[f"{kind} ping"], Said(1, None))
            self.assert_fault(said[f"{kind} fault"], "SOAP-ENV:Client", '"nonsense" is not defined')
        self.assert_told_of("?wsdl", "?nameless", "?named")
        broker.restart()
        self.assert_listed(
            broker,
            {"name": "Perl Café ☕", "url": "http://perl.example/"},
            {"name": "Perl with a feed", "rssUrl": self.feed},
            *({"name": f"Perl ☕ {kind}"} for kind in ("nameless", "named")),
            *({"name": f"Café {kind}"} for kind in ("nameless", "named")),
            *({"name": year} for year in ("2001", "1984")),
        )

    def test_xmlrpc_lite(self) -> None:
        command = perl(CLIENTS / "xmlrpc_lite.pl", "XMLRPC::Lite")
        broker = self.running_broker()
        said = self.calls(broker, command)
        for ping in ("weblog", "weblog latin-1", "weblog number", "weblog extended"):
            self.assert_thanked(said[ping], no="0")
        self.assert_refused(said["weblog refused"], yes="1")
        self.assertEqual(said["register"], Said("1", None))
        self.assertEqual(said["ping"], Said("1", None))
        self.assert_fault(said["fault"], "4")
        self.assert_told_of("")
        broker.restart()
        self.assert_listed(
            broker,
            {"name": "Perl ☕ XML-RPC", "url": "http://perl.example/"},
            {"name": "Café XML-RPC"},
            {"name": "1999"},
            {"name": "XML-RPC with a feed", "rssUrl": self.feed},
        )


class NodeTests(ForeignClientTests):
    def test_soap(self) -> None:
        self.check(node(CLIENTS / "soap_client.js", "soap"), "SOAP-ENV:Client", "Node")

    def test_xmlrpc(self) -> None:
        self.check(node(CLIENTS / "xmlrpc_client.js", "xmlrpc"), "4", "Node XML-RPC")

    def check(self, command: Sequence[str], fault_code: str, name: str) -> None:
        """The calls of one of the two scripts, which are the same."""
        broker = self.running_broker()
        said = self.calls(broker, command, NODE_PATH=str(NODE_MODULES))
        self.assert_thanked(said["weblog"])
        self.assert_thanked(said["weblog extended"])
        self.assert_refused(said["weblog refused"])
        self.assertEqual(said["register"], Said(True, None))
        self.assertEqual(said["ping"], Said(True, None))
        self.assert_fault(said["fault"], fault_code)
        self.assert_told_of("")
        broker.restart()
        self.assert_listed(
            broker,
            {"name": f"{name} Café ☕", "url": "http://node.example/"},
            {"name": f"{name} with a feed", "rssUrl": self.feed},
        )
