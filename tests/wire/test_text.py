from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire import text as codec

any_text = st.text(st.characters(codec=None, exclude_categories=()))


class ParseNumberTests(SynchronousTestCase):
    def test_numbers(self) -> None:
        for text, number in {"0": 0, "007": 7, "9" * 18: 10**18 - 1}.items():
            self.assertEqual(codec.parse_number(text), number)
        for text in ("", " 1", "1\n", "-1", "+1", "1.0", "1_000", "\u0661", "\u00b2", "9" * 19):
            self.assertIsNone(codec.parse_number(text), ascii(text))


class CleanTests(SynchronousTestCase):
    def test_cases(self) -> None:
        cases = {
            "": "",
            " \t\r\n ": "",
            "Scripting News": "Scripting News",
            "  two\r\nlines\there ": "two lines here",
            "a\0b\x07c\x1bd\x7fe\x80f\x9fg": "abcdefg",
            "next\x85line\u2028separator": "next line separator",
            "half \ud83d of a pair \udc00": "half  of a pair",
            "not\ufffe a\uffff character": "not a character",
            "日本\u3000語 🎉 \u00e9": "日本\u3000語 🎉 \u00e9",
            "<b>&amp;</b>": "<b>&amp;</b>",
        }
        for text, expected in cases.items():
            self.assertEqual(codec.clean(text), expected, ascii(text))

    @settings(max_examples=200)
    @given(any_text)
    def test_always_one_legal_line(self, text: str) -> None:
        cleaned = codec.clean(text)
        element = etree.Element("a")
        element.text = cleaned
        element.set("b", cleaned)
        again = etree.fromstring(etree.tostring(element, encoding="utf-8"))
        self.assertEqual(again.text or "", cleaned)
        self.assertEqual(again.get("b"), cleaned)
        self.assertLessEqual(len(cleaned.splitlines()), 1)
        self.assertEqual(codec.clean(cleaned), cleaned)

    def test_legal_keeps_lines(self) -> None:
        self.assertEqual(codec.legal("a\r\n\tb\0\x85\ufffe\ud800c"), "a\r\n\tb\x85c")


class SentenceTests(SynchronousTestCase):
    def test_sentences(self) -> None:
        for clause, expected in (
            ("the name is taken", "The name is taken."),
            ("don't", "Don't."),
            ("well-known names, such as these.", "Well-known names, such as these."),
            ("yes, it is", "Yes, it is."),
            ("http://localhost:8000/feed.xml cannot be read", None),
            ("https: is missing", "Https: is missing."),
            ("public_url is not set", None),
            ("saveRss takes three parameters", None),
            ("reader.example does not answer", None),
            ("'x' is no name", None),
            ("127.0.0.1 does not answer", None),
            ("is that so?", "Is that so?"),
            ("", "."),
        ):
            self.assertEqual(codec.sentence(clause), expected or f"{clause}.")


class DecodeTests(SynchronousTestCase):
    def test_cases(self) -> None:
        cases = {
            "Café".encode(): "Café",
            "Café".encode("latin-1"): "Café",
            "“quoted”".encode("windows-1252"): "“quoted”",
            b"\x81\xff": "\ufffdÿ",
        }
        for data, expected in cases.items():
            self.assertEqual(codec.decode(data), expected, data)

    @settings(max_examples=100)
    @given(st.binary())
    def test_anything(self, data: bytes) -> None:
        self.assertIsInstance(codec.decode(data), str)
        text = codec.decode_exactly(data)
        self.assertEqual(text.encode("utf-8", "surrogateescape"), data)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.assertRaises(UnicodeDecodeError, data.decode)
        else:
            self.assertEqual(text, data.decode())


class ScalarTests(SynchronousTestCase):
    def test_values(self) -> None:
        table: tuple[tuple[Callable[[str], Any], dict[str, Any], tuple[str, ...]], ...] = (
            (
                codec.to_integer,
                {"0": 0, " 42\n": 42, "+7": 7, "-9223372036854775808": -(2**63)},
                ("", "abc", "1.0", "1_000", "0x10", "٣", "9223372036854775808", "9" * 5000),
            ),
            (
                codec.to_boolean,
                {"1": True, " 0 ": False, "true": True, "FALSE": False},
                ("", "7", "yes", "-1", "01"),
            ),
            (
                codec.to_double,
                {"1": 1.0, "-12.5": -12.5, ".5": 0.5, "5.": 5.0, "1e-3": 0.001},
                ("", ".", "nan", "inf", "1e999", "1_0.0", "0x1p3", "1e", "12,5"),
            ),
            (
                codec.to_bytes,
                {" aGVs\n bG8= ": b"hello", "": b""},
                ("a", "aGVsbG8", "????", "é==="),
            ),
        )
        for read, good, bad in table:
            for text, expected in good.items():
                self.assertEqual(read(text), expected)
                self.assertIs(type(read(text)), type(expected))
            for text in bad:
                self.assertRaises(ValueError, read, text)
