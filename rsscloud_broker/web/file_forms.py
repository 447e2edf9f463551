"""Reads forms with files (``multipart/form-data``, RFC 7578).

The site of the broker leaves these to the front doors that take them: see ``Route.content_types``.

The whole body is in memory already, so the library ``multipart`` parses it in one pass.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from attrs import frozen
from multipart import (
    MultipartError,
    MultipartSegment,
    ParserLimitReached,
    PushMultipartParser,
    parse_options_header,
)
from twisted.web.server import Request

from rsscloud_broker.errors import Refused
from rsscloud_broker.http.requests import body_of, header, media_type
from rsscloud_broker.wire.text import decode

#: How many fields a form has at most, and how many bytes a field that is no file.
MAX_FIELDS: Final = 50
MAX_FIELD_BYTES: Final = 256 * 1024


class UnreadableForm(Refused):
    """A form cannot be read.  The text says why."""


@frozen
class Form:
    """A form that came in.

    :ivar pairs: the names and values of its fields, in order.
    :ivar files: its files, in order: for each the name of the field, the name that the client gave
        the file, which may be anything, and the bytes.
    """

    pairs: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str, bytes], ...]

    @property
    def fields(self) -> dict[str, str]:
        """The values by name; of several the first."""
        return dict(reversed(self.pairs))

    @property
    def file(self) -> tuple[str, bytes] | None:
        """The name and the bytes of the first file; None if none was chosen."""
        return self.files[0][1:] if self.files else None


def read(content_type: str, body: bytes) -> Form:
    """Read a form.  It takes a while: call it in a thread.

    :param content_type: the Content-Type header.
    :raises UnreadableForm: it is malformed, or exceeds a limit.
    """
    kind, options = parse_options_header(content_type)
    boundary = options.get("boundary", "")
    if kind != "multipart/form-data" or not boundary:
        raise UnreadableForm("the Content-Type of the form names no boundary between its fields")
    pairs: list[tuple[str, str]] = []
    files: list[tuple[str, str, bytes]] = []
    try:
        for segment, data in _segments(boundary, body):
            name = segment.name or ""
            if segment.filename is None:
                if len(data) > MAX_FIELD_BYTES:
                    raise UnreadableForm(
                        f"the field {name!r} has {len(data):,} bytes; a field may have "
                        f"{MAX_FIELD_BYTES:,}"
                    )
                pairs.append((name, decode(data)))
            elif segment.filename or data:  # browsers send neither if nobody chose a file
                files.append((name, segment.filename, data))
    except ParserLimitReached as error:
        raise UnreadableForm(f"the form has more than {MAX_FIELDS} fields") from error
    except (MultipartError, UnicodeError) as error:
        raise UnreadableForm(f"the form cannot be read: {error}; send it again") from error
    return Form(tuple(pairs), tuple(files))


async def spread_fields(request: Request, in_thread: Callable[..., Awaitable[Any]]) -> Form | None:
    """Put the fields of a form with files where those of other forms are.

    :returns: the form; None if the request has none with files.
    :raises UnreadableForm: see ``read``.
    """
    if media_type(request) != "multipart/form-data":
        return None
    form: Form = await in_thread(read, header(request, "content-type"), body_of(request))
    fields = {name.encode(): [value.encode()] for name, value in form.fields.items()}
    request.args = {**(request.args or {}), **fields}
    return form


def _segments(boundary: str, body: bytes) -> list[tuple[MultipartSegment, bytes]]:
    """The parts of a form, each with its headers and its bytes."""
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
