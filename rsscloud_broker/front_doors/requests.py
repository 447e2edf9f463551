"""What front doors read from a request: its parameters, its caller."""

from __future__ import annotations

from email.message import Message

from twisted.web.server import Request

from rsscloud_broker.wire.text import decode


def parameters(request: Request) -> dict[str, str]:
    """The parameters of a query and a form, by name in lower case; the first of several."""
    return {
        decode(name).lower(): decode(values[0])
        for name, values in reversed((request.args or {}).items())
    }


def body_of(request: Request) -> bytes:
    """The bytes of the body."""
    return b"" if request.content is None else bytes(request.content.read())


def charset(request: Request) -> str | None:
    """The charset parameter of the Content-Type, if there is one."""
    message = Message()
    message["content-type"] = request.getHeader("content-type") or ""
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
