"""Calls in plain ASCII are read without a parser, with the same result."""

from __future__ import annotations

from xmlrpc.client import dumps

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire.xmlrpc import decode_call, plain_call
from tests import examples

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
    def test_as_clients_write_it(self) -> None:
        untyped = CALL.replace("<string>", "").replace("</string>", "")
        together = CALL.replace("\n", "")
        for text in (
            CALL,
            untyped,
            together,
            CALL.replace("\n", "\r\n\t "),
            CALL.partition(">")[2],
        ):
            document = text.strip().encode()
            self.assertEqual(plain_call(document), (METHOD, list(PARAMS)), text)
            self.assertEqual(decode_call(document), (METHOD, list(PARAMS)), text)

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
            self.assertIsNone(plain_call(document), document[:200])
        for charset in ("utf-16", "utf-7", "cp037", "no-such", ""):
            self.assertIsNone(plain_call(CALL.encode(), charset), charset)

    @settings(max_examples=examples(100), deadline=None)
    @given(st.floats(0, 1), st.integers(0, 12), pieces, charsets)
    def test_it_is_what_the_parser_reads(
        self, where: float, cut: int, insert: str, charset: str | None
    ) -> None:
        for text in (CALL, dumps(("", "x", ""), "a.b")):
            start = int(where * len(text))
            document = (text[:start] + insert + text[start + cut :]).encode()
            read = plain_call(document, charset)
            if read is not None:
                self.assertEqual(read, decode_call(document, charset))

    @settings(max_examples=examples(150), deadline=None)
    @given(pieces, pieces, pieces, st.text(st.characters(max_codepoint=300), max_size=9))
    def test_of_made_up_calls(self, before: str, between: str, after: str, value: str) -> None:
        document = (
            f"{before}<methodCall><methodName>a.b</methodName>{between}<params><param><value>"
            f"{value}</value></param></params></methodCall>{after}"
        ).encode()
        read = plain_call(document)
        if read is not None:
            self.assertEqual(read, decode_call(document))
