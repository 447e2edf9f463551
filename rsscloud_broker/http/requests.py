"""Reads the parts of a request that front doors need, and sets those of their answers."""

from __future__ import annotations

import codecs
import re
from binascii import a2b_qp
from collections.abc import Callable
from io import BytesIO

from twisted.web.http import Request as HTTPRequest
from twisted.web.server import Request

from rsscloud_broker.wire.origin import HEADER, TIME_HEADER, Passage, read_origin, read_time
from rsscloud_broker.wire.text import decode, parse_number

_XML_BEGINNINGS = (b"<", codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"\0<")

#: The passage of most pings: no other broker has passed them on.
MADE_HERE = Passage()

_CHARSET = re.compile(r""";\s*charset\s*=\s*["']?([A-Za-z][A-Za-z0-9_.:-]{0,40})""", re.IGNORECASE)


#: A percent sign that escapes nothing; and how many of those a field may have: they take time.
_BARE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
MAX_BARE = 10_000


class RequestError(Exception):
    """A request gets an answer that says what is wrong with it, in sentences.

    :ivar headers: further headers; ``_`` in a name stands for ``-``.
    """

    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


def fields_of(text: bytes) -> dict[bytes, list[bytes]]:
    """Parse a form or a query into the values of each field, by its name.

    Only ``&`` separates fields; a ``;`` is part of a field (URL Standard,
    application/x-www-form-urlencoded).  A field without ``=``, such as ``?wsdl``, has an empty
    value.

    :raises RequestError: there are very many ``%`` that escape nothing.
    """
    found: dict[bytes, list[bytes]] = {}
    for pair in filter(None, text.replace(b"+", b" ").split(b"&")):
        name, _, value = pair.partition(b"=")
        found.setdefault(_unquoted(name), []).append(_unquoted(value))
    return found


def _unquoted(text: bytes) -> bytes:
    """Decode percent-encoded bytes by writing them as quoted-printable, which C code decodes.

    The standard library takes seconds, and a hundred times the memory, for a megabyte of ``%``.
    """
    if b"%" not in text:
        return text
    text, count = _BARE.subn(b"%25", text, MAX_BARE)
    if count == MAX_BARE:
        raise RequestError(400, 'A "%" in a form or a query must be sent as "%25".')
    return a2b_qp(text.replace(b"=", b"=3D").replace(b"%", b"="))


def all_parameters(
    request: Request, read: Callable[[bytes], str] = decode
) -> list[tuple[str, str]]:
    """The parameters of the query and the form: pairs of a name, in lower case, and a value.

    :param read: decodes the bytes of a value.
    """
    fields = (request.args or {}).items()
    return [(decode(name).lower(), read(value)) for name, values in fields for value in values]


def parameters(request: Request) -> dict[str, str]:
    """The parameters of the query and the form by name, in lower case; of several, the first."""
    return dict(reversed(all_parameters(request)))


def parameter(request: Request, name: str) -> str:
    """The first value of a parameter in the query or the form; empty if there is none.

    Bytes that are not UTF-8 are replaced by the replacement character, and so is NUL, which
    PostgreSQL refuses.
    """
    values: list[bytes] = (request.args or {}).get(name.encode("ascii"), [b""])
    return values[0].decode("utf-8", "replace").replace("\0", "\ufffd")


def number_parameter(request: Request, name: str) -> int:
    """A parameter that is a whole number, such as an id; 0 if it is absent or no such number."""
    return parse_number(parameter(request, name)) or 0


def raw_parameter(request: Request, name: str) -> bytes | None:
    """The bytes of the first value of a parameter in the query or the form; None if it is absent.

    :param name: upper and lower case do not matter.
    """
    wanted = name.lower().encode("ascii")
    fields = (request.args or {}).items()
    return next((values[0] for key, values in fields if key.lower() == wanted), None)


def accepted_codings(request: Request) -> bytes:
    """The values of Accept-Encoding, for ``wire.codings.allows_gzip``; empty if there are none."""
    return header(request, "accept-encoding").encode("latin-1")


def header(request: HTTPRequest, name: str) -> str:
    """The values of a header, joined by commas as RFC 9110 allows; empty if it is absent.

    Bytes that are not ASCII have no meaning in a header; they are read as latin-1.
    """
    values = request.requestHeaders.getRawHeaders(name.encode("ascii"), ())
    return ", ".join(value.decode("latin-1") for value in values)


def bearer_token(request: Request) -> str:
    """The token in the header Authorization (RFC 6750, section 2.1); empty if there is none."""
    scheme, _, token = header(request, "authorization").strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def body_of(request: Request) -> bytes:
    """The bytes of the body; it can be read any number of times."""
    if isinstance(request.content, BytesIO):
        return request.content.getvalue()
    if request.content is None:
        return b""
    request.content.seek(0)
    body: bytes = request.content.read()
    request.content.seek(0)
    return body


def begins_as_xml(body: bytes) -> bool:
    """Whether a body begins like an XML document, in UTF-8 or UTF-16."""
    return body.lstrip().startswith((codecs.BOM_UTF8, *_XML_BEGINNINGS))


def media_type(request: Request) -> str:
    """The media type of the Content-Type header, in lower case; empty if there is none."""
    return header(request, "content-type").partition(";")[0].strip().lower()


def charset(request: Request) -> str | None:
    """The charset parameter of the Content-Type header, in lower case; None if there is none."""
    found = _CHARSET.search(header(request, "content-type"))
    return found[1].lower() if found else None


def client_address(request: Request) -> str:
    """The address of the client, which may be behind a trusted proxy: see ``limits``."""
    return str(request.getClientAddress().host)


def passage(request: Request) -> Passage:
    """What a broker that passes a ping on says about it.

    :raises BadOrigin: the headers cannot be used.
    """
    via = header(request, HEADER)
    if not via:
        return MADE_HERE
    return Passage(read_origin(via), read_time(header(request, TIME_HEADER)))


def respond(request: Request, status: int, content_type: str, body: bytes, **headers: str) -> bytes:
    """Set the status and the headers of an answer, and return its body.

    :param headers: more headers; ``_`` in a name stands for ``-``.
    """
    request.setResponseCode(status)
    request.setHeader("content-type", content_type)
    for name, value in headers.items():
        request.setHeader(name.replace("_", "-"), value)
    return body


def plain(request: Request, status: int, text: str, **headers: str) -> bytes:
    """Set the status and the headers of a plain-text answer, and return its body."""
    return respond(request, status, "text/plain; charset=utf-8", f"{text}\n".encode(), **headers)
