"""Reads forms with files (``multipart/form-data``, RFC 7578), which the site leaves to this
application.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen
from multipart import (
    MultipartError,
    MultipartSegment,
    ParserLimitReached,
    PushMultipartParser,
    parse_options_header,
)

from rsscloud_broker.errors import Refused

#: How many fields a form has at most, and how many bytes a field that is no file.
MAX_FIELDS: Final = 50
MAX_FIELD_BYTES: Final = 256 * 1024


class UnreadableForm(Refused):
    """A form cannot be read.  The text says why."""


@frozen
class Form:
    """A form that came in.

    :ivar fields: the values by name; of several the first.
    :ivar file: the name and the bytes of the file that was chosen; None if none was.
    """

    fields: dict[str, str]
    file: tuple[str, bytes] | None = None


def read(content_type: str, body: bytes) -> Form:
    """Read a form.  It takes a while: call it in a thread.

    :param content_type: the Content-Type header.
    :raises UnreadableForm: it is malformed, or exceeds a limit.
    """
    kind, options = parse_options_header(content_type)
    boundary = options.get("boundary", "")
    if kind != "multipart/form-data" or not boundary:
        raise UnreadableForm("the Content-Type of the form names no boundary between its fields")
    fields: dict[str, str] = {}
    file: tuple[str, bytes] | None = None
    try:
        for segment, data in _segments(boundary, body):
            if segment.filename is None:
                if len(data) > MAX_FIELD_BYTES:
                    raise UnreadableForm(
                        f"the field {segment.name!r} has {len(data):,} bytes; a field may have "
                        f"{MAX_FIELD_BYTES:,}"
                    )
                fields.setdefault(segment.name, data.decode("utf-8", "replace"))
            elif (segment.filename or data) and file is None:
                file = (segment.filename, data)
    except ParserLimitReached as error:
        raise UnreadableForm(f"the form has more than {MAX_FIELDS} fields") from error
    except MultipartError as error:
        raise UnreadableForm(f"the form cannot be read: {error}; send it again") from error
    return Form(fields, file)


def _segments(boundary: str, body: bytes) -> list[tuple[MultipartSegment, bytes]]:
    found: list[tuple[MultipartSegment, bytes]] = []
    pieces: list[bytes] = []
    segment: MultipartSegment | None = None
    with PushMultipartParser(boundary, max_segment_count=MAX_FIELDS, strict=False) as parser:
        for event in parser.parse(body):
            if isinstance(event, MultipartSegment):
                segment, pieces = event, []
            elif event is not None:
                pieces.append(bytes(event))
            elif segment is not None:
                found.append((segment, b"".join(pieces)))
    return found
