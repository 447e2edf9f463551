"""rssCloud by XML-RPC and SOAP: results, faults, and which service answers a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rsscloud_broker.http.xmlrpc import MAX_CALLS
from rsscloud_broker.wire.wsdl import RSSCLOUD
from rsscloud_broker.wire.xmlrpc import INVALID_PARAMS, INVALID_REQUEST
from tests.front_doors.exchange import envelope
from tests.front_doors.fixture import FEED, HouseTestCase

REGISTRATION: list[Any] = ["", 5337, "/notify", "http-post", [FEED]]
FIELDS = {"notifyProcedure": "", "port": "5337", "path": "/notify", "protocol": "http-post"}
MISSING = "http://feeds.example/missing.xml"
OLD_NAMES = ("xmlStorageSystem.rssPleaseNotify", "xmlStorageSystem.requestNotification")


class XMLRPCTests(HouseTestCase):
    def test_please_notify(self) -> None:
        for values in ((), ("",), ("r.example",)):
            self.assertIs(self.house.xmlrpc("rssCloud.pleaseNotify", *REGISTRATION, *values), True)
        urls = [subscription.callback.url for subscription in self.house.subscriptions()]
        self.assertEqual(urls, ["http://192.0.2.7:5337/notify", "http://r.example:5337/notify"])

    def test_old_names(self) -> None:
        for name in OLD_NAMES:
            self.assertIs(self.house.xmlrpc(name, *REGISTRATION), True)
        self.assertEqual(len(self.house.subscriptions()), 1)

    def test_registrations_that_fail(self) -> None:
        """The answer is fault 4 with the REST interface's sentence, or false for the old names."""
        cancelled = "The subscription was cancelled because "
        unreadable = f"{cancelled}there was an error reading the resource at URL {MISSING}."
        failed = f"{cancelled}the call failed when we tested the handler."
        table: list[tuple[list[Any], str]] = [
            (["", 5337, "/notify", "http-post", []], "No resources specified."),
            (["", 5337, "/notify", "http-post", [MISSING]], unreadable),
            (["", 5338, "/notify", "http-post", [FEED]], failed),
        ]
        self.house.subscribers.deaf = {"http://192.0.2.7:5338/notify"}
        before = self.house.stored()
        for values, sentence in table:
            self.assertEqual(self.house.fault("rssCloud.pleaseNotify", *values), (4, sentence))
            for name in OLD_NAMES:
                self.assertIs(self.house.xmlrpc(name, *values), False)
        self.assertEqual(self.house.stored(), before)

    def test_wrong_parameters(self) -> None:
        """They are faults by the old names too."""
        number = 'Can\'t call "{}" because there {} parameters.'
        wrong = ["", True, *REGISTRATION[2:]]
        table: list[tuple[str, list[Any], str]] = [
            ("rssCloud.pleaseNotify", [""], number.format("pleaseNotify", "aren't enough")),
            ("rssCloud.ping", [FEED, FEED], number.format("ping", "are too many")),
            (OLD_NAMES[0], [""], number.format("rssPleaseNotify", "aren't enough")),
            (OLD_NAMES[1], [*"1234567"], number.format("requestNotification", "are too many")),
            ("rssCloud.ping", [[FEED]], "The parameter url must be a string."),
            ("rssCloud.pleaseNotify", wrong, "The parameter port must be a string."),
            *((name, wrong, "The parameter port must be a string.") for name in OLD_NAMES),
        ]
        for method, values, sentence in table:
            self.assertEqual(self.house.fault(method, *values), (4, sentence))

    def test_ping_is_true_whatever_comes_of_it(self) -> None:
        for url in (FEED, MISSING, "", "javascript:alert(1)"):
            self.assertIs(self.house.xmlrpc("rssCloud.ping", url), True)

    def test_unknown_procedures(self) -> None:
        """What Python calls procedures is not offered."""
        for name in (
            *("rssCloud.nothing", "nothing", "no.thing", "rssCloud.", ".ping", "x" * 250),
            *("rssCloud.__init__", "__init__", "system.putSubHandler", "lookupProcedure"),
        ):
            sentence = f'Can\'t make the call because "{name[:200]}" is not defined.'
            self.assertEqual(self.house.fault(name), (4, sentence))


class IntrospectionTests(HouseTestCase):
    def test_list_methods(self) -> None:
        names = {
            "rssCloud": ("hello", "ping", "pleaseNotify"),
            "system": ("listMethods", "methodHelp", "methodSignature", "multicall"),
            "weblogUpdates": ("extendedPing", "ping", "rssUpdate"),
            "xmlStorageSystem": ("requestNotification", "rssPleaseNotify"),
        }
        expected = [f"{prefix}.{name}" for prefix, those in names.items() for name in those]
        self.assertEqual(sorted(self.house.xmlrpc("system.listMethods")), expected)

    def test_every_procedure_has_help_and_a_signature(self) -> None:
        for name in self.house.xmlrpc("system.listMethods"):
            self.assertTrue(self.house.xmlrpc("system.methodHelp", name).strip(), name)
            for signature in self.house.xmlrpc("system.methodSignature", name):
                self.assertTrue(all(isinstance(part, str) for part in signature), name)

    def test_signatures(self) -> None:
        one = ["boolean", "string", "int", "string", "string", "array"]
        found = self.house.xmlrpc("system.methodSignature", "rssCloud.pleaseNotify")
        self.assertEqual(found, [one, [*one, "string"]])

    def test_help_for_what_is_not_there(self) -> None:
        wrong: list[list[Any]] = [[], ["a", "b"], [5], [["rssCloud.ping"]], [{"a": "b"}]]
        for asked in ("system.methodHelp", "system.methodSignature"):
            sentence = 'Can\'t make the call because "no.thing" is not defined.'
            self.assertEqual(self.house.fault(asked, "no.thing"), (4, sentence))
            for params in wrong:
                self.assertEqual(self.house.fault(asked, *params)[0], INVALID_PARAMS, params)


class MulticallTests(HouseTestCase):
    def multicall(self, *calls: object) -> list[object]:
        answers: list[object] = self.house.xmlrpc("system.multicall", list(calls))
        return answers

    def test_results_and_faults_side_by_side(self) -> None:
        answers = self.multicall(
            {"methodName": "weblogUpdates.ping", "params": ["A", "http://a.example/"]},
            {"methodName": "no.thing", "params": []},
            {"methodName": "rssCloud.ping", "params": [FEED]},
        )
        sentence = 'Can\'t make the call because "no.thing" is not defined.'
        thanks = {"flerror": False, "message": "Thanks for the ping."}
        fault = {"faultCode": 4, "faultString": sentence}
        self.assertEqual(answers, [[thanks], fault, [True]])
        self.assertEqual([ping.name for ping in self.house.pings()], ["A", FEED])

    def test_calls_that_are_none(self) -> None:
        nested = {"methodName": "system.multicall", "params": [[]]}
        for call in (nested, "x", {}, {"methodName": "x"}, {"methodName": 5, "params": []}, [1]):
            (answer,) = self.multicall(call)
            assert isinstance(answer, dict)
            self.assertEqual(answer["faultCode"], INVALID_REQUEST, call)

    def test_as_many_calls_as_may_be(self) -> None:
        hello = {"methodName": "rssCloud.hello", "params": []}
        self.assertEqual(self.multicall(*[hello] * MAX_CALLS), [[True]] * MAX_CALLS)
        code, sentence = self.house.fault("system.multicall", [hello] * (MAX_CALLS + 1))
        self.assertEqual(code, INVALID_PARAMS)
        self.assertIn(str(MAX_CALLS), sentence)

    def test_wants_one_array(self) -> None:
        wrong: list[list[Any]] = [[], ["x"], [{}], [[], []]]
        for params in wrong:
            self.assertEqual(self.house.fault("system.multicall", *params)[0], INVALID_PARAMS)


class SoapTests(HouseTestCase):
    def test_please_notify(self) -> None:
        fields = {**FIELDS, "urlList": [FEED]}
        answer = self.house.soap("pleaseNotify", fields, peer="2001:db8::1")
        self.assertIs(self.house.result(answer), True)
        (subscription,) = self.house.subscriptions()
        self.assertEqual(subscription.callback.url, "http://[2001:db8::1]:5337/notify")

    def test_actions_and_namespaces(self) -> None:
        for action in ('"/rssCloud"', "/rssCloud", '"/xmlStorageSystem"', '""', "", None):
            for namespace in ("", "urn:somebody:else"):
                answer = self.house.soap("ping", {"url": FEED}, action=action, namespace=namespace)
                self.assertIs(self.house.result(answer), True)
                self.assertIn(f'xmlns:m="{namespace}"' if namespace else "<ping", answer.text)

    def test_paths_and_content_types(self) -> None:
        for path in ("/soap", "/rssCloud", "/xmlStorageSystem", "/RPC2", "/"):
            for kind in ("text/xml", "application/x-www-form-urlencoded", "nonsense", ""):
                document, headers = envelope("ping", {"url": FEED}), {"Content-Type": kind}
                answer = self.house.ask("POST", path, document, headers)
                self.assertIs(self.house.result(answer), True)

    def test_old_names(self) -> None:
        for name in ("rssPleaseNotify", "requestNotification"):
            for topic in (FEED, MISSING):
                members = {**FIELDS, "urlList": [topic]}
                answer = self.house.soap(name, members, action='"/xmlStorageSystem"')
                self.assertIs(self.house.result(answer), topic is FEED)
            malformed: list[Mapping[str, str | Sequence[str]]] = [
                FIELDS,
                {**FIELDS, "port": ["80"], "urlList": [FEED]},
            ]
            for one in malformed:
                answer = self.house.soap(name, one, action='"/xmlStorageSystem"')
                self.assertEqual(self.house.soap_fault(answer)[0], "Client")

    def test_a_ping_of_a_feed_and_a_ping_of_a_weblog(self) -> None:
        """Both are called ping: SOAPAction, path and parameters decide, in this order."""
        feed = {"url": FEED}
        weblog = {"weblogname": "A", "weblogurl": "http://a.example/"}
        thanks = {"flerror": False, "message": "Thanks for the ping."}
        table: list[tuple[dict[str, str], str, str | None, object]] = [
            (feed, "/soap", None, True),
            (weblog, "/soap", None, thanks),
            (feed, "/RPC2", '"http://elsewhere.example/x"', True),
            (weblog, "/RPC2", '"http://elsewhere.example/x"', thanks),
            (weblog, "/rssCloud", '"/weblogUpdates"', thanks),
            (feed, "/weblogUpdates", "/rssCloud", True),
            (weblog, "/weblogUpdates", None, thanks),
            (feed, "/rssCloud", '""', True),
        ]
        for members, path, action, result in table:
            answer = self.house.soap("ping", members, path=path, action=action)
            self.assertEqual(self.house.result(answer), result, (path, action))

    def test_ping_is_true_whatever_comes_of_it(self) -> None:
        for url in (FEED, MISSING, "javascript:alert(1)"):
            self.assertIs(self.house.result(self.house.soap("ping", {"url": url})), True)

    def test_faults(self) -> None:
        missing = "The following parameters were missing from the request body: {}."
        table: list[tuple[str, Mapping[str, str | Sequence[str]], str]] = [
            ("pleaseNotify", {**FIELDS, "port": "", "urlList": [FEED]}, missing.format("port")),
            ("pleaseNotify", FIELDS, "No resources specified."),
            ("ping", {}, missing.format("url")),
            ("nothing", {}, 'Can\'t make the call because "nothing" is not defined.'),
        ]
        before = self.house.stored()
        for operation, members, sentence in table:
            answer = self.house.soap(operation, members, action='"/rssCloud"')
            self.assertEqual(self.house.soap_fault(answer), ("Client", sentence))
        self.assertEqual(self.house.stored(), before)

    def test_a_namespace_that_is_no_uri(self) -> None:
        for namespace in ("a b", "%zz", "{}", "http://[x"):
            answer = self.house.soap("ping", {"url": FEED}, namespace=namespace)
            self.assertEqual(self.house.soap_fault(answer)[0], "Client")

    def test_descriptions(self) -> None:
        """Each service has its own WSDL, since both have an operation ``ping``."""
        for path, name in (
            ("/soap?wsdl", "rssCloud"),
            ("/soap?WSDL", "rssCloud"),
            ("/rssCloud?wsdl", "rssCloud"),
            ("/xmlStorageSystem?wsdl", "rssCloud"),
            ("/weblogUpdates?wsdl", "weblogUpdates"),
        ):
            answer = self.house.get(path)
            self.assertEqual((answer.status, answer.headers.get_content_type()), (200, "text/xml"))
            self.assertTrue(answer.xml.tag.endswith("}definitions"))
            self.assertEqual(answer.xml.get("name"), name)
            at, _, _ = path.partition("?")
            self.assertIn(f'location="http://broker.example:5337{at}"', answer.text)

    def test_answers_in_the_style_of_the_wsdl(self) -> None:
        """The answers have no types, since those are in the WSDL."""
        answer = self.house.soap("ping", {"url": FEED}, namespace=RSSCLOUD)
        self.assertEqual(self.house.result(answer), "true")
        self.assertNotIn("xsi:type", answer.text)
        self.assertNotIn("encodingStyle", answer.text)

    def test_dotted_names(self) -> None:
        """Feeds advertise these names, as the manual says."""
        fields = {**FIELDS, "urlList": [FEED]}
        weblog = {"weblogname": "A", "weblogurl": "http://a.example/"}
        for name, members in (
            ("rssCloud.pleaseNotify", fields),
            ("xmlStorageSystem.rssPleaseNotify", fields),
            ("rssCloud.ping", {"url": FEED}),
            ("weblogUpdates.ping", weblog),
        ):
            for path, action in (("/RPC2", None), ("/soap", '"/weblogUpdates"')):
                answer = self.house.soap(name, members, path=path, action=action)
                self.assertIn(f"<{name}Response>", answer.text)
                self.house.result(answer)
        self.assertEqual([ping.name for ping in self.house.pings()], ["A"])
        for name in ("rssCloud.extendedPing", "nothing.ping", "ping."):
            fault = self.house.soap_fault(self.house.soap(name, {"url": FEED}))
            self.assertIn("is not defined", fault[1])

    def test_a_prefix_that_is_declared_as_nothing(self) -> None:
        """PHP's SoapClient and SOAP::Lite declare one if they are given no namespace."""
        document = envelope("ping", {"url": FEED})
        for quotes in (b'""', b"''"):
            changed = document.replace(b"<ping>", b"<ns1:ping xmlns:ns1=%b>" % quotes)
            changed = changed.replace(b"</ping>", b"</ns1:ping>")
            answer = self.house.ask("POST", "/soap", changed)
            self.assertIs(self.house.result(answer), True)
            self.assertIn("<pingResponse>", answer.text)

    def test_parameters_without_names_go_by_their_order(self) -> None:
        values = ["", "5337", "/notify", "http-post", [FEED]]
        gensym = {f"c-gensym{3 + 2 * n}": value for n, value in enumerate(values)}
        self.house.result(self.house.soap("pleaseNotify", gensym, path="/rssCloud"))
        self.assertEqual(len(self.house.subscriptions()), 1)
        one, two = {"param0": FEED}, {"param0": "A", "param1": "http://a.example/"}
        self.assertIs(self.house.result(self.house.soap("ping", one)), True)
        thanks = self.house.result(self.house.soap("ping", two))
        self.assertIs(thanks["flerror"], False)
