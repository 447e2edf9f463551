"""One outgoing HTTP/1.1 connection: a request, its answer, and perhaps the next.

Only what the broker needs: requests that are whole when they are written, answers
whose body is kept up to a limit.  Parsing is httptools', which wraps the parser of
Node.js.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias
from typing import Protocol as TypingProtocol

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IPullProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from rsscloud_broker.errors import OutboundError, Unavailable
from rsscloud_broker.outbound.bodies import Body, BodyMaker, Fields
from rsscloud_broker.outbound.budget import LONGEST, AnswerBudget
from rsscloud_broker.outbound.tls import HostTLS
from rsscloud_broker.outbound.urls import Target
from rsscloud_broker.twisted_overrides.tcp_client import PendingConnection

#: Bytes of an answer that are read besides its body: headers, trailers, interim
#: answers; and the sizes of chunks, which are five bytes around a chunk of one.
MAX_BESIDES_BODY = 64 * 1024
MAX_BESIDES_BYTE = 5

#: Fields that the headers of an answer may have, however short they are.
MAX_FIELDS = 500

#: Bytes of a request that the system takes at once, whatever the other side does.
TAKEN_AT_ONCE = 8 * 1024

#: Bytes of a piece of a body.  A larger body is written piece by piece.
PIECE: Final = 64 * 1024

#: Methods whose requests say nothing about a body if they have none.
_BODILESS = frozenset({"GET", "HEAD"})

#: Names of headers that have capitals elsewhere than at the beginning of each word.
_SPELLINGS: Final = {
    name.lower(): name for name in ("SOAPAction", "ETag", "TE", "WWW-Authenticate", "MIME-Version")
}

#: What connections are alike for: whether over TLS, host and port.
Origin: TypeAlias = tuple[bool, str, int]


class Message(NamedTuple):
    """A request as it goes over the wire.

    :ivar answer_has_body: False for HEAD, whatever the answer's headers say.
    :ivar large: a body that follows the data piece by piece, so that those who do not
        read it do not fill the memory with copies of it.
    """

    data: bytes
    answer_has_body: bool = True
    large: bytes = b""


def message(method: str, target: Target, headers: Mapping[str, str], body: bytes) -> Message:
    """Write a request down.

    Names of headers are spelled as browsers spell them: HTTP does not tell capitals from small
    letters (RFC 9110, section 5.1), but some receivers do.

    :param headers: others than Host and Content-Length.
    :raises OutboundError: a header is more than a line of text.
    """
    head = f"{method} {target.path} HTTP/1.1\r\nHost: {target.authority}\r\n"
    for name, value in headers.items():
        line = f"{_spelled(name)}: {value}"
        if not line.isprintable():  # a line end would begin another header, or the body
            raise OutboundError(f"the header {name} must be one line of text")
        head += line + "\r\n"
    if body or method not in _BODILESS:
        head += f"Content-Length: {len(body)}\r\n"
    data = head.encode() + b"\r\n"
    if len(body) <= PIECE:
        return Message(data + body, method != "HEAD")
    return Message(data, method != "HEAD", body)


@lru_cache(maxsize=100)
def _spelled(name: str) -> str:
    """The name of a header as it is usually spelled."""
    return _SPELLINGS.get(name.lower()) or "-".join(map(str.capitalize, name.split("-")))


class Answer(NamedTuple):
    """What was answered.

    :ivar fields: names and values of its headers.
    """

    status: int
    fields: Fields
    body: bytes

    def headers(self) -> dict[str, str]:
        """Names in lower case, the last of several values."""
        return {
            name.decode("latin-1").lower(): value.decode("latin-1").strip()
            for name, value in self.fields
        }


class NotConnected(OutboundError):
    """There is no connection, so nothing has been asked."""


class _Transport(TypingProtocol):
    """A connection of TCP or TLS; under one of TLS lies that of TCP."""

    transport: _Transport

    def write(self, data: bytes) -> None: ...
    def loseConnection(self) -> None: ...
    def abortConnection(self) -> None: ...
    def getHandle(self) -> Any: ...
    def registerProducer(self, producer: IPullProducer, streaming: bool) -> None: ...
    def unregisterProducer(self) -> None: ...


@implementer(IPullProducer)
class Pieces:
    """Writes a large body, a piece whenever the one before it has gone.

    :ivar left: the bytes that are still to be written.
    """

    def __init__(self, transport: _Transport, body: bytes) -> None:
        self._transport = transport
        self.left = memoryview(body)

    def resumeProducing(self) -> None:
        piece, self.left = self.left[:PIECE], self.left[PIECE:]
        self._transport.write(bytes(piece))
        if not self.left:
            self._transport.unregisterProducer()

    def stopProducing(self) -> None:
        """The connection is gone."""


class Http1(Protocol):
    """A connection, from before it is made.

    :param tls: its TLS, if it has any.
    :param make_body: makes what takes the body of an answer.
    :param budget: that of answers under way.
    :ivar attempt: what opens the connection, until it is there.
    :ivar when_lost: called with this connection when it is gone, if anybody wants to know.
    :ivar reusable: whether it may carry another request.
    :ivar gone: whether it has been lost.
    :ivar heard: whether anything of the answer has arrived.
    """

    transport: _Transport  # type: ignore[assignment] # it can do more than an ITransport
    attempt: PendingConnection
    _body: Body | None = None
    when_lost: Callable[[Http1], object] | None = None
    _pieces: Pieces | None = None

    def __init__(
        self,
        origin: Origin,
        tls: HostTLS | None,
        make_body: BodyMaker,
        budget: AnswerBudget,
    ) -> None:
        self.origin = origin
        self.tls = tls
        self.reusable = self.gone = False
        self._make_body = make_body
        self._budget = budget
        self._answered: Deferred[Answer] | None = None
        self._whole = False

    def ask(self, message: Message) -> Deferred[Answer]:
        """Write a request, as soon as there is a connection, and read its answer.

        If the Deferred is cancelled the connection is aborted, or not made.
        """
        self._answer_has_body = message.answer_has_body
        self.reusable = self.heard = False
        self._large = len(message.data) + len(message.large) > TAKEN_AT_ONCE
        self._received = 0
        self._parser = parser = HttpResponseParser(self)
        # There are servers that end lines, or go on with them, as mail does.
        parser.set_dangerous_leniencies(lenient_headers=True, lenient_optional_cr_before_lf=True)
        self._begin()
        answered: Deferred[Answer] = Deferred(self._give_up)
        self._answered = answered
        if self.connected:
            self._write(message)
        else:
            self._message = message
        return answered

    def close(self) -> None:
        """Close, without waiting for the other side: neither until it has read the rest
        of a request that it has answered already, nor until it says goodbye too.
        """
        self.reusable = False
        if self._large:
            self.transport.abortConnection()
            return
        self.transport.loseConnection()
        if self.tls is not None:
            self.transport.transport.loseConnection()

    def abort(self) -> None:
        """End the connection now."""
        self.reusable = False
        self.transport.abortConnection()

    def fail(self, reason: OutboundError | Unavailable) -> None:
        """End what was asked, if anything was; without a connection nothing will be asked."""
        if self._answered is not None:
            self._end().errback(reason)

    def give_up(self) -> None:
        """Break an answer off that is under way, for others to have room."""
        self._fail(OutboundError(LONGEST))

    # --- Twisted calls

    def connectionMade(self) -> None:
        message = self._message
        del self._message, self.attempt  # they would live as long as the connection
        if self._answered is None:
            self.abort()
            return
        self._write(message)

    def dataReceived(self, data: bytes) -> None:
        if self._answered is None:
            self.abort()  # nobody asked
            return
        self.heard = True
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self.reusable = False
            if not self._whole:
                # What a method that the parser calls raises is the context of its error.
                refusal = error.__context__
                if not isinstance(refusal, OutboundError):
                    refusal = OutboundError(f"the answer is not HTTP: {error}", port_only=True)
                self._fail(refusal)
                return
        besides = self._received - self._size
        if self._whole:
            self._succeed()
        elif besides > MAX_BESIDES_BODY + self._size * MAX_BESIDES_BYTE:
            self._fail(
                OutboundError(f"the answer's headers are larger than {MAX_BESIDES_BODY} bytes")
            )
        else:
            headers = min(besides, MAX_BESIDES_BODY)
            self._budget.grow(self, headers + (self._body.size if self._body else 0))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.reusable = False
        self.gone = True
        if self.when_lost is not None:
            self.when_lost(self)
        if self._answered is None:
            return
        if self._status >= 200 and self._ends_with_connection:
            # Over TLS the other side has said goodbye then, or the end may be anybody's.
            self._succeed(whole=bool(reason.check(ConnectionDone)))
        else:
            self._fail(OutboundError(self._why_lost(reason), port_only=True))

    # --- the parser calls

    def on_message_begin(self) -> None:
        if self._whole:
            self.reusable = False  # it says more than it was asked

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._status:
            return  # a trailer, or what nobody asked for
        if len(self._fields) == MAX_FIELDS:
            raise OutboundError(f"the answer's headers have more than {MAX_FIELDS} fields")
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        if self._whole:
            return
        self._status = self._parser.get_status_code()
        if self._status >= 200:
            self._body = self._make_body(self._fields)
            self._whole = not self._answer_has_body

    def on_body(self, data: bytes) -> None:
        if self._whole:
            return
        assert self._body is not None  # its headers came first
        self._size += len(data)
        self._whole = not self._body.add(data)

    def on_message_complete(self) -> None:
        if self._whole:
            return
        if self._status < 200:
            self._begin()  # an interim answer: the real one follows
            return
        self._whole = True
        # An answer that is no success may have been given before the request was
        # read, and then nobody knows where the next one would begin.
        fine = self._status < 300 or self._status == 304
        written = self._pieces is None or not self._pieces.left
        self.reusable = fine and written and self._parser.should_keep_alive()

    # --- our own

    def _write(self, message: Message) -> None:
        self.transport.write(message.data)
        self._pieces = None
        if message.large:
            self._pieces = Pieces(self.transport, message.large)
            self.transport.registerProducer(self._pieces, False)

    def _begin(self) -> None:
        self._status = 0
        self._fields: list[tuple[bytes, bytes]] = []
        self._body = None
        self._size = 0
        self._whole = False

    @property
    def _ends_with_connection(self) -> bool:
        """Whether it is the end of the connection that ends the body (RFC 9112, section 6.3)."""
        names = {name.lower() for name, _ in self._fields}
        return not names & {b"content-length", b"transfer-encoding"}

    def _give_up(self, answered: Deferred[Answer]) -> None:
        self._end()
        if self.connected:
            self.abort()
        else:
            self.attempt.stopConnecting()

    def _succeed(self, whole: bool = True) -> None:
        # Only now, when the parser has come back: this may ask for more at once.
        try:
            body = self._body.end(whole) if self._body else b""
            answer = Answer(self._status, self._fields, body)
        except OutboundError as error:
            self._fail(error)
        else:
            self._end().callback(answer)

    def _fail(self, reason: OutboundError) -> None:
        self.abort()
        self._end().errback(reason)

    def _end(self) -> Deferred[Answer]:
        answered, self._answered = self._answered, None
        assert answered is not None  # callers look
        del self._parser  # it refers to this, so they would wait for the garbage collector
        self._body = None
        self._budget.drop(self)
        return answered

    def _why_lost(self, reason: Failure) -> str:
        error: Any = reason.value
        text = self.tls.reason(error) if self.tls is not None else str(error)
        if self.tls is not None and self.tls.problem:
            return text
        if isinstance(error, ConnectionDone):
            text = "it was closed"
        return f"the connection was lost before the answer was whole: {' '.join(text.split())}"
