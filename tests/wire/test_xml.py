from __future__ import annotations

import codecs
import time
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire import xml

LAUGHS = b"""<?xml version="1.0"?>
<!DOCTYPE lol [
  <!ENTITY lol "lol">
  <!ENTITY lol2 "&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;">
  <!ENTITY lol3 "&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;">
  <!ENTITY lol4 "&lol3;&lol3;&lol3;&lol3;&lol3;&lol3;&lol3;&lol3;&lol3;">
]>
<lol>&lol4;</lol>"""


class EncodingTests(SynchronousTestCase):
    def test_encodings(self) -> None:
        """Each row has a document, the HTTP charset, and the text that must be read."""
        utf_16 = '<?xml version="1.0" encoding="utf-16"?><a>ж</a>'
        cases: list[tuple[bytes, str | None, str]] = [
            ("<a>ж</a>".encode(), None, "ж"),
            ("<a>ж</a>".encode("windows-1251"), "windows-1251", "ж"),
            ("<a>ж</a>".encode("windows-1251"), "CP1251", "ж"),
            ("<?xml version='1.0' encoding='cp1251'?><a>ж</a>".encode("cp1251"), "utf-8", "ж"),
            ("<?xml version='1.0' encoding='koi8-r'?><a>ж</a>".encode("koi8-r"), None, "ж"),
            ("<?xml version='1.0' encoding='latin-1'?><a>é</a>".encode("latin-1"), None, "é"),
            ("<a>é</a>".encode("latin-1"), "latin-1", "é"),
            ("<a>ж</a>".encode(), "no-such-charset", "ж"),
            ("<a>ж</a>".encode(), "rot13", "ж"),
            ("<a>ж</a>".encode(), "", "ж"),
            ("<a>ж</a>".encode(), "\0ж", "ж"),
            (b"\xef\xbb\xbf" + "<a>ж</a>".encode(), "latin-1", "ж"),
            (b"\xef\xbb\xbf" + "<?xml version='1.0' encoding='l1'?><a>ж</a>".encode(), None, "ж"),
            (utf_16.encode("utf-16"), None, "ж"),
            (utf_16.encode("utf-16"), "utf-8", "ж"),
            (utf_16.encode("utf-16-le"), "utf-8", "ж"),
            (utf_16.encode("utf-16-be"), None, "ж"),
            (codecs.BOM_UTF16_BE + "<a>ж</a>".encode("utf-16-be"), "utf-8", "ж"),
            ("<a>ж</a>".encode("utf-16-le"), "utf-16le", "ж"),
            # a declaration that must be wrong
            (utf_16.encode(), None, "ж"),
            (utf_16.encode("windows-1251"), "windows-1251", "ж"),
        ]
        for document, charset, text in cases:
            self.assertEqual(xml.parse(document, charset).text, text, (document, charset))

    def test_bytes_that_are_not_in_the_encoding(self) -> None:
        for document in (b"<a>\xe6</a>", b'<?xml version="1.0" encoding="nope"?><a/>'):
            self.assertRaises(xml.MalformedXML, xml.parse, document)

    def test_white_space_before_the_declaration(self) -> None:
        for lead in (b"\n", b"\r\n \t", b"\xef\xbb\xbf\n", b"\xef\xbb\xbf"):
            root = xml.parse(lead + b'<?xml version="1.0"?><a>x</a>')
            self.assertEqual(root.text, "x", lead)


class TreeTests(SynchronousTestCase):
    def test_comments_and_instructions_are_gone(self) -> None:
        root = xml.parse(b"<!-- 1 --><?x y?><a>b<!-- 2 -->c<?d e?>f<![CDATA[<g>]]></a><!-- 3 -->")
        self.assertEqual(root.text, "bcf<g>")
        self.assertEqual(list(root), [])

    def test_names(self) -> None:
        root = xml.parse(b'<x:a xmlns:x="urn:x"><b/></x:a>')
        self.assertEqual((xml.namespace(root), xml.local_name(root)), ("urn:x", "a"))
        self.assertEqual((xml.namespace(root[0]), xml.local_name(root[0])), ("", "b"))

    def test_describe(self) -> None:
        root = xml.parse(b"<a>\n\n<" + b"b" * 300 + b"/></a>")
        self.assertEqual(xml.describe(root[0]), "line 3: " + "b" * 60)

    def test_has_text(self) -> None:
        cases = {b"<a/>": False, b"<a> <b/>\n</a>": False, b"<a>x</a>": True, b"<a><b/>x</a>": True}
        for document, expected in cases.items():
            self.assertEqual(xml.has_text(xml.parse(document)), expected, document)

    def test_in_threads(self) -> None:
        documents = [b"<a>%d</a>" % number for number in range(200)]
        with ThreadPoolExecutor(4) as pool:
            found = [root.text for root in pool.map(xml.parse, documents)]
        self.assertEqual(found, [str(number) for number in range(200)])


class RefusalTests(SynchronousTestCase):
    def refusal(self, document: bytes) -> str:
        error: xml.MalformedXML = self.assertRaises(xml.MalformedXML, xml.parse, document)
        return error.reason

    def test_doctype(self) -> None:
        for document in (
            b"<!DOCTYPE a><a/>",
            b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
            b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
            b'<!DOCTYPE a SYSTEM "http://127.0.0.1:9/a.dtd"><a/>',
            b'<!DOCTYPE a [<!ATTLIST a b CDATA "c">]><a/>',
            LAUGHS,
        ):
            self.assertIn("DOCTYPE", self.refusal(document))

    def test_doctype_in_any_encoding_and_behind_anything(self) -> None:
        """Each row has a document and the HTTP charset."""
        plain = "<!-- <a> --><?x <a> ?>\n<!DOCTYPE a [<!ENTITY b 'c'>]><a/>"
        declared = f'<?xml version="1.0" encoding="utf-16"?>{plain}'
        # Without its encoding, the bytes of this comment look as if it ended early.
        hidden = "<!-- \u2d2d\u3e3c\u6161 --><!DOCTYPE a [<!ENTITY b 'c'>]><a/>"
        cases: list[tuple[bytes, str | None]] = [
            (plain.encode(), None),
            (codecs.BOM_UTF8 + plain.encode(), None),
            (b"\n\n" + plain.encode(), "latin-1"),
            (plain.encode("utf-16"), None),
            (declared.encode("utf-16-le"), None),
            (declared.encode("utf-16-be"), None),
            (hidden.encode("utf-16-be"), "utf-16be"),
            (codecs.BOM_UTF16_BE + hidden.encode("utf-16-be"), None),
            (plain.encode("utf-32-le"), "utf-32le"),
            (plain.encode("utf-7"), "utf-7"),
            (b"<!--" + b"x" * 10_000 + b"-->" + plain.encode(), None),
        ]
        for document, charset in cases:
            error = self.assertRaises(xml.MalformedXML, xml.parse, document, charset)
            self.assertIn("DOCTYPE", error.reason, (document[:200], charset))

    def test_a_doctype_is_refused_before_it_is_read(self) -> None:
        """libxml2 needed up to half a minute to parse these."""
        one_list = b"<!ATTLIST a " + b"".join(b"a%d CDATA #IMPLIED " % n for n in range(45_000))
        many_lists = b"".join(b'<!ATTLIST a a%d CDATA "x">' % n for n in range(35_000))
        begun = time.process_time()
        for inside in (one_list + b">", many_lists):
            document = b"<!DOCTYPE a [" + inside + b"]><a/>"
            self.assertIn("DOCTYPE", self.refusal(document))
            self.assertIn("DOCTYPE", self.refusal(document.decode().encode("utf-16")))
        self.assertLess(time.process_time() - begun, 2)

    def test_doctype_inside_of_text_is_text(self) -> None:
        feed = "<!DOCTYPE rss><rss/>"
        self.assertEqual(xml.parse(b"<a><![CDATA[" + feed.encode() + b"]]></a>").text, feed)

    def test_nesting(self) -> None:
        self.assertEqual(len(xml.parse(b"<a>" * 50 + b"</a>" * 50)), 1)
        self.assertIn("50 deep", self.refusal(b"<a>" * 51 + b"</a>" * 51))
        self.refusal(b"<a>" * 100_000)
        xml.parse(b"<a><b/></a>", max_depth=2)
        self.assertRaises(xml.MalformedXML, xml.parse, b"<a><b><c/></b></a>", max_depth=2)

    def test_number_of_elements(self) -> None:
        xml.parse(b"<a>" + b"<b/>" * (xml.MAX_ELEMENTS - 1) + b"</a>")
        many = b"<a>" + b"<b/>" * xml.MAX_ELEMENTS + b"</a>"
        self.assertIn(f"more than {xml.MAX_ELEMENTS} elements", self.refusal(many))
        xml.parse(many, max_elements=xml.MAX_ELEMENTS + 1)

    def test_attributes(self) -> None:
        def attributes(number: int) -> bytes:
            return b" ".join(b'a%d=""' % index for index in range(number))

        xml.parse(b"<b><a " + attributes(xml.MAX_ATTRIBUTES) + b"/></b>")
        reason = self.refusal(b"<b><a " + attributes(xml.MAX_ATTRIBUTES + 1) + b"/></b>")
        self.assertIn("more than 50 attributes", reason)

    def test_reasons_tell_the_line_and_what(self) -> None:
        cases = {
            b"": "line 1: Document is empty",
            b"\n\n": "Start tag expected",
            b"hello": "line 1: Start tag expected",
            b"<a>\n<b>\n</a>": "line 3: Opening and ending tag mismatch: b line 2 and a",
            b"\n\n<a>\n</b>": "line 4: Opening and ending tag mismatch",
            b"<a>&nbsp;</a>": "line 1: Entity 'nbsp' not defined",
            b"<a>&#0;</a>": "line 1: ",
            b"<a>\x0b</a>": "line 1: ",
            b"<a/><b/>": "line 1: Extra content at the end of the document",
            b"<a>\xff</a>": "line 1: ",
        }
        for document, expected in cases.items():
            self.assertIn(expected, self.refusal(document), document)

    @settings(max_examples=150, deadline=None)
    @given(st.binary(), st.none() | st.text(max_size=12))
    def test_anything(self, document: bytes, charset: str | None) -> None:
        try:
            root = xml.parse(document, charset)
        except xml.MalformedXML as error:
            self.assertTrue(error.reason)
        else:
            self.assertIsInstance(root, etree._Element)
