"""A client of the site without sockets: bytes in, bytes out, from any address."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from http.client import HTTPMessage, HTTPResponse
from io import BytesIO
from socket import socket
from typing import Any, cast
from urllib.parse import quote_plus
from xml.sax.saxutils import escape

from attrs import frozen
from lxml import etree, html
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IAddress
from twisted.internet.testing import StringTransportWithDisconnection
from twisted.protocols.policies import ProtocolWrapper

from rsscloud_broker.http.answering import HTML

FORM = "application/x-www-form-urlencoded"


@frozen
class Answer:
    """A complete response."""

    status: int
    headers: HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8")

    @property
    def xml(self) -> etree._Element:
        return etree.fromstring(self.body)

    @property
    def html(self) -> Any:
        return html.document_fromstring(self.text)

    def page(self, status: int = 200) -> Any:
        """The parsed page, which must have come with a status."""
        assert (self.status, self.headers["content-type"]) == (status, HTML), self.text
        return self.html


class Stream(BytesIO):
    """A stream that stays open when ``http.client`` closes it after a response."""

    def close(self) -> None:
        pass

    def makefile(self, mode: str) -> Stream:
        return self


class Exchange:
    """A connection to the site.

    :param protocol: the site's protocol; None if the site refused the connection.
    """

    def __init__(self, protocol: ProtocolWrapper | None, peer: IAddress) -> None:
        self.protocol = protocol
        self.transport = StringTransportWithDisconnection(peerAddress=peer)
        if protocol is not None:
            self.transport.protocol = protocol
            protocol.makeConnection(self.transport)

    @property
    def open(self) -> bool:
        return self.protocol is not None and self.transport.connected

    def send(self, data: bytes) -> None:
        assert self.protocol is not None
        self.protocol.dataReceived(data)

    def answers(self, *methods: str) -> list[Answer]:
        """All complete responses so far.

        :param methods: the methods of the requests, if they matter.
        """
        stream = Stream(self.transport.value())
        size = len(stream.getvalue())
        answers: list[Answer] = []
        while stream.tell() < size:
            method = methods[len(answers)] if len(answers) < len(methods) else "GET"
            response = HTTPResponse(cast(socket, stream), method=method)
            response.begin()
            answers.append(Answer(response.status, response.headers, response.read()))
        return answers

    def answer(self, method: str = "GET") -> Answer:
        """The one response; the test fails if there is not exactly one."""
        (answer,) = self.answers(method)
        return answer

    @property
    def streamed(self) -> bytes:
        """The body that has come so far, without the head and the chunks around it."""
        rest = self.transport.value().partition(b"\r\n\r\n")[2]
        body = b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        return body


def shown_exchange(page: Any) -> tuple[str, str, list[str]]:
    """The request and the answer of programs that a page shows, and the words of its command."""
    request, answer, command = page.xpath("//pre[contains(@class, 'raw')]/text()")
    return request, answer, shlex.split(command.replace("\\\n", ""))


def connected(factory: Any, source: str | IAddress = "192.0.2.7") -> Exchange:
    """A connection to a site from an address."""
    peer = address(source) if isinstance(source, str) else source
    return Exchange(factory.buildProtocol(peer), peer)


def ask(
    factory: Any,
    method: str,
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    source: str = "192.0.2.7",
) -> Answer:
    """The answer of a site to one request, which must be there at once."""
    exchange = connected(factory, source)
    exchange.send(request_bytes(method, path, body, headers))
    return exchange.answer(method)


def address(host: str) -> IAddress:
    """The address of a peer."""
    kind = IPv6Address if ":" in host else IPv4Address
    return kind("TCP", host, 40_000)


def request_bytes(
    method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> bytes:
    """The bytes of a request."""
    lines = {"Host": "broker.example", **(headers or {})}
    if body or method == "POST":
        lines.setdefault("Content-Length", str(len(body)))
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


def envelope(
    operation: str, members: Mapping[str, str | Sequence[str]], namespace: str = ""
) -> bytes:
    """A SOAP call as old clients write it, without a library."""

    def member(name: str, value: str | Sequence[str]) -> str:
        if isinstance(value, str):
            return f'<{name} xsi:type="xsd:string">{escape(value)}</{name}>'
        items = "".join(f"<item>{escape(item)}</item>" for item in value)
        return f'<{name} xsi:type="SOAP-ENC:Array">{items}</{name}>'

    inside = "".join(member(name, value) for name, value in members.items())
    name = f"m:{operation}" if namespace else operation
    declared = f' xmlns:m="{escape(namespace, {chr(34): "&quot;"})}"' if namespace else ""
    return (
        '<?xml version="1.0"?>\n'
        '<SOAP-ENV:Envelope xmlns:SOAP-ENV="http://schemas.xmlsoap.org/soap/envelope/"'
        ' xmlns:SOAP-ENC="http://schemas.xmlsoap.org/soap/encoding/"'
        ' xmlns:xsi="http://www.w3.org/1999/XMLSchema-instance"'
        ' xmlns:xsd="http://www.w3.org/1999/XMLSchema">'
        f"<SOAP-ENV:Body><{name}{declared}>{inside}</{name}></SOAP-ENV:Body>"
        "</SOAP-ENV:Envelope>"
    ).encode()


def call(method: str, *values: str) -> str:
    """An XML-RPC call; its values are inserted without escaping."""
    params = "".join(f"<param><value>{value}</value></param>" for value in values)
    return f"<methodCall><methodName>{method}</methodName><params>{params}</params></methodCall>"


def form(**fields: str) -> bytes:
    """The body of a form; lone surrogates become the bytes that they stand for."""
    return "&".join(
        f"{name}={quote_plus(value, errors='surrogatepass')}" for name, value in fields.items()
    ).encode()
