"""Reads forms with files (``multipart/form-data``, RFC 7578).

The site of the broker leaves these to the front doors that take them.  The whole body is in memory
already, so the library ``multipart`` parses it in one pass.  Bodies of more than a few kilobytes
should be read in a thread.
"""

from __future__ import annotations

from typing import Final

from attrs import field, frozen
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from rsscloud_broker.errors import Refused
from rsscloud_broker.wire.text import decode

#: How many fields and files a form may have.
MAX_PARTS: Final = 1000

#: How many bytes the value of a field may have.  A file may be as large as the body.
MAX_FIELD: Final = 256 * 1024


class InvalidForm(Refused):
    """The body of a request is not a form as its Content-Type says.  The text says why."""


@frozen
class File:
    """A file in a form.

    :ivar name: what the client calls the file; it may be anything.
    :ivar data: the bytes of the file.
    """

    name: str
    data: bytes = field(repr=False)


@frozen
class Form:
    """A form.

    :ivar fields: the names and values of its fields, in order.
    :ivar files: the names of the fields with files, each with its file, in order.
    """

    fields: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, File], ...]

    def value(self, name: str) -> str:
        """The first value of a field; empty if there is none."""
        return next((value for each, value in self.fields if each == name), "")

    def file(self, name: str) -> File | None:
        """The first file of a field; None if there is none.

        Browsers send an empty file without a name if nobody has chosen one; that is none.
        """
        return next((file for each, file in self.files if each == name), None)


def read_form(body: bytes, content_type: str) -> Form:
    """Read a form with files.

    :param content_type: the header Content-Type of the request.
    :raises InvalidForm: the body is no such form, or has too many parts.
    """
    kind, options = parse_options_header(content_type)
    boundary = options.get("boundary", "")
    if kind != "multipart/form-data" or not boundary:
        raise InvalidForm(
            "the Content-Type of a form with files must be multipart/form-data with a boundary"
        )
    fields: list[tuple[str, str]] = []
    files: list[tuple[str, File]] = []
    try:
        for name, filename, data in _parts(body, boundary):
            if filename is None:
                fields.append((name, decode(data)))
            elif filename or data:
                files.append((name, File(filename, data)))
    except (MultipartError, UnicodeError) as error:
        raise InvalidForm(f"the form cannot be read: {error}") from error
    return Form(tuple(fields), tuple(files))


def _parts(body: bytes, boundary: str) -> list[tuple[str, str | None, bytes]]:
    """The parts of a form: the name of each, that of its file if it is one, and its bytes.

    :raises MultipartError: the form breaks a rule.
    """
    parts: list[tuple[str, str | None, bytes]] = []
    name, filename, data = "", None, bytearray()
    with PushMultipartParser(boundary, max_segment_count=MAX_PARTS) as parser:
        for event in parser.parse(body):
            if isinstance(event, MultipartSegment):
                name, filename = event.name or "", event.filename
                data = bytearray()
            elif event is None:
                parts.append((name, filename, bytes(data)))
            else:
                data += event
                if filename is None and len(data) > MAX_FIELD:
                    raise InvalidForm(f"a field of a form has at most {MAX_FIELD} bytes")
    return parts
