"""Tests how forms and queries are parsed."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from hypothesis import given
from hypothesis.strategies import binary
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.http.requests import MAX_BARE, RequestError, fields_of


class FieldsTests(SynchronousTestCase):
    def test_fields(self) -> None:
        expected = {b"a": [b"1", b"A"], b"b": [b"x y z"], b"wsdl": [b""], b"c": [b"a;b"]}
        self.assertEqual(fields_of(b"a=1&b=x%20y+z&a=%41&wsdl&c=a;b"), expected)

    @given(binary(max_size=30))
    def test_any_bytes_are_decoded_as_the_standard_library_does(self, text: bytes) -> None:
        value = text.translate(None, b"&+")
        self.assertEqual(fields_of(b"x=" + value), {b"x": [unquote_to_bytes(value)]})

    def test_few_percent_signs_may_be_bare(self) -> None:
        self.assertEqual(fields_of(b"x=" + b"%" * 9 + b"=%41"), {b"x": [b"%" * 9 + b"=A"]})
        self.assertRaises(RequestError, fields_of, b"x=" + b"%" * MAX_BARE)
