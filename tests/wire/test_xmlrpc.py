from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from xmlrpc.client import Fault, dumps, loads

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire import xml, xmlrpc
from rsscloud_broker.wire.xml import MalformedXML
from tests import examples

FIXTURES = Path(__file__).parent / "fixtures"


def call_with(value: str) -> bytes:
    return (
        "<methodCall><methodName>a.b</methodName><params><param>"
        f"{value}</param></params></methodCall>"
    ).encode()


class FixtureTests(SynchronousTestCase):
    def test_calls_of_real_kinds_of_clients(self) -> None:
        ping, feeds = "weblogUpdates.ping", [f"http://{n}.example/rss.xml" for n in ("one", "two")]
        cases: dict[str, tuple[str, list[Any]]] = {
            "ping_wordpress.xml": (
                "weblogUpdates.extendedPing",
                ["Café & Friends", "https://blog.example/", "https://blog.example/feed/"],
            ),
            "ping_untyped.xml": (ping, ["A site without types", "http://php.example/blog/"]),
            "ping_latin1.xml": (ping, ["Übergrößen für Señores", "http://latin.example/"]),
            "ping_windows1251.xml": (ping, ["Живой дневник", "http://cyrillic.example/"]),
            "please_notify_radio.xml": (
                "xmlStorageSystem.rssPleaseNotify",
                ["radio.rssUpdated", 5335, "/RPC2", "xml-rpc", feeds],
            ),
        }
        for name, expected in cases.items():
            # The charset of HTTP does not matter, since it is often a default.
            for charset in (None, "utf-8", "iso-8859-1"):
                if charset == "iso-8859-1" and name == "ping_wordpress.xml":
                    continue  # it declares no encoding, so HTTP's charset counts
                document = (FIXTURES / name).read_bytes()
                self.assertEqual(xmlrpc.decode_call(document, charset), expected, (name, charset))


class ValueTests(SynchronousTestCase):
    def test_values(self) -> None:
        noon = datetime(1998, 7, 17, 14, 8, 55)
        extensions = 'xmlns:ex="http://ws.apache.org/xmlrpc/namespaces/extensions"'
        cases: dict[str, Any] = {
            "<value/>": "",
            "<value>  kept  </value>": "  kept  ",
            "<value><string/></value>": "",
            "<value>\n <string> kept </string>\n</value>": " kept ",
            "<value><![CDATA[<b>]]></value>": "<b>",
            "<value><int>-5</int></value>": -5,
            "<value><i4> 5337 </i4></value>": 5337,
            "<value><i8>9223372036854775807</i8></value>": 2**63 - 1,
            "<value><boolean>1</boolean></value>": True,
            "<value><boolean>false</boolean></value>": False,
            "<value><double>-12.214</double></value>": -12.214,
            "<value><double>1E3</double></value>": 1000.0,
            "<value><base64>aGVsbG8=\n</base64></value>": b"hello",
            "<value><nil/></value>": None,
            f"<value><ex:nil {extensions}/></value>": None,
            f"<value><ex:i8 {extensions}>7</ex:i8></value>": 7,
            **{
                f"<value><dateTime.iso8601>{text}</dateTime.iso8601></value>": moment
                for text, moment in (
                    ("19980717T14:08:55", noon),
                    ("1998-07-17T14:08:55Z", noon.replace(tzinfo=UTC)),
                    ("19980717T14:08:55+0200", noon.replace(tzinfo=timezone(timedelta(hours=2)))),
                )
            },
            "<value><array/></value>": [],
            "<value><array><data/></array></value>": [],
            "<value><array><data> <value>a</value> <value/></data></array></value>": ["a", ""],
            "<value><struct/></value>": {},
            "<value><struct><member><value/><name>x</name></member></struct></value>": {"x": ""},
        }
        for value, expected in cases.items():
            name, parameters = xmlrpc.decode_call(call_with(value))
            self.assertEqual(name, "a.b")
            self.assertEqual(parameters, [expected], value)
            self.assertIs(type(parameters[0]), type(expected), value)

    def test_calls_without_parameters(self) -> None:
        for params in ("", "<params/>", "<params> </params>"):
            document = f"<methodCall><methodName> a </methodName>{params}</methodCall>"
            self.assertEqual(xmlrpc.decode_call(document.encode()), ("a", []))

    def test_nonsense(self) -> None:
        values = (
            "",
            "text",
            "<string>not in a value</string>",
            "<value>1</value><value>2</value>",
            "<value><i4>1</i4><i4>2</i4></value>",
            "<value>text <i4>1</i4></value>",
            "<value><i4>1</i4> text</value>",
            "<value><boolean>7</boolean></value>",
            "<value><boolean/></value>",
            "<value><int>abc</int></value>",
            "<value><int/></value>",
            f"<value><int>{'9' * 5000}</int></value>",
            f"<value><int>1e{'9' * 5000}</int></value>",
            "<value><i4>1.5</i4></value>",
            "<value><double>nan</double></value>",
            "<value><base64>!</base64></value>",
            "<value><dateTime.iso8601>yesterday</dateTime.iso8601></value>",
            "<value><nil>something</nil></value>",
            "<value><unknown>1</unknown></value>",
            "<value><string>a<b/>c</string></value>",
            "<value><array><value>1</value></array></value>",
            "<value><array><data><i4>1</i4></data></array></value>",
            "<value><array><data/><data/></array></value>",
            "<value><array>text<data/></array></value>",
            "<value><struct><member><name>a</name></member></struct></value>",
            "<value><struct><member><value>a</value></member></struct></value>",
            "<value><struct><name>a</name><value>b</value></struct></value>",
            "<value><struct><member><name>a</name><name>b</name><value/></member></struct></value>",
        )
        for value in values:
            error = self.assertRaises(xmlrpc.MalformedXMLRPC, xmlrpc.decode_call, call_with(value))
            self.assertTrue(error.reason.startswith("line 1: "), error.reason)
            self.assertLess(len(error.reason), 200)

    def test_not_calls(self) -> None:
        documents = (
            b"<methodResponse/>",
            b"<html/>",
            b"<methodCall/>",
            b"<methodCall><methodName/></methodCall>",
            b"<methodCall><methodName> </methodName></methodCall>",
            b"<methodCall><methodName>a<b/></methodName></methodCall>",
            b"<methodCall><methodName>a</methodName><methodName>b</methodName></methodCall>",
            b"<methodCall><methodName>a</methodName><params/><params/></methodCall>",
            b"<methodCall><methodName>a</methodName><other/></methodCall>",
            b"<methodCall>a<methodName>a</methodName></methodCall>",
            b"<methodCall><methodName>a</methodName><params><value/></params></methodCall>",
            b"<methodCall><methodName>%s</methodName></methodCall>" % (b"a" * 256),
        )
        for document in documents:
            self.assertRaises(xmlrpc.MalformedXMLRPC, xmlrpc.decode_call, document)

    def test_too_many_parameters(self) -> None:
        self.assertEqual(
            len(xmlrpc.decode_call(xmlrpc.encode_call("a", ["b"] * xmlrpc.MAX_PARAMETERS))[1]), 100
        )
        document = xmlrpc.encode_call("a", ["b"] * (xmlrpc.MAX_PARAMETERS + 1))
        error = self.assertRaises(xmlrpc.MalformedXMLRPC, xmlrpc.decode_call, document)
        self.assertIn("at most 100", error.reason)

    def test_deep_nest(self) -> None:
        value: Any = "x"
        for _ in range(30):
            value = [value]
        error = self.assertRaises(
            MalformedXML, xmlrpc.decode_call, xmlrpc.encode_call("a", [value])
        )
        self.assertIn("nest", error.reason)

    def test_malformed_xml_is_told_from_malformed_xmlrpc(self) -> None:
        for document in (b"", b"<methodCall>", b"<!DOCTYPE a><methodCall/>"):
            error = self.assertRaises(MalformedXML, xmlrpc.decode_call, document)
            self.assertNotIsInstance(error, xmlrpc.MalformedXMLRPC)

    def test_from_a_parsed_root(self) -> None:
        root = xml.parse(xmlrpc.encode_call("a", [1]))
        self.assertTrue(xmlrpc.is_call(root))
        self.assertEqual(xmlrpc.call_from(root), ("a", [1]))
        self.assertFalse(xmlrpc.is_call(xml.parse(b"<Envelope/>")))


class ResponseTests(SynchronousTestCase):
    def test_values(self) -> None:
        for value in (True, "Thanks", {"flerror": False, "message": "é"}, None, [1, [2.5]]):
            self.assertEqual(xmlrpc.decode_response(xmlrpc.encode_response(value)), value)

    def test_without_a_value(self) -> None:
        for document in (b"<methodResponse/>", b"<methodResponse><params/></methodResponse>"):
            self.assertIsNone(xmlrpc.decode_response(document))

    def test_fault(self) -> None:
        fault = self.assertRaises(
            xmlrpc.XMLRPCFault,
            xmlrpc.decode_response,
            xmlrpc.encode_fault(4, 'Can\'t <call> "x"\0'),
        )
        self.assertEqual((fault.code, fault.string), (4, 'Can\'t <call> "x"'))
        self.assertIn("fault 4", str(fault))

    def test_odd_faults(self) -> None:
        for value in ("<value>no</value>", "<value><struct/></value>"):
            document = f"<methodResponse><fault>{value}</fault></methodResponse>".encode()
            fault = self.assertRaises(xmlrpc.XMLRPCFault, xmlrpc.decode_response, document)
            self.assertEqual((fault.code, fault.string), (0, ""))

    def test_not_responses(self) -> None:
        one = "<param><value/></param>"
        for document in (
            "<methodCall/>",
            "<methodResponse>ok</methodResponse>",
            f"<methodResponse><params>{one}{one}</params></methodResponse>",
            "<methodResponse><fault/></methodResponse>",
        ):
            self.assertRaises(xmlrpc.MalformedXMLRPC, xmlrpc.decode_response, document.encode())
        self.assertRaises(MalformedXML, xmlrpc.decode_response, b"<html><br></html>")


class EncodingTests(SynchronousTestCase):
    def test_the_standard_library_reads_it(self) -> None:
        self.assertEqual(loads(xmlrpc.encode_call("a.b", ["é<&>", 1])), (("é<&>", 1), "a.b"))
        self.assertEqual(loads(xmlrpc.encode_response(True)), ((True,), None))
        fault = self.assertRaises(Fault, loads, xmlrpc.encode_fault(4, "no"))
        self.assertEqual((fault.faultCode, fault.faultString), (4, "no"))

    def test_method_names_are_escaped(self) -> None:
        name = "a</methodName><b>&amp;"
        self.assertEqual(xmlrpc.decode_call(xmlrpc.encode_call(name, [])), (name, []))

    def test_what_xml_cannot_carry_is_left_out(self) -> None:
        self.assertEqual(
            xmlrpc.decode_call(xmlrpc.encode_call("a", ["b\0\ud800\ufffec\r\nd"]))[1], ["bc\r\nd"]
        )

    def test_what_xmlrpc_cannot_carry(self) -> None:
        self.assertRaises(OverflowError, xmlrpc.encode_call, "a", [2**31])
        self.assertRaises(TypeError, xmlrpc.encode_call, "a", [object()])


xml_text = st.text(
    st.characters(codec="utf-8", exclude_characters="\ufffe\uffff", min_codepoint=32)
)
scalars = (
    xml_text
    | st.text("a\r\n\t <&>]\"'")
    | st.integers(-(2**31), 2**31 - 1)
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.binary()
    | st.datetimes(datetime(1000, 1, 1)).map(lambda moment: moment.replace(microsecond=0))
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(xml_text, inner, max_size=4),
    max_leaves=12,
).filter(lambda value: len(repr(value)) < 5000)
parts = st.sampled_from(
    [
        *(f"<{name}>" for name in ("methodCall", "params", "param", "value", "array", "data")),
        *(f"</{name}>" for name in ("value", "array", "param", "struct", "member", "i4")),
        "<struct>", "<member>", "<name>", "<i4>", "<boolean>", "<nil/>", "<base64>",
        "7", "&#1;", "\0",
    ]
)  # fmt: skip


class HypothesisTests(SynchronousTestCase):
    @settings(max_examples=examples(100), deadline=None)
    @given(st.lists(values, max_size=4))
    def test_round_trip(self, parameters: list[Any]) -> None:
        try:
            decoded = xmlrpc.decode_call(xmlrpc.encode_call("a.b", parameters))
        except MalformedXML as error:
            self.assertIn("nest", error.reason)
        else:
            self.assertEqual(decoded, ("a.b", parameters))

    @settings(max_examples=examples(100), deadline=None)
    @given(
        st.sampled_from(sorted(FIXTURES.glob("*.xml"))),
        st.floats(0, 1),
        st.integers(0, 60),
        parts.map(str.encode) | st.binary(max_size=8),
    )
    def test_mutated_documents(self, path: Path, where: float, cut: int, insert: bytes) -> None:
        document = path.read_bytes()
        start = int(where * len(document))
        mutated = document[:start] + insert + document[start + cut :]
        for decode in (xmlrpc.decode_call, xmlrpc.decode_response):
            try:
                decode(mutated)
            except MalformedXML as error:
                self.assertTrue(error.reason)

    @settings(max_examples=examples(100), deadline=None)
    @given(st.lists(parts, max_size=12).map("".join))
    def test_made_up_values(self, inner: str) -> None:
        try:
            name, _ = xmlrpc.decode_call(call_with(f"<value>{inner}</value>"))
        except MalformedXML as error:
            self.assertTrue(error.reason)
        else:
            self.assertEqual(name, "a.b")


PARAMS = ("A site", "http://a.example/?b=c;d='e'")
METHOD = "weblogUpdates.ping"
CALL = dumps(PARAMS, METHOD)

pieces = st.lists(
    st.sampled_from(
        ["<?xml version='1.0'?>", '<?xml version="1.0" encoding="utf-8"?>', "<methodCall>",
         "<methodName>", "a.b", "</methodName>", "<params>", "<param>", "<value>", "<string>",
         "x y", "", "</string>", "</value>", "</param>", "</params>", "</methodCall>",
         "<i4>", "7", "</i4>", "&amp;", "]]>", "\n", " ", "\r\n", "\x0b", "ж", "<!-- -->",
         "<![CDATA[x]]>", "<value/>", "<x:value>", "<value >", "\0", "=", "<params/>"]
    ),
    max_size=6,
).map("".join)  # fmt: skip
charsets = st.sampled_from([None, "utf-8", "iso-8859-1", "utf-16", "utf-7", "cp037", "no-such"])


class PlainCallTests(SynchronousTestCase):
    """Calls in plain ASCII are read without a parser, with the same result."""

    def test_as_clients_write_it(self) -> None:
        untyped = CALL.replace("<string>", "").replace("</string>", "")
        spaces = (CALL.replace("\n", space) for space in ("", "\r\n\t "))
        for text in (CALL, untyped, *spaces, CALL.partition(">")[2]):
            document = text.strip().encode()
            self.assertEqual(xmlrpc.plain_call(document), (METHOD, list(PARAMS)), text)
            self.assertEqual(xmlrpc.decode_call(document), (METHOD, list(PARAMS)), text)

    def test_what_needs_a_parser(self) -> None:
        for document in (
            b"",
            dumps((*PARAMS, 1), METHOD).encode(),
            dumps(("<b>", "x"), METHOD).encode(),
            dumps(("é", "x"), METHOD).encode(),
            CALL.replace("1.0", "1.1").encode(),
            CALL.encode("utf-16"),
            b"\xef\xbb\xbf" + CALL.encode(),
            CALL.replace("site", "]]>").encode(),
            CALL.replace("<value>", "<Value>").encode(),
            CALL.replace("</string>", "", 1).encode(),
            CALL.replace("A site", "x" * 100_000).encode(),
            CALL.replace("<params>", "<params>\x0b").encode(),
        ):
            self.assertIsNone(xmlrpc.plain_call(document), document[:200])
        for charset in ("utf-16", "utf-7", "cp037", "no-such", ""):
            self.assertIsNone(xmlrpc.plain_call(CALL.encode(), charset), charset)

    def assert_same(self, document: bytes, charset: str | None = None) -> None:
        read = xmlrpc.plain_call(document, charset)
        if read is not None:
            self.assertEqual(read, xmlrpc.decode_call(document, charset))

    @settings(max_examples=examples(100), deadline=None)
    @given(st.floats(0, 1), st.integers(0, 12), pieces, charsets)
    def test_it_is_what_the_parser_reads(
        self, where: float, cut: int, insert: str, charset: str | None
    ) -> None:
        for text in (CALL, dumps(("", "x", ""), "a.b")):
            start = int(where * len(text))
            self.assert_same((text[:start] + insert + text[start + cut :]).encode(), charset)

    @settings(max_examples=examples(150), deadline=None)
    @given(pieces, pieces, pieces, st.text(st.characters(max_codepoint=300), max_size=9))
    def test_of_made_up_calls(self, before: str, between: str, after: str, value: str) -> None:
        params = f"<params><param><value>{value}</value></param></params>"
        call = f"<methodCall><methodName>a.b</methodName>{between}{params}</methodCall>"
        self.assert_same(f"{before}{call}{after}".encode())
