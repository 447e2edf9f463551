"""Forms with files: as clients send them, broken ones, and large ones."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.web.file_forms import MAX_FIELD_BYTES, MAX_FIELDS, UnreadableForm, read
from tests.web.file_form import BOUNDARY, MULTIPART, multipart


class FormTests(SynchronousTestCase):
    def assert_refused(self, body: bytes, text: str, content_type: str = MULTIPART) -> None:
        error = self.assertRaises(UnreadableForm, read, content_type, body)
        self.assertIn(text, str(error))

    def test_fields_and_files(self) -> None:
        png = b"\x89PNG\r\n--x"
        body = multipart(("h", "entry"), ("photo[]", ("a.png", png)), ("h", "Grüße"))
        form = read(MULTIPART, body)
        self.assertEqual(form.pairs, (("h", "entry"), ("h", "Grüße")))
        self.assertEqual(form.fields, {"h": "entry"})
        self.assertEqual(form.files, (("photo[]", "a.png", png),))
        self.assertEqual(form.file, ("a.png", png))

    def test_files(self) -> None:
        for why, sent, found in (
            ("names stay as they came", ("../../x", b"1"), ("../../x", b"1")),
            ("what a browser sends if nobody chose one", ("", b""), None),
            ("an empty file is a file", ("empty.txt", b""), ("empty.txt", b"")),
        ):
            self.assertEqual(read(MULTIPART, multipart(("file", sent))).file, found, why)

    def test_content_types_and_encodings_as_clients_write_them(self) -> None:
        body = multipart(("content", "x")).replace(b"\r\n\r\nx", b"\r\n\r\nGr\xfc\xdfe")
        for written in (MULTIPART, f'Multipart/Form-Data; boundary="{BOUNDARY}"'):
            self.assertEqual(read(written, body).fields, {"content": "Grüße"})

    def test_no_form(self) -> None:
        for kind in (
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "text/plain; boundary=x",
        ):
            self.assert_refused(b"a=b", "boundary", kind)

    def test_broken_forms(self) -> None:
        whole = multipart(("a", "1"), ("file", ("x", b"2")))
        for size in range(0, len(whole) - 2, 7):
            self.assert_refused(whole[:size], "cannot be read")
        self.assert_refused(b"nonsense", "cannot be read")
        self.assert_refused(whole.replace(b"form-data", b"attachment"), "cannot be read")
        self.assert_refused(whole.replace(b'name="a"', b'name="\xff"'), "cannot be read")

    def test_bounds(self) -> None:
        self.assert_refused(multipart(*[("a", "1")] * (MAX_FIELDS + 1)), "more than 50 fields")
        too_large = multipart(("a", "x" * (MAX_FIELD_BYTES + 1)))
        self.assert_refused(too_large, "'a' has 262,145 bytes; a field may have 262,144")
        large = read(MULTIPART, multipart(("a", ("x", b"x" * (MAX_FIELD_BYTES + 1)))))
        self.assertEqual(len(large.files[0][2]), MAX_FIELD_BYTES + 1)
