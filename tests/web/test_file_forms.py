"""Forms with files: as clients send them, broken ones, and large ones."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.web.file_forms import MAX_FIELD, MAX_PARTS, File, InvalidForm, read_form

BOUNDARY = "----553d9cee2030456a81931fb708ece92c"
MULTIPART = f"multipart/form-data; boundary={BOUNDARY}"


def multipart(*parts: tuple[str, str | tuple[str, bytes]]) -> bytes:
    """A form with files: pairs of a name and a value, or of the name and bytes of a file."""
    lines: list[bytes] = []
    for name, value in parts:
        lines.append(f"--{BOUNDARY}".encode())
        about = f'Content-Disposition: form-data; name="{name}"'
        if isinstance(value, str):
            lines += [about.encode(), b"", value.encode()]
        else:
            filename, data = value
            lines += [f'{about}; filename="{filename}"'.encode()]
            lines += [b"Content-Type: application/octet-stream", b"", data]
    return b"\r\n".join([*lines, f"--{BOUNDARY}--".encode(), b""])


class FormTests(SynchronousTestCase):
    def assert_refused(self, body: bytes, text: str, content_type: str = MULTIPART) -> None:
        error = self.assertRaises(InvalidForm, read_form, body, content_type)
        self.assertIn(text, str(error))

    def test_fields_and_files(self) -> None:
        body = multipart(
            ("h", "entry"), ("photo[]", ("a.png", b"\x89PNG\r\n--x")), ("content", "Grüße")
        )
        form = read_form(body, MULTIPART)
        self.assertEqual(form.fields, (("h", "entry"), ("content", "Grüße")))
        self.assertEqual(form.files, (("photo[]", File("a.png", b"\x89PNG\r\n--x")),))
        self.assertEqual(form.value("content"), "Grüße")
        self.assertEqual(form.value("photo[]"), "")
        self.assertEqual(form.file("photo[]"), File("a.png", b"\x89PNG\r\n--x"))
        self.assertIsNone(form.file("content"))

    def test_the_names_of_files_stay_as_they_came(self) -> None:
        form = read_form(multipart(("file", ("../../x", b"1"))), MULTIPART)
        self.assertEqual(form.file("file"), File("../../x", b"1"))

    def test_a_browser_sends_an_empty_file_if_nobody_chose_one(self) -> None:
        self.assertIsNone(read_form(multipart(("file", ("", b""))), MULTIPART).file("file"))

    def test_an_empty_file_is_a_file(self) -> None:
        form = read_form(multipart(("file", ("empty.txt", b""))), MULTIPART)
        self.assertEqual(form.file("file"), File("empty.txt", b""))

    def test_old_encodings(self) -> None:
        body = multipart(("content", "x")).replace(b"\r\n\r\nx", b"\r\n\r\nGr\xfc\xdfe")
        self.assertEqual(read_form(body, MULTIPART).value("content"), "Grüße")

    def test_no_form(self) -> None:
        self.assert_refused(b"a=b", "multipart/form-data", "application/x-www-form-urlencoded")
        self.assert_refused(b"", "boundary", "multipart/form-data")
        self.assert_refused(b"", "cannot be read")
        self.assert_refused(b"nonsense", "cannot be read")

    def test_broken_forms(self) -> None:
        whole = multipart(("a", "1"), ("file", ("x", b"2")))
        for size in range(0, len(whole) - 2, 7):
            self.assert_refused(whole[:size], "cannot be read")
        self.assert_refused(whole.replace(b"form-data", b"attachment"), "cannot be read")
        self.assert_refused(whole.replace(b'name="a"', b'name="\xff"'), "cannot be read")

    def test_bounds(self) -> None:
        self.assert_refused(multipart(*[("a", "1")] * (MAX_PARTS + 1)), "cannot be read")
        self.assert_refused(multipart(("a", "x" * (MAX_FIELD + 1))), "at most")
        large = read_form(multipart(("a", ("x", b"x" * (MAX_FIELD + 1)))), MULTIPART)
        self.assertEqual(len(large.files[0][1].data), MAX_FIELD + 1)
