"""One outgoing HTTP/1.1 connection: it sends a request, reads the answer, and may be used again.

This is a small HTTP client, which does only what the broker needs.  A request is complete before
the first byte of it is sent.  Of an answer, the body is kept up to a limit.  httptools parses the
answers; it wraps the parser of Node.js.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, TypeAlias
from typing import Protocol as TypingProtocol

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IPullProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from rsscloud_broker.errors import OutboundError, Unavailable
from rsscloud_broker.outbound.bodies import AnswerBody, BodyMaker, Fields
from rsscloud_broker.outbound.budget import LONGEST, AnswerBudget
from rsscloud_broker.outbound.tls import HostTLS
from rsscloud_broker.outbound.urls import Target
from rsscloud_broker.util.deferreds import Done

#: How many bytes of an answer are read besides its body: of headers, trailers and interim answers.
MAX_BESIDES_BODY = 64 * 1024

#: How many headers an answer may have, however short they are.
MAX_FIELDS = 500

#: A body of more than this many bytes is written in pieces of this size.
PIECE: Final = 64 * 1024

#: Requests with these methods have no Content-Length if they have no body.
_BODILESS = frozenset({"GET", "HEAD"})

#: The usual spelling of names of headers that do not just begin each word with a capital.
_SPELLINGS: Final = {
    name.lower(): name for name in ("SOAPAction", "ETag", "TE", "WWW-Authenticate", "MIME-Version")
}

#: Requests to the same origin can use the same connection: whether it uses TLS, host and port.
Origin: TypeAlias = tuple[bool, str, int]


class Message(NamedTuple):
    """The bytes of a request.

    :ivar data: the head of the request, and its body if that is not large.
    :ivar answer_has_body: False for HEAD, whatever the answer's headers say.
    :ivar large: a large body.  It is written in pieces after ``data``, so that a server that does
        not read does not fill the memory with copies of it.
    """

    data: bytes
    answer_has_body: bool = True
    large: bytes = b""


def message(method: str, target: Target, headers: Mapping[str, str], body: bytes) -> Message:
    """Make the bytes of a request.

    The names of headers get the spelling that browsers use.  Case does not matter in HTTP (RFC
    9110, section 5.1), but it does matter to some receivers.

    :param headers: all headers except Host and Content-Length, which are added here.
    :raises OutboundError: a header is not one line of text.
    """
    head = f"{method} {target.path} HTTP/1.1\r\nHost: {target.authority}\r\n"
    for name, value in headers.items():
        head += _line(name, value)
    size = len(body)
    if size or method not in _BODILESS:
        head += f"Content-Length: {size}\r\n"
    data = head.encode() + b"\r\n"
    if size <= PIECE:
        return Message(data + body, method != "HEAD")
    return Message(data, method != "HEAD", body)


@lru_cache(maxsize=100)  # all subscribers of a topic get nearly the same headers
def _line(name: str, value: str) -> str:
    """The line of a header, with its name as it is usually spelled."""
    spelled = _SPELLINGS.get(name.lower()) or "-".join(map(str.capitalize, name.split("-")))
    line = f"{spelled}: {value}"
    if not line.isprintable():  # a line end would begin another header, or the body
        raise OutboundError(f"the header {name} must be one line of text")
    return line + "\r\n"


class HTTPAnswer(NamedTuple):
    """The answer to a request.

    :ivar fields: the names and values of its headers, as they were sent.
    :ivar body: its body, as the object of ``make_body`` returns it.
    """

    status: int
    fields: Fields
    body: bytes


class AnswerHeaders(Mapping[str, str]):
    """The headers of an answer, by their names in lower case.  Of several values the last counts.

    They are decoded when somebody asks for one: of most answers, only the status matters.
    """

    def __init__(self, fields: Fields) -> None:
        self._fields = fields

    @cached_property
    def _decoded(self) -> dict[str, str]:
        return {
            name.decode("latin-1").lower(): value.decode("latin-1").strip()
            for name, value in self._fields
        }

    def __getitem__(self, name: str) -> str:
        return self._decoded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded)

    def __len__(self) -> int:
        return len(self._decoded)

    def __repr__(self) -> str:
        return repr(self._decoded)


class NotConnected(OutboundError):
    """The connection could not be opened, so no request has been sent."""


class PendingConnection(TypingProtocol):
    """A connection that is being opened: what ``IConnector`` offers before it is there."""

    def stopConnecting(self) -> None:
        """Give up.  The factory is notified that the connection failed."""


class _Transport(TypingProtocol):
    """The methods that `Http1` uses of a TCP or TLS connection.

    :ivar transport: the TCP connection that a TLS connection runs over.
    """

    transport: _Transport

    def write(self, data: bytes) -> None: ...
    def loseConnection(self) -> None: ...
    def abortConnection(self) -> None: ...
    def getHandle(self) -> Any: ...
    def registerProducer(self, producer: IPullProducer, streaming: bool) -> None: ...
    def unregisterProducer(self) -> None: ...


@implementer(IPullProducer)
class Pieces:
    """Writes a large body piece by piece.

    The transport asks for the next piece when it has sent the one before.

    :ivar left: the bytes that have not been written yet.
    """

    def __init__(self, transport: _Transport, body: bytes) -> None:
        self._transport = transport
        self.left = memoryview(body)

    def resumeProducing(self) -> None:
        """Write the next piece; the transport calls this."""
        piece, self.left = self.left[:PIECE], self.left[PIECE:]
        self._transport.write(bytes(piece))
        if not self.left:
            self._transport.unregisterProducer()

    def stopProducing(self) -> None:
        """Twisted calls this when the connection is lost; there is nothing to do."""


class Http1(Protocol):
    """One HTTP/1.1 connection.

    `HTTPExchanger` makes it before the socket is open, calls ``request``, and may reuse it while
    ``reusable`` is true.

    :param tls: the TLS of the connection; None if it has none.
    :param make_body: makes the object that collects the body of an answer.
    :param budget: counts the bytes of answers that are arriving.
    :ivar attempt: the attempt to open the socket; it is deleted once the socket is open.
    :ivar when_lost: is called with this connection when the connection is lost; None if nobody
        needs to know.
    :ivar reusable: whether another request may be sent.
    :ivar gone: whether the connection has been lost.
    :ivar heard: whether a byte of the answer has arrived.
    """

    transport: _Transport  # type: ignore[assignment] # it can do more than an ITransport
    attempt: PendingConnection
    _body: AnswerBody | None = None
    when_lost: Callable[[Http1], object] | None = None
    _is_counted = False  # whether the budget counts the answer

    def __init__(
        self, origin: Origin, tls: HostTLS | None, make_body: BodyMaker, budget: AnswerBudget
    ) -> None:
        self.origin = origin
        self.tls = tls
        self.reusable = self.gone = False
        self._make_body = make_body
        self._budget = budget
        self._answered: Done[HTTPAnswer] | None = None  # who gets the answer; None between requests
        self._whole = False  # whether nothing more of the answer is wanted

    def request(self, message: Message, done: Done[HTTPAnswer]) -> None:
        """Send a request, now or as soon as the connection is open, and read its answer.

        :param done: is called with the answer; with an `OutboundError` if there is none, or with
            `Unavailable` if the broker lacks what it needs.
        """
        self._answer_has_body = message.answer_has_body
        self.reusable = self.heard = False
        # The operating system accepts this many bytes of a request at once, even if the server
        # reads none.
        self._large = message.large != b"" or len(message.data) > 8 * 1024
        self._pieces: Pieces | None = None
        self._received = self._size = self._status = 0
        self._fields: list[tuple[bytes, bytes]] = []
        self._whole = False
        self._parser = parser = HttpResponseParser(self)
        # Some servers end lines with LF alone, or continue a header on the next line.
        parser.set_dangerous_leniencies(lenient_headers=True, lenient_optional_cr_before_lf=True)
        self._answered = done
        if self.connected:
            self._write(message)
        else:
            self._message = message

    def cancel(self) -> None:
        """End the request under way, and the connection or the attempt to open it.

        Nobody is notified.
        """
        if self._answered is not None:
            self._end_request()
            if self.connected:
                self.abort()
            else:
                self.attempt.stopConnecting()

    def close(self) -> None:
        """Close the connection without waiting for the server.

        The server may have answered before it has read all of a large request, and over TLS it
        should end the session from its side too.  The connection waits for neither.
        """
        self.reusable = False
        if self._large:
            self.transport.abortConnection()
            return
        self.transport.loseConnection()
        if self.tls is not None:
            self.transport.transport.loseConnection()

    def abort(self) -> None:
        """End the connection now, and discard what has not been sent."""
        self.reusable = False
        self.transport.abortConnection()

    def fail(self, reason: OutboundError | Unavailable) -> None:
        """Fail the request under way, if there is one: there will be no connection for it."""
        if self._answered is not None:
            self._end_request()(reason)

    def give_up(self) -> None:
        """Fail the request under way, because other answers need the memory.

        `AnswerBudget` calls this on the request that has been under way for longest.
        """
        self._fail(OutboundError(LONGEST))

    # --- Twisted calls

    def connectionMade(self) -> None:
        """Send the request that waits; end the connection if it was cancelled meanwhile."""
        message = self._message
        del self._message, self.attempt  # otherwise they stay in memory with the connection
        if self._answered is None:
            self.abort()
            return
        self._write(message)

    def dataReceived(self, data: bytes) -> None:
        """Parse a part of the answer; end the request if that is whole, faulty or too large."""
        if self._answered is None:
            self.abort()  # no request is under way
            return
        self.heard = True
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self.reusable = False
            if not self._whole:
                # If a method that the parser calls raises, that is the context of its error.
                refusal = error.__context__
                if not isinstance(refusal, OutboundError):
                    refusal = OutboundError(f"the answer is not HTTP: {error}", port_only=True)
                self._fail(refusal)
                return
        if self._whole:
            self._succeed()
            return
        self._received += len(data)
        besides = self._received - self._size
        if besides > MAX_BESIDES_BODY + self._size * 5:
            # The size of a chunk takes five bytes, and a chunk may be one byte.
            self._fail(
                OutboundError(f"the answer's headers are larger than {MAX_BESIDES_BODY} bytes")
            )
        else:
            headers = min(besides, MAX_BESIDES_BODY)
            self._is_counted = True
            self._budget.grow(self, headers + (self._body.size if self._body else 0))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """End the request under way: its body may end here, or there is no answer."""
        self.reusable = False
        self.gone = True
        if self.when_lost is not None:
            self.when_lost(self)
        if self._answered is None:
            return
        if self._status >= 200 and self._ends_with_connection:
            # Over TLS a clean end shows that the server ended the answer, and nobody else.
            self._succeed(whole=bool(reason.check(ConnectionDone)))
        else:
            self._fail(OutboundError(self._why_lost(reason), port_only=True))

    # --- the parser calls

    def on_message_begin(self) -> None:
        if self._whole:
            self.reusable = False  # the server sends more than the answer

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header of the answer; too many of them are an error."""
        if self._status:
            return  # a trailer, or bytes after the answer
        if len(self._fields) == MAX_FIELDS:
            raise OutboundError(f"the answer's headers have more than {MAX_FIELDS} fields")
        if b"\0" in value:  # it may be in no header, and a blank takes its place
            value = value.replace(b"\0", b" ")  # (RFC 9110, section 5.5)
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Note the status; for a final answer, make the object that collects its body."""
        if self._whole:
            return
        self._status = self._parser.get_status_code()
        if self._status >= 200:
            self._body = self._make_body(self._fields)
            self._whole = not self._answer_has_body

    def on_body(self, data: bytes) -> None:
        """Collect a part of the body, until further parts are of no use."""
        if self._whole:
            return
        assert self._body is not None  # the parser calls on_headers_complete first
        self._size += len(data)
        self._whole = not self._body.add(data)

    def on_message_complete(self) -> None:
        """Note that the answer is whole, and whether the connection is reusable."""
        if self._whole:
            return
        if self._status < 200:
            self._status = 0  # that was an interim answer; the final one follows
            self._fields = []
            return
        self._whole = True
        # A server may send an error before it has read the whole request.  Then it could take the
        # next request for the rest of this one.
        fine = self._status < 300 or self._status == 304
        written = self._pieces is None or not self._pieces.left
        self.reusable = fine and written and self._parser.should_keep_alive()

    # --- our own

    def _write(self, message: Message) -> None:
        """Write a request; a large body in pieces, as the transport asks for them."""
        self.transport.write(message.data)
        if message.large:
            self._pieces = Pieces(self.transport, message.large)
            self.transport.registerProducer(self._pieces, False)

    @property
    def _ends_with_connection(self) -> bool:
        """Whether the body lasts until the connection ends (RFC 9112, section 6.3)."""
        fields = [(name.lower(), value.strip().lower()) for name, value in self._fields]
        # Some servers say by the coding "identity" of RFC 2616 that there is none.
        framing = {name for name, value in fields if value != b"identity"}
        return not framing & {b"content-length", b"transfer-encoding"}

    def _succeed(self, whole: bool = True) -> None:
        """End the request with its answer, or with an error if its body is not accepted."""
        # The parser has returned by now, as it must have: the callback may send the next request.
        try:
            body = self._body.end(whole) if self._body else b""
            answer = HTTPAnswer(self._status, self._fields, body)
        except OutboundError as error:
            self._fail(error)
        else:
            self._end_request()(answer)

    def _fail(self, reason: OutboundError) -> None:
        """End the connection, and the request with an error."""
        self.abort()
        self._end_request()(reason)

    def _end_request(self) -> Done[HTTPAnswer]:
        """End the request: free its memory, and return who is to be called with the result."""
        answered, self._answered = self._answered, None
        assert answered is not None  # the callers have checked it
        del self._parser  # it refers back to this, a cycle for the garbage collector
        self._body = None
        if self._is_counted:
            self._is_counted = False
            self._budget.drop(self)
        return answered

    def _why_lost(self, reason: Failure) -> str:
        """Why the connection was lost, in words."""
        error: Any = reason.value
        text = self.tls.why_lost(error) if self.tls is not None else str(error)
        if self.tls is not None and self.tls.problem:
            return text
        if isinstance(error, ConnectionDone):
            text = "it was closed"
        return f"the connection was lost before the answer was whole: {' '.join(text.split())}"
