"""rssCloud by XML-RPC and SOAP: results, faults, and which service answers a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.http.xmlrpc import MAX_CALLS
from rsscloud_broker.wire.wsdl import RSSCLOUD
from rsscloud_broker.wire.xmlrpc import INVALID_PARAMS, INVALID_REQUEST
from tests.front_doors.exchange import envelope
from tests.front_doors.fixture import FEED, House

REGISTRATION: list[Any] = ["", 5337, "/notify", "http-post", [FEED]]
FIELDS = {"notifyProcedure": "", "port": "5337", "path": "/notify", "protocol": "http-post"}
MISSING = "http://feeds.example/missing.xml"
OLD_NAMES = ("xmlStorageSystem.rssPleaseNotify", "xmlStorageSystem.requestNotification")


class XMLRPCTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = House(self)

    def test_hello(self) -> None:
        self.assertIs(self.house.xmlrpc("rssCloud.hello"), True)

    def test_please_notify(self) -> None:
        self.assertIs(self.house.xmlrpc("rssCloud.pleaseNotify", *REGISTRATION), True)
        (subscription,) = self.house.subscriptions()
        self.assertEqual(subscription.callback.url, "http://192.0.2.7:5337/notify")

    def test_port_is_an_int_or_a_string(self) -> None:
        for port in (5337, "5337", " 5337 "):
            values = ["", port, *REGISTRATION[2:]]
            self.assertIs(self.house.xmlrpc("rssCloud.pleaseNotify", *values), True)
        self.assertEqual(len(self.house.subscriptions()), 1)

    def test_domain(self) -> None:
        for domain in ("", "r.example"):
            self.house.xmlrpc("rssCloud.pleaseNotify", *REGISTRATION, domain)
        urls = [subscription.callback.url for subscription in self.house.subscriptions()]
        self.assertEqual(urls, ["http://192.0.2.7:5337/notify", "http://r.example:5337/notify"])

    def test_no_procedure_said_as_false(self) -> None:
        self.assertIs(self.house.xmlrpc("rssCloud.pleaseNotify", False, *REGISTRATION[1:]), True)

    def test_old_names(self) -> None:
        for name in OLD_NAMES:
            self.assertIs(self.house.xmlrpc(name, *REGISTRATION), True)
        self.assertEqual(len(self.house.subscriptions()), 1)

    def test_registrations_that_fail(self) -> None:
        """The answer is fault 4 with the REST interface's sentence, or false for the old names."""
        table: list[tuple[list[Any], str]] = [
            (
                ["", "", " ", "http-post", [FEED]],
                "The following parameters were missing from the request body: port, path.",
            ),
            (["", 5337, "/notify", "http-post", []], "No resources specified."),
            (
                ["", 5337, "/notify", "gopher", [FEED]],
                "Can't accept the subscription because the protocol, <i>gopher</i>, "
                "is unsupported.",
            ),
            (
                ["", 5337, "/notify", "http-post", [MISSING]],
                "The subscription was cancelled because there was an error reading the "
                f"resource at URL {MISSING}.",
            ),
            (
                ["", 5338, "/notify", "http-post", [FEED]],
                "The subscription was cancelled because the call failed when we tested "
                "the handler.",
            ),
        ]
        self.house.subscribers.deaf = {"http://192.0.2.7:5338/notify"}
        before = self.house.stored()
        for values, sentence in table:
            self.assertEqual(self.house.fault("rssCloud.pleaseNotify", *values), (4, sentence))
            for name in OLD_NAMES:
                self.assertIs(self.house.xmlrpc(name, *values), False)
        self.assertEqual(self.house.stored(), before)

    def test_wrong_numbers_of_parameters(self) -> None:
        table: list[tuple[str, list[Any], str, str]] = [
            ("rssCloud.pleaseNotify", REGISTRATION[:4], "pleaseNotify", "there aren't enough"),
            ("rssCloud.ping", [FEED, FEED], "ping", "there are too many"),
            (OLD_NAMES[0], REGISTRATION[:4], "rssPleaseNotify", "there aren't enough"),
            (OLD_NAMES[1], [*REGISTRATION, "", ""], "requestNotification", "there are too many"),
        ]
        for method, values, name, problem in table:
            self.assertEqual(
                self.house.fault(method, *values),
                (4, f'Can\'t call "{name}" because {problem} parameters.'),
            )

    def test_wrong_types(self) -> None:
        wrong: list[tuple[list[Any], str]] = [
            ([[], 5337, "/notify", "http-post", [FEED]], "The parameter notifyProcedure"),
            (["", True, "/notify", "http-post", [FEED]], "The parameter port"),
            (["", 5337, [7], "http-post", [FEED]], "The parameter path"),
            (["", 5337, "/notify", {"a": "b"}, [FEED]], "The parameter protocol"),
            (["", 5337, "/notify", "http-post", True], "The parameter urlList"),
            (["", 5337, "/notify", "http-post", [FEED, True]], "The parameter urlList"),
            (["", 5337, "/notify", "http-post", [FEED], {"a": "b"}], "The parameter domain"),
        ]
        for values, beginning in wrong:
            for name in ("rssCloud.pleaseNotify", *OLD_NAMES):
                code, sentence = self.house.fault(name, *values)
                self.assertEqual((code, sentence[: len(beginning)]), (4, beginning))
        self.assertEqual(
            self.house.fault("rssCloud.ping", [FEED]), (4, "The parameter url must be a string.")
        )

    def test_ping_is_true_whatever_comes_of_it(self) -> None:
        for url in (FEED, MISSING, "", "javascript:alert(1)"):
            self.assertIs(self.house.xmlrpc("rssCloud.ping", url), True)

    def test_unknown_procedures(self) -> None:
        for name in ("rssCloud.nothing", "nothing", "no.thing", "rssCloud.", ".ping", "x" * 250):
            self.assertEqual(
                self.house.fault(name),
                (4, f'Can\'t make the call because "{name[:200]}" is not defined.'),
            )

    def test_what_python_calls_procedures_is_not_offered(self) -> None:
        for name in ("rssCloud.__init__", "__init__", "system.putSubHandler", "lookupProcedure"):
            code, _ = self.house.fault(name)
            self.assertEqual(code, 4)


class IntrospectionTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = House(self)

    def test_list_methods(self) -> None:
        self.assertEqual(
            sorted(self.house.xmlrpc("system.listMethods")),
            [
                "rssCloud.hello",
                "rssCloud.ping",
                "rssCloud.pleaseNotify",
                "system.listMethods",
                "system.methodHelp",
                "system.methodSignature",
                "system.multicall",
                "weblogUpdates.extendedPing",
                "weblogUpdates.ping",
                "weblogUpdates.rssUpdate",
                "xmlStorageSystem.requestNotification",
                "xmlStorageSystem.rssPleaseNotify",
            ],
        )

    def test_every_procedure_has_help_and_a_signature(self) -> None:
        for name in self.house.xmlrpc("system.listMethods"):
            self.assertTrue(self.house.xmlrpc("system.methodHelp", name).strip(), name)
            for signature in self.house.xmlrpc("system.methodSignature", name):
                self.assertTrue(all(isinstance(part, str) for part in signature), name)

    def test_signatures(self) -> None:
        self.assertEqual(
            self.house.xmlrpc("system.methodSignature", "rssCloud.pleaseNotify"),
            [
                ["boolean", "string", "int", "string", "string", "array"],
                ["boolean", "string", "int", "string", "string", "array", "string"],
            ],
        )

    def test_help_for_what_is_not_there(self) -> None:
        for asked in ("system.methodHelp", "system.methodSignature"):
            self.assertEqual(
                self.house.fault(asked, "no.thing"),
                (4, 'Can\'t make the call because "no.thing" is not defined.'),
            )

    def test_help_wants_one_string(self) -> None:
        for asked in ("system.methodHelp", "system.methodSignature"):
            wrong: list[list[Any]] = [[], ["a", "b"], [5], [["rssCloud.ping"]], [{"a": "b"}]]
            for params in wrong:
                code, _ = self.house.fault(asked, *params)
                self.assertEqual(code, INVALID_PARAMS, params)


class MulticallTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = House(self)

    def multicall(self, *calls: object) -> list[object]:
        answers: list[object] = self.house.xmlrpc("system.multicall", list(calls))
        return answers

    def test_results_and_faults_side_by_side(self) -> None:
        answers = self.multicall(
            {"methodName": "weblogUpdates.ping", "params": ["A", "http://a.example/"]},
            {"methodName": "no.thing", "params": []},
            {"methodName": "rssCloud.ping", "params": [FEED]},
        )
        self.assertEqual(
            answers,
            [
                [{"flerror": False, "message": "Thanks for the ping."}],
                {
                    "faultCode": 4,
                    "faultString": 'Can\'t make the call because "no.thing" is not defined.',
                },
                [True],
            ],
        )
        self.assertEqual([ping.name for ping in self.house.pings()], ["A", FEED])

    def test_does_not_nest(self) -> None:
        (answer,) = self.multicall({"methodName": "system.multicall", "params": [[]]})
        self.assertEqual(
            answer,
            {"faultCode": INVALID_REQUEST, "faultString": "system.multicall does not nest"},
        )

    def test_calls_that_are_none(self) -> None:
        for call in ("x", {}, {"methodName": "x"}, {"methodName": 5, "params": []}, [1]):
            (answer,) = self.multicall(call)
            assert isinstance(answer, dict)
            self.assertEqual(answer["faultCode"], INVALID_REQUEST)

    def test_as_many_calls_as_may_be(self) -> None:
        hello = {"methodName": "rssCloud.hello", "params": []}
        self.assertEqual(self.multicall(*[hello] * MAX_CALLS), [[True]] * MAX_CALLS)
        code, sentence = self.house.fault("system.multicall", [hello] * (MAX_CALLS + 1))
        self.assertEqual(code, INVALID_PARAMS)
        self.assertIn(str(MAX_CALLS), sentence)

    def test_wants_one_array(self) -> None:
        wrong: list[list[Any]] = [[], ["x"], [{}], [[], []]]
        for params in wrong:
            code, _ = self.house.fault("system.multicall", *params)
            self.assertEqual(code, INVALID_PARAMS)


class SoapTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = House(self)

    def test_please_notify(self) -> None:
        answer = self.house.soap("pleaseNotify", {**FIELDS, "urlList": [FEED]})
        self.assertIs(self.house.result(answer), True)
        self.assertIn('<Result xsi:type="xsd:boolean">true</Result>', answer.text)
        self.assertIn("<pleaseNotifyResponse>", answer.text)
        self.assertEqual(len(self.house.subscriptions()), 1)

    def test_actions_and_namespaces(self) -> None:
        for action in ('"/rssCloud"', "/rssCloud", '"/xmlStorageSystem"', '""', "", None):
            for namespace in ("", "urn:somebody:else"):
                answer = self.house.soap("ping", {"url": FEED}, action=action, namespace=namespace)
                self.assertIs(self.house.result(answer), True)
                self.assertIn(f'xmlns:m="{namespace}"' if namespace else "<ping", answer.text)

    def test_paths(self) -> None:
        for path in ("/soap", "/rssCloud", "/xmlStorageSystem", "/RPC2", "/"):
            answer = self.house.soap("ping", {"url": FEED}, path=path)
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
        table: list[tuple[str, Mapping[str, str | Sequence[str]], str]] = [
            (
                "pleaseNotify",
                {**FIELDS, "port": "", "urlList": [FEED]},
                "The following parameters were missing from the request body: port.",
            ),
            ("pleaseNotify", FIELDS, "No resources specified."),
            (
                "pleaseNotify",
                {**FIELDS, "urlList": [MISSING]},
                "The subscription was cancelled because there was an error reading the "
                f"resource at URL {MISSING}.",
            ),
            (
                "ping",
                {},
                "The following parameters were missing from the request body: url.",
            ),
            ("nothing", {}, 'Can\'t make the call because "nothing" is not defined.'),
        ]
        before = self.house.stored()
        for operation, members, sentence in table:
            answer = self.house.soap(operation, members, action='"/rssCloud"')
            self.assertEqual(self.house.soap_fault(answer), ("Client", sentence))
            self.assertIn("<faultcode>SOAP-ENV:Client</faultcode>", answer.text)
        self.assertEqual(self.house.stored(), before)

    def test_a_namespace_that_is_no_uri(self) -> None:
        for namespace in ("a b", "%zz", "{}", "http://[x"):
            answer = self.house.soap("ping", {"url": FEED}, namespace=namespace)
            self.assertEqual(self.house.soap_fault(answer)[0], "Client")

    def test_caller(self) -> None:
        self.house.soap("pleaseNotify", {**FIELDS, "urlList": [FEED]}, peer="2001:db8::1")
        (subscription,) = self.house.subscriptions()
        self.assertEqual(subscription.callback.url, "http://[2001:db8::1]:5337/notify")

    def test_any_content_type(self) -> None:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "nonsense", ""):
            answer = self.house.ask(
                "POST", "/soap", envelope("ping", {"url": FEED}), {"Content-Type": kind}
            )
            self.assertIs(self.house.result(answer), True)

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
            self.assertEqual(
                (answer.xml.tag.endswith("}definitions"), answer.xml.get("name")), (True, name)
            )
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
