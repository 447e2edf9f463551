from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire import soap, xml
from rsscloud_broker.wire.xml import MalformedXML
from tests import examples

FIXTURES = Path(__file__).parent / "fixtures"


def envelope(body: str, header: str = "") -> bytes:
    return (
        f'<S:Envelope xmlns:S="{soap.ENVELOPE}"'
        ' xmlns:E="http://schemas.xmlsoap.org/soap/encoding/"'
        ' xmlns:d="http://www.w3.org/2001/XMLSchema"'
        ' xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'
        ' xmlns:i2="http://www.w3.org/2000/10/XMLSchema-instance"'
        ' xmlns:i1="http://www.w3.org/1999/XMLSchema-instance">'
        f"{header}<S:Body>{body}</S:Body></S:Envelope>"
    ).encode()


class CallTests(SynchronousTestCase):
    def test_calls_of_real_kinds_of_clients(self) -> None:
        old = {"weblogname": "A weblog of old", "weblogurl": "http://old.example/"}
        one, two = "http://one.example/rss.xml", "http://two.example/rss.xml"
        radio: dict[str, Any] = {"notifyProcedure": "radio.rssUpdated", "port": 5335}
        radio |= {"path": "/soap", "protocol": "soap", "urlList": [one]}
        axis = radio | {"notifyProcedure": "updated", "port": 8080, "path": "/axis"}
        axis |= {"urlList": [one, two], "domain": None}
        cases = {
            "soap_ping_userland.xml": soap.SoapCall("ping", "", old),
            "soap_please_notify_radio.xml": soap.SoapCall("pleaseNotify", "", radio),
            "soap_please_notify_axis.xml": soap.SoapCall(
                "pleaseNotify", "urn:rsscloud-broker:rssCloud", axis
            ),
        }
        for name, expected in cases.items():
            self.assertEqual(soap.decode_call((FIXTURES / name).read_bytes()), expected, name)

    def test_values(self) -> None:
        cases: dict[str, Any] = {
            "<p/>": "",
            "<p> kept </p>": " kept ",
            '<p i:type="d:string">x</p>': "x",
            '<p i:type="d:int"> 7 </p>': 7,
            '<p i:type="d:unsignedShort">5337</p>': 5337,
            '<p i1:type="d:boolean">1</p>': True,
            '<p i2:type="d:boolean">false</p>': False,
            '<p i:type="d:double">1.5</p>': 1.5,
            '<p i:type="E:base64">aGVsbG8=</p>': b"hello",
            '<p i:type="d:base64Binary">aGVsbG8=</p>': b"hello",
            '<p i:type="other:unknown">x</p>': "x",
            '<p i:nil="true">x</p>': None,
            '<p i1:null="1"/>': None,
            '<p i:nil="false">x</p>': "x",
            '<p i:type="E:Array"/>': [],
            '<p E:arrayType="d:string[0]"/>': [],
            "<p><url>a</url></p>": ["a"],
            "<p><url>a</url> <url>b</url></p>": ["a", "b"],
            '<p i:type="E:Array"><a>1</a><b>2</b></p>': ["1", "2"],
            "<p><E:int>1</E:int><E:int>2</E:int></p>": [1, 2],
            "<p><a>1</a><b><c>2</c></b></p>": {"a": "1", "b": ["2"]},
            "<p><a>1</a><b>2</b><a>3</a></p>": {"a": ["1", "3"], "b": "2"},
            "<p>a</p><p>b</p>": ["a", "b"],
        }
        for parameters, expected in cases.items():
            call = soap.decode_call(envelope(f"<op>{parameters}</op>"))
            self.assertEqual(call.parameters, {"p": expected}, parameters)
            self.assertIs(type(call.parameters["p"]), type(expected), parameters)

    def test_references(self) -> None:
        """Several references may lead to one value, which may hold references itself."""
        body = '<op><a href="#1"/><b href="#1"/><c href="#2"/></op><m id="1">x</m>'
        call = soap.decode_call(envelope(f'{body}<m id="2"><item href="#1"/><item>y</item></m>'))
        self.assertEqual(call.parameters, {"a": "x", "b": "x", "c": ["x", "y"]})
        first = soap.decode_call(envelope('<m E:root="0" id="1">x</m><op><a href="#1"/></op>'))
        self.assertEqual(first, soap.SoapCall("op", "", {"a": "x"}))

    def test_headers_that_can_be_left_aside(self) -> None:
        headers = (
            "<S:Header/>",
            "<S:Header><t:transaction xmlns:t='urn:t'>5</t:transaction></S:Header>",
            '<S:Header><t S:mustUnderstand="0"/></S:Header>',
            '<S:Header><t S:mustUnderstand="1" S:actor="urn:somebody-else"/></S:Header>',
        )
        for header in headers:
            self.assertEqual(soap.decode_call(envelope("<op/>", header)).operation, "op")

    def test_from_a_parsed_root(self) -> None:
        root = xml.parse(envelope("<op/>"))
        self.assertTrue(soap.is_envelope(root))
        self.assertEqual(soap.call_from(root), soap.SoapCall("op"))
        self.assertFalse(soap.is_envelope(xml.parse(b"<methodCall/>")))

    def test_charset(self) -> None:
        document = envelope("<op><p>ж</p></op>").decode().encode("windows-1251")
        self.assertEqual(soap.decode_call(document, "windows-1251").parameters, {"p": "ж"})


class FaultTests(SynchronousTestCase):
    def fault(self, document: bytes) -> soap.SoapFault:
        fault: soap.SoapFault = self.assertRaises(soap.SoapFault, soap.decode_call, document)
        self.assertTrue(fault.string)
        self.assertLess(len(fault.string), 200)
        return fault

    def test_nonsense(self) -> None:
        documents = (
            b"<methodCall/>",
            b'<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"/>',
            envelope(""),
            envelope("<a/><b/>"),
            envelope("<op/>", "<S:Body/>"),
            envelope("<op>text<p/></op>"),
            envelope("<op><p>my <b>bold</b> name</p></op>"),
            envelope('<op><p i:type="d:int">abc</p></op>'),
            envelope(f'<op><p i:type="d:int">{"9" * 5000}</p></op>'),
            envelope('<op><p i:type="d:boolean">7</p></op>'),
            envelope('<op><p i:type="d:double">nan</p></op>'),
            envelope('<op><p i:type="d:base64Binary">!</p></op>'),
            envelope('<op><p href="#nowhere"/></op>'),
            envelope('<op><p href=""/></op>'),
            envelope(f'<op><p href="http://127.0.0.1/{"a" * 500}"/></op>'),
        )
        for document in documents:
            self.assertEqual(self.fault(document).code, "Client", document)

    def test_circles(self) -> None:
        for body in (
            '<op><p href="#1"/></op><m id="1" href="#1"/>',
            '<op><p href="#1"/></op><m id="1"><q href="#2"/></m><m id="2"><q href="#1"/></m>',
            '<op id="1"><p href="#1"/></op>',
            '<op><p href="#1"/></op><m id="1">' + '<q href="#1"/>' * 1000 + "</m>",
        ):
            self.assertIn("circle", self.fault(envelope(body)).string)

    def test_references_that_multiply(self) -> None:
        tens = [
            f'<m id="{level}">' + f'<q href="#{level + 1}"/>' * 10 + "</m>" for level in range(9)
        ]
        laughs = '<op><p href="#0"/></op>' + "".join(tens) + '<m id="9">lol</m>'
        long_text = '<op><p href="#0"/></op>' + f'<m id="0">{"x" * 200_000}</m>'
        repeated = long_text.replace('<p href="#0"/>', '<p href="#0"/>' * 1000)
        self.assertEqual(len(soap.decode_call(envelope(long_text)).parameters["p"]), 200_000)
        blanks = '<op><p href="#0"/></op>' + f'<m id="0"><q/>{" " * 200_000}</m>'
        for body in (laughs, repeated, blanks.replace('<p href="#0"/>', '<p href="#0"/>' * 1000)):
            self.assertIn("too much", self.fault(envelope(body)).string)

    def test_other_versions(self) -> None:
        for namespace in ("http://www.w3.org/2003/05/soap-envelope", "urn:x", ""):
            document = f'<Envelope xmlns="{namespace}"><Body><op/></Body></Envelope>'
            self.assertEqual(self.fault(document.encode()).code, "VersionMismatch")

    def test_must_understand(self) -> None:
        for attributes in (
            'S:mustUnderstand="1"',
            'S:mustUnderstand="true"',
            'S:mustUnderstand="1" S:actor="http://schemas.xmlsoap.org/soap/actor/next"',
        ):
            document = envelope("<op/>", f"<S:Header><pay {attributes}/></S:Header>")
            fault = self.fault(document)
            self.assertEqual(fault.code, "MustUnderstand")
            self.assertIn("pay", fault.string)

    def test_malformed_xml(self) -> None:
        for document in (b"", b"<Envelope>", b"<!DOCTYPE a>" + envelope("<op/>")):
            self.assertRaises(MalformedXML, soap.decode_call, document)


class ResponseTests(SynchronousTestCase):
    def test_results_as_old_clients_know_them(self) -> None:
        struct = {"flerror": False, "message": "Thanks for the ping."}
        table: tuple[tuple[Any, str], ...] = (
            (True, '<Result xsi:type="xsd:boolean">true</Result>'),
            (
                struct,
                '<Result><flerror xsi:type="xsd:boolean">false</flerror>'
                '<message xsi:type="xsd:string">Thanks for the ping.</message></Result>',
            ),
        )
        for result, text in table:
            document = soap.encode_response(soap.SoapCall("ping"), result)
            self.assertIn(f"<pingResponse>{text}</pingResponse>", document.decode())
            self.assertEqual(soap.decode_response(document), result)

    def test_answers_in_the_namespace_of_the_call(self) -> None:
        root = etree.fromstring(soap.encode_response(soap.SoapCall("ping", "urn:x"), True))
        self.assertEqual(root[0][0].tag, "{urn:x}pingResponse")
        self.assertEqual(root[0][0][0].tag, "Result")

    def test_without_a_result(self) -> None:
        self.assertIsNone(soap.decode_response(envelope("<pingResponse/>")))

    def test_fault(self) -> None:
        document = soap.encode_fault("Client", 'no <b> & "c"\0')
        self.assertIn(b"<faultcode>SOAP-ENV:Client</faultcode>", document)
        fault = self.assertRaises(soap.SoapFault, soap.decode_response, document)
        self.assertEqual((fault.code, fault.string), ("Client", 'no <b> & "c"'))

    def test_faults_of_others(self) -> None:
        cases = {
            "<S:Fault/>": ("Server", ""),
            "<S:Fault><faultcode>Client</faultcode></S:Fault>": ("Client", ""),
            "<S:Fault><S:faultcode> x:Server.Busy </S:faultcode>"
            "<S:faultstring> later </S:faultstring></S:Fault>": ("Server.Busy", "later"),
        }
        for body, expected in cases.items():
            fault = self.assertRaises(soap.SoapFault, soap.decode_response, envelope(body))
            self.assertEqual((fault.code, fault.string), expected, body)

    def test_not_responses(self) -> None:
        self.assertRaises(MalformedXML, soap.decode_response, b"Not Found")
        self.assertRaises(soap.SoapFault, soap.decode_response, b"<html/>")
        self.assertRaises(soap.SoapFault, soap.decode_response, envelope(""))


class EncodingTests(SynchronousTestCase):
    def test_what_xml_cannot_carry_is_left_out(self) -> None:
        document = soap.encode_call("op", {"p": "a\0\ud800\ufffeb\r\n"})
        self.assertEqual(soap.decode_call(document).parameters, {"p": "ab\r\n"})

    def test_names_that_xml_cannot_carry(self) -> None:
        for name in ("", "a b", "<a/>", "a:b", "1", "a\0"):
            self.assertRaises(ValueError, soap.encode_call, name, {})
            self.assertRaises(ValueError, soap.encode_call, "op", {name: ""})
        self.assertRaises(ValueError, soap.encode_call, "op", {}, "a\0b")

    def test_values_without_a_form(self) -> None:
        self.assertRaises(TypeError, soap.encode_call, "op", {"p": object()})

    def test_big_integers(self) -> None:
        document = soap.encode_call("op", {"p": 2**40})
        self.assertIn(b"xsd:long", document)
        self.assertEqual(soap.decode_call(document).parameters, {"p": 2**40})


class ActionTests(SynchronousTestCase):
    def test_action_of(self) -> None:
        for header in ('"/x"', "/x", ' "/x" ', '" /x "', "'/x'"):
            self.assertEqual(soap.action_of(header), "/x", header)
        for nothing in (None, "", '""'):
            self.assertEqual(soap.action_of(nothing), "")


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,8}", fullmatch=True)
scalars = (
    st.text(st.characters(codec="utf-8", exclude_characters="\ufffe\uffff", min_codepoint=32))
    | st.text("a\r\n\t <&>]\"'")
    | st.integers(-(2**63), 2**63 - 1)
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.binary()
)
# A struct with fewer than two members is read as a string or a list: see the module.
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(names, inner, min_size=2, max_size=4)
    ),
    max_leaves=10,
)
parts = st.sampled_from(
    [
        "<p>", "</p>", "<q/>", '<q href="#1"/>', '<m id="1">', "</m>", "x", "&#1;", "\0",
        '<E:Array>', '</E:Array>', '<p i:type="d:int">', '<p i:type="d:boolean">',
        '<p i:nil="1">', "<S:Body>", "</S:Body>", '<p i:type=":">', "<E:int>",
    ]
)  # fmt: skip


class HypothesisTests(SynchronousTestCase):
    @settings(max_examples=examples(40), deadline=None)
    @given(names, st.dictionaries(names, values, max_size=4), st.sampled_from(["", "urn:x"]))
    def test_round_trip(self, operation: str, parameters: dict[str, Any], namespace: str) -> None:
        document = soap.encode_call(operation, parameters, namespace)
        self.assertEqual(
            soap.decode_call(document), soap.SoapCall(operation, namespace, parameters)
        )
        for result in parameters.values():
            response = soap.encode_response(soap.SoapCall("ping", "urn:x"), result)
            self.assertEqual(soap.decode_response(response), result)

    @settings(max_examples=examples(100), deadline=None)
    @given(
        st.sampled_from(sorted(FIXTURES.glob("soap_*.xml"))),
        st.floats(0, 1),
        st.integers(0, 60),
        parts.map(str.encode) | st.binary(max_size=8),
    )
    def test_mutated_documents(self, path: Path, where: float, cut: int, insert: bytes) -> None:
        document = path.read_bytes()
        start = int(where * len(document))
        self.decode_both_ways(document[:start] + insert + document[start + cut :])

    @settings(max_examples=examples(100), deadline=None)
    @given(st.lists(parts, max_size=12).map("".join))
    def test_made_up_bodies(self, inner: str) -> None:
        self.decode_both_ways(envelope(f"<op>{inner}</op>"))

    def decode_both_ways(self, document: bytes) -> None:
        for decode in (soap.decode_call, soap.decode_response):
            try:
                decode(document)
            except soap.SoapFault as fault:
                self.assertTrue(fault.code)
            except MalformedXML as error:
                self.assertTrue(error.reason)
