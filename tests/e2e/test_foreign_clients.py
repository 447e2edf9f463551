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

from tests.e2e.fixture import EndToEndTestCase, until
from tests.e2e.programs import NODE_MODULES, node, output, perl, php
from tests.e2e.servers import HttpPostReceiver, Origin

CLIENTS = Path(__file__).with_name("clients")

THANKS = "Thanks for the ping."
NO_NAME = "Can't accept the ping because the weblog name must not be empty."
UNSUPPORTED = "the protocol, <i>smoke</i>, is unsupported"
NONSENSE = '"nonsense" is not defined'


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

    def call(self, command: Sequence[str], **variables: str) -> None:
        """Run a client, and keep how each of its calls ended, by its name."""
        self.broker = self.running_broker()
        arguments = [self.broker.url, self.feed, str(self.subscriber.port)]
        printed = output([*command, *arguments], **variables)
        self.said = {
            name: Said(answer, fault) for name, answer, fault in map(loads, printed.splitlines())
        }

    def check(
        self,
        *pings: str,
        kind: str = "",
        booleans: tuple[object, object],
        code: str = "SOAP-ENV:Client",
        reason: str = UNSUPPORTED,
    ) -> None:
        """The calls of one kind: pings that are taken in, a registration, a ping, and a fault.

        :param pings: of weblogs, which are thanked for; one that is ``refused`` has no name.
        :param booleans: what the client makes of false and true.
        """
        no, yes = booleans
        for ping in pings:
            flag, message = (yes, NO_NAME) if ping.endswith("refused") else (no, THANKS)
            expected = Said({"flerror": flag, "message": message}, None)
            self.assertEqual(self.said[f"{kind}{ping}"], expected)
        for name in ("register", "ping"):
            said = self.said[f"{kind}{name}"]
            self.assertEqual((type(said.answer), said), (type(yes), Said(yes, None)))
        said = self.said[f"{kind}fault"]
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

    def assert_listed_at_restart(self, *wanted: dict[str, str]) -> None:
        """The change list that the broker makes when it starts has these records."""
        self.broker.restart()
        self.assert_listed(self.broker, *wanted)


class SoapTests(ForeignClientTests):
    """By the WSDL, and by calls whose parameters are nameless or named."""

    def test_php(self) -> None:
        self.call(php(CLIENTS / "soap_client.php"))
        pings, booleans = ("weblog", "weblog extended", "weblog refused"), (False, True)
        self.check(*pings, kind="wsdl ", booleans=booleans)
        for kind in ("nameless ", "named "):
            self.check("weblog", kind=kind, booleans=booleans, reason=NONSENSE)
        self.assert_told_of("?wsdl", "?nameless", "?named")
        self.assert_listed_at_restart(
            {"name": "PHP Café ☕", "url": "http://php.example/"},
            {"name": "PHP mit Feed", "rssUrl": self.feed},
            {"name": "PHP ☕ nameless"},
            {"name": "PHP ☕ named"},
        )

    def test_perl(self) -> None:
        self.call(perl(CLIENTS / "soap_lite.pl", "SOAP::Lite"))
        # By a WSDL of the document/literal style SOAP::Lite leaves all values as they are.
        pings, texts = ("weblog", "weblog extended", "weblog refused"), ("false", "true")
        self.check(*pings, kind="wsdl ", booleans=texts)
        pings = ("weblog", "weblog latin-1", "weblog number")
        for kind in ("nameless ", "named "):
            self.check(*pings, kind=kind, booleans=(0, 1), reason=NONSENSE)
        self.assert_told_of("?wsdl", "?nameless", "?named")
        self.assert_listed_at_restart(
            {"name": "Perl Café ☕", "url": "http://perl.example/"},
            {"name": "Perl with a feed", "rssUrl": self.feed},
            *({"name": f"Perl ☕ {kind}"} for kind in ("nameless", "named")),
            *({"name": f"Café {kind}"} for kind in ("nameless", "named")),
            *({"name": year} for year in ("2001", "1984")),
        )


class OneKindTests(ForeignClientTests):
    """Clients that call in one way only."""

    def test_perl_by_xml_rpc(self) -> None:
        self.call(perl(CLIENTS / "xmlrpc_lite.pl", "XMLRPC::Lite"))
        pings = ("weblog", "weblog latin-1", "weblog number", "weblog extended", "weblog refused")
        self.check(*pings, booleans=("0", "1"), code="4")
        self.assert_told_of("")
        self.assert_listed_at_restart(
            {"name": "Perl ☕ XML-RPC", "url": "http://perl.example/"},
            {"name": "Café XML-RPC"},
            {"name": "1999"},
            {"name": "XML-RPC with a feed", "rssUrl": self.feed},
        )

    def check_node(self, script: str, package: str, code: str, name: str) -> None:
        """The calls of one of two scripts, which are the same."""
        self.call(node(CLIENTS / script, package), NODE_PATH=str(NODE_MODULES))
        pings = ("weblog", "weblog extended", "weblog refused")
        self.check(*pings, booleans=(False, True), code=code)
        self.assert_told_of("")
        self.assert_listed_at_restart(
            {"name": f"{name} Café ☕", "url": "http://node.example/"},
            {"name": f"{name} with a feed", "rssUrl": self.feed},
        )

    def test_node_by_soap(self) -> None:
        self.check_node("soap_client.js", "soap", "SOAP-ENV:Client", "Node")

    def test_node_by_xml_rpc(self) -> None:
        self.check_node("xmlrpc_client.js", "xmlrpc", "4", "Node XML-RPC")
