"""HTTP/1.1 on one connection, with bounds on the head of a request and an answer that names them.

``twisted.web`` parses the requests.  It closes the connection without a reason where a line is too
long, and accepts some requests that a proxy in front of the broker may understand in another way.
Such requests are refused here.
"""

from __future__ import annotations

from twisted.web.http import HTTPChannel, Request

from rsscloud_broker.front_doors.connections import Connection

#: How many digits the length of a body may have.
_MAX_DIGITS = 15


class Channel(HTTPChannel):
    """HTTP/1.1 whose headers are bounded, with an answer that says so."""

    transport: Connection  # type: ignore[assignment] # what the factory wraps it in

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
        if len(line.translate(None, b"\0\r\n")) != len(line):  # Twisted 26.4 takes a bare CR
            self.transport.refuse(400, "A header must not contain NUL, CR or LF.")
            return False
        accepted: bool = super().headerReceived(line)
        return accepted

    def checkPersistence(self, request: Request, version: bytes) -> bool:
        """Whether the connection stays open after the request.  Twisted calls this once it knows
        all headers.

        The only transfer coding that the broker accepts is ``chunked``, and only of HTTP/1.1:
        ``identity`` is no longer one, and HTTP/1.0 has none.  A proxy may have understood a request
        with another coding in another way (RFC 9112, sections 6.1 and 11.2).
        """
        codings = request.requestHeaders.getRawHeaders(b"transfer-encoding", [])
        if codings and (version != b"HTTP/1.1" or [one.lower() for one in codings] != [b"chunked"]):
            request.requestHeaders.removeHeader(b"expect")  # nothing is asked for after the answer
            self.transport.refuse(
                400, "The only Transfer-Encoding of a request is chunked, in HTTP/1.1."
            )
            return False
        persistent: bool = super().checkPersistence(request, version)
        return persistent
