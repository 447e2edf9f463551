"""What front doors read from a request: its parameters, its caller."""

from __future__ import annotations

from email.message import Message
from urllib.parse import unquote_to_bytes

from twisted.web.http import Request as HTTPRequest
from twisted.web.server import Request

from rsscloud_broker.wire.text import decode


def all_parameters(request: Request) -> list[tuple[str, str]]:
    """The parameters of a query and a form: names, in lower case, and values.

    A word of the query without ``=``, such as ``?wsdl``, has an empty value.
    """
    words = [word for word in request.uri.partition(b"?")[2].split(b"&") if b"=" not in word]
    pairs = [
        *((name, value) for name, values in (request.args or {}).items() for value in values),
        *((unquote_to_bytes(word), b"") for word in words if word),
    ]
    return [(decode(name).lower(), decode(value)) for name, value in pairs]


def parameters(request: Request) -> dict[str, str]:
    """The parameters of a query and a form by name, in lower case; the first of several."""
    return dict(reversed(all_parameters(request)))


def header(request: HTTPRequest, name: str) -> str | None:
    """The values of a header, joined by commas as RFC 9110 allows; None if it is absent.

    Bytes that are not ASCII, which have no meaning there, are read as latin-1.
    """
    values = request.requestHeaders.getRawHeaders(name.encode("ascii"))
    return None if values is None else ", ".join(value.decode("latin-1") for value in values)


def body_of(request: Request) -> bytes:
    """The bytes of the body."""
    return b"" if request.content is None else bytes(request.content.read())


def charset(request: Request) -> str | None:
    """The charset parameter of the Content-Type, if there is one."""
    message = Message()
    message["content-type"] = header(request, "content-type") or ""
    return message.get_content_charset()


def caller(request: Request) -> str:
    """The address that a request came from, as the site has found it out."""
    return str(request.getClientAddress().host)


def respond(request: Request, status: int, content_type: str, body: bytes, **headers: str) -> bytes:
    """Set what is around a body; give the body."""
    request.setResponseCode(status)
    request.setHeader("content-type", content_type)
    for name, value in headers.items():
        request.setHeader(name.replace("_", "-"), value)
    return body


def plain(request: Request, status: int, text: str, **headers: str) -> bytes:
    """A plain-text answer."""
    return respond(request, status, "text/plain; charset=utf-8", f"{text}\n".encode(), **headers)
