"""HTTP/1.1 on one connection: bounded headers, and a shorter way for the usual request.

``twisted.web`` reads a request line by line, through a general receiver of lines,
which takes as long as all that a ping needs afterwards.  The usual request arrives
whole and has nothing unusual in its head: one look tells that, and then its lines
are taken together.  Whatever is any different, be it in parts, pipelined, chunked or
wrong, goes to ``twisted.web``, which judges it as ever; so there is one
understanding of HTTP here and not two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from attrs import frozen
from twisted.web.http import HTTPChannel
from twisted.web.http_headers import Headers

from rsscloud_broker.front_doors.connections import Connection

#: How many digits the length of a body may have.
_MAX_DIGITS = 15

# Fewer methods, characters and headers than may be; a head of more than so many
# bytes is not usual either.  No quantifier can give back what it has taken.
_USUAL = re.compile(
    rb"(GET|POST) (/[!-~]*+) HTTP/1\.1\r\n((?:[A-Za-z0-9-]++:[ -~]*+\r\n){1,50}+)\r\n"
)
_MAX_HEAD = 8192


@frozen
class _Usual:
    """A request that has nothing unusual, and is all there."""

    method: bytes
    path: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


def _usual(data: bytes) -> _Usual | None:
    """What came, if it is one usual request from its first byte to its last."""
    head = _USUAL.match(data, 0, _MAX_HEAD)
    if head is None:
        return None
    length = b""
    headers = []
    for line in head[3].splitlines():
        name, _, value = line.partition(b":")
        value = value.strip(b" ")
        headers.append((name, value))
        match name.lower():
            case b"content-length" if not length and value.isdigit() and len(value) <= _MAX_DIGITS:
                length = value
            case b"content-length" | b"transfer-encoding" | b"expect":
                return None
    body = data[head.end() :]
    return _Usual(head[1], head[2], headers, body) if len(body) == int(length or 0) else None


class Channel(HTTPChannel):
    """HTTP/1.1 whose headers are bounded, with an answer that says so.

    :ivar at_once: whether the request that begins is all there already.
    """

    transport: Connection  # type: ignore[assignment] # what the factory wraps it in
    at_once = False
    _head = b""  # of an answer; what follows it goes into the same packet

    # what comes

    def dataReceived(self, data: bytes) -> None:
        # Nothing is under way, neither a request nor the first part of one.
        between = not self.requests and not self._buffer and self.persistent
        usual = _usual(data) if between else None
        if usual is None:
            super().dataReceived(data)
        else:
            self.resetTimeout()
            self._take(usual)

    def _take(self, usual: _Usual) -> None:
        """Do with a request what ``HTTPChannel`` does line by line."""
        self.at_once = True
        request = self.requestFactory(self, 0)
        self.at_once = False
        self.requests.append(request)
        self._command, self._path, self._version = usual.method, usual.path, b"HTTP/1.1"
        for name, value in usual.headers:
            request.requestHeaders.addRawHeader(name, value)
        self.length = len(usual.body)
        self.allHeadersReceived()
        if usual.body:
            request.handleContentChunk(usual.body)
        self.allContentReceived()

    def lineReceived(self, line: bytes) -> None:
        if not self.transport.refused:
            super().lineReceived(line)

    def lineLengthExceeded(self, line: bytes) -> None:
        if self.requests:
            self.transport.refuse(431, "A header must not be that long.")
        else:
            self.transport.refuse(414, "The first line of a request must not be that long.")

    def headerReceived(self, line: bytes) -> bool:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length" and len(value.strip()) > _MAX_DIGITS:
            self.requests[-1].refuse_body()
            return False
        if name.lower() == b"transfer-encoding" and not self._is_chunked(value):
            return bool(self._failChooseTransferDecoder())
        accepted: bool = super().headerReceived(line)
        return accepted

    def _is_chunked(self, coding: bytes) -> bool:
        """Whether a body comes in the one coding that there is between us and a client.

        ``identity`` is none any more, and HTTP/1.0 has none at all: whoever passed such a
        request on may have understood it in another way (RFC 9112, sections 6.1 and 11.2).
        """
        return coding.strip().lower() == b"chunked" and self._version == b"HTTP/1.1"

    # what goes

    def writeHeaders(self, version: bytes, code: bytes, reason: bytes, headers: Headers) -> None:
        lines = [b"%s %s %s" % (version, code, reason)]
        for name, values in headers.getAllRawHeaders():
            lines += [b"%s: %s" % (name, value) for value in values]
        self._head = b"\r\n".join((*lines, b"", b""))

    def write(self, data: bytes) -> None:
        if self._head:
            data = self._head + data
            self._head = b""
        self.transport.write(data)

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        self.write(b"".join(iovec))

    def write_head(self) -> None:
        """Write the head of an answer, unless it was written with the first of its body."""
        if self._head:
            self.write(b"")
