"""HTTP/1.1 on one connection, with bounds on the head of a request.

``twisted.web`` parses the requests.  To a bad one it answers with an empty 400, and it accepts some
requests that a proxy in front of the broker may understand in another way.  `Channel` looks at each
line of the head first, and refuses the request with an answer that gives the reason.  An error
within a body that comes in chunks still gets the empty 400.
"""

from __future__ import annotations

import re

from twisted.web.http import HTTPChannel, Request
from twisted.web.http_headers import Headers

from rsscloud_broker.http.connections import Connection
from rsscloud_broker.http.requests import header

#: RFC 9110, section 5.6.2.
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"

_NAME = re.compile(_TOKEN)

#: RFC 9112, section 3.
_REQUEST_LINE = re.compile(_TOKEN + rb" [\x21-\x7e]+ HTTP/1\.[01]")

_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")

_CLOSE = re.compile(r"(?:^|,)[ \t]*close[ \t]*(?:,|$)", re.IGNORECASE)

_CHUNKED_ONLY = "The only Transfer-Encoding of a request is chunked, in HTTP/1.1."


class Channel(HTTPChannel):
    """HTTP/1.1 whose head is bounded and checked.  A refusal says what the rule is.

    :ivar target: the target of the request whose head was read last.
    """

    transport: Connection  # type: ignore[assignment] # what the factory wraps it in
    target = b""
    _head_bytes = 0  # of the present request
    _headers = 0
    _has_body_header = False  # one that says where the body ends
    _had_blank_line = False  # before the first line

    def lineReceived(self, line: bytes) -> None:
        """Pass a line of a head on to Twisted, unless the request is refused."""
        if not self.requests and not line.isascii():  # a first line whose target is not encoded
            method, blank, rest = line.partition(b" ")
            line = method + blank + _BEYOND_ASCII.sub(lambda byte: b"%%%02X" % ord(byte[0]), rest)
        if not self.transport.refused and self._check_line(line):
            super().lineReceived(line)

    def _check_line(self, line: bytes) -> bool:
        """Check a line of a head; False if the request has been refused because of it."""
        if not self.requests and self.persistent:  # this is the first line of a request
            if not line and not self._had_blank_line:
                self._had_blank_line = True  # one may come first (RFC 9112, section 2.2)
                return True
            if not _REQUEST_LINE.fullmatch(line):
                self.transport.refuse(
                    400, "A request must begin with a line such as: GET /docs HTTP/1.1"
                )
                return False
            self.target = line.split(b" ")[1]
            self._head_bytes = self._headers = 0
            self._has_body_header = self._had_blank_line = False
        self._head_bytes += len(line)
        if self._head_bytes > self.totalHeadersSize:
            limit = self.totalHeadersSize
            self.transport.refuse(431, f"All headers together must not exceed {limit} bytes.")
            return False
        return True

    def lineLengthExceeded(self, line: bytes) -> None:
        """Refuse a request: a header is too long, or the first line before there is a request."""
        if self.requests:
            self.transport.refuse(431, "A header must not be that long.")
        else:
            self.transport.refuse(414, "The first line of a request must not be that long.")

    def headerReceived(self, line: bytes) -> bool:
        """Take a header; False if the request has been refused because of it."""
        name, colon, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        # A length of more digits is beyond every limit.
        if name == b"content-length" and len(value) > 15:
            self.requests[-1].refuse_body()
            return False
        self._headers += 1
        if self._headers > self.maxHeaders:
            self.transport.refuse(431, f"A request has at most {self.maxHeaders} headers.")
            return False
        if not (colon and _NAME.fullmatch(name)):
            self.transport.refuse(400, "A header must be a name, a colon at once, and a value.")
            return False
        if len(line.translate(None, b"\0\r\n")) != len(line):  # Twisted 26.4 takes a bare CR
            self.transport.refuse(400, "A header must not contain NUL, CR or LF.")
            return False
        if name in {b"content-length", b"transfer-encoding"}:
            fault = self._body_fault(name, value)
            if fault:
                self.transport.refuse(400, fault)
                return False
        accepted: bool = super().headerReceived(line)
        return accepted

    def _body_fault(self, name: bytes, value: bytes) -> str:
        """Note a header that says where the body ends; what is wrong with it, or empty.

        ``chunked`` is the only transfer coding that the broker accepts: ``identity`` is no longer
        one.  A proxy may have understood a request with another coding, or with two of these
        headers, in another way (RFC 9112, sections 6.1 and 11.2).
        """
        if name == b"transfer-encoding" and value.lower() != b"chunked":
            return _CHUNKED_ONLY
        if name == b"content-length" and not value.isdigit():
            return "Content-Length must be a number."
        if self._has_body_header:
            return "A request must have one Content-Length or one Transfer-Encoding, and not both."
        self._has_body_header = True
        return ""

    def checkPersistence(self, request: Request, version: bytes) -> bool:
        """Whether the connection stays open after the request.  Twisted calls this once it knows
        all headers.

        A Transfer-Encoding is refused here if the request is of HTTP/1.0, which has none.
        """
        if version != b"HTTP/1.1" and request.requestHeaders.hasHeader(b"transfer-encoding"):
            self.transport.refuse(400, _CHUNKED_ONLY)
            return False
        # Twisted finds no "close" before a comma, as in "close, TE", which curl sends.
        if _CLOSE.search(header(request, "connection")):
            request.requestHeaders.setRawHeaders(b"connection", [b"close"])
        persistent: bool = super().checkPersistence(request, version)
        return persistent

    def writeHeaders(self, version: bytes, code: bytes, reason: bytes, headers: Headers) -> None:
        """Send the head of an answer, which is the last on its connection if the broker stops."""
        if self.transport.factory.limits.closing:
            self.persistent = False
            headers.setRawHeaders(b"connection", [b"close"])
        super().writeHeaders(version, code, reason, headers)
