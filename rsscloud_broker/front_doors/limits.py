"""HTTP from strangers: bounded bodies, forms and headers, and deadlines.

``twisted.web`` reads a body of any length and waits for it as long as bytes
drip in.  Here a body over the limit is refused before it is read (or, where its
length is not told, as soon as it passes the limit), all bodies together have a budget of
bytes, and a request has a deadline from its first line to its last byte.  Connections have
limits of their own: see ``connections``.

Forms and queries are read here too.  Twisted's reading of ``multipart/form-data`` and
of the Content-Type rests on a library for e-mail, which takes minutes for some bodies
within the limit and fails at some headers; no protocol here needs either.  And Twisted
ends a field at a ``;``, which may stand in a URL.
"""

from __future__ import annotations

import re
from functools import cache
from io import BytesIO
from typing import Any

from prometheus_client import Counter
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IAddress, IDelayedCall
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure
from twisted.web.http import Request as HTTPRequest
from twisted.web.resource import IResource
from twisted.web.server import Request, Site

from rsscloud_broker.counters import Counters
from rsscloud_broker.front_doors.bodies import SMALL
from rsscloud_broker.front_doors.channel import Channel
from rsscloud_broker.front_doors.connections import (
    LINGER,
    PAUSE,
    LimitedConnections,
    Limits,
    is_address,
    within,
)
from rsscloud_broker.front_doors.requests import (
    begins_as_xml,
    body_of,
    fields_of,
    header,
    media_type,
    plain,
)
from rsscloud_broker.sources import bucket_of
from rsscloud_broker.wire.codings import ACCEPTED, PACKED, BadlyPacked, TooLong, unpacked

__all__ = ["LINGER", "MAX_FIELDS", "Limits", "bounded_site"]

_ABSOLUTE = re.compile(rb"https?://([^/?#]*)(/.*)?", re.IGNORECASE | re.DOTALL)

#: How many fields a form may have, and how many parameters a query.
MAX_FIELDS = 1000

NO_MEMORY = "The broker has no memory left for requests. Please send it again soon."


class _Refusal(Exception):
    """A body or a query is not taken.

    :ivar status: of the answer, and its text.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class BoundedRequest(Request):
    """A request with a bounded body and a deadline."""

    limits: Limits

    channel: Channel | None  # type: ignore[assignment] # that of our site; None when it is gone
    _deadline: IDelayedCall | None = None
    _taken = 0  # bytes of the body that are counted, once all of it has arrived
    _source = ""
    _works = False
    _is_over = False

    def __init__(self, channel: Channel, *args: Any, **kwargs: Any) -> None:
        super().__init__(channel, *args, **kwargs)
        self._connection = channel.transport
        self._connection.request_began()
        self._body = BytesIO()
        self._received = 0
        if not channel.at_once:
            self._await_rest()

    def _await_rest(self) -> None:
        """Refuse the request unless the whole of it comes in time."""
        timeout = self.limits.http.request_timeout
        self._deadline = self.limits.clock.callLater(
            timeout,
            self._refuse,
            408,
            f"The whole request must arrive within {timeout:g} seconds.",
        )

    def gotLength(self, length: int | None) -> None:
        self._body = BytesIO()  # never a temporary file: the limit is low
        self.content = self._body
        if length is not None and length > self.limits.http.body_limit:
            self.requestHeaders.removeHeader(b"expect")  # nothing is asked for after the answer
            self.refuse_body()

    def handleContentChunk(self, data: bytes) -> None:
        self._received += len(data)
        if self._connection.refused:
            return
        if self._received > self.limits.http.body_limit:
            self.refuse_body()
        else:
            self._body.write(data)
            self.limits.bodies.grow(self, self._received)

    def give_up(self) -> None:
        """Say that there is no memory for the body, and end the connection."""
        self._refuse(503, NO_MEMORY)

    def work_began(self) -> bool:
        """Somebody works on the answer, and perhaps goes on after the client has gone.

        :returns: whether it matters when he is through: see ``work_ended``.
        """
        self._works = self._taken > 0
        return self._works

    def work_ended(self) -> None:
        """Nobody needs the request any more."""
        self._works = False
        self._free_body()

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        self._call_off_deadline()
        if not path.startswith(b"/"):
            path = self._path_of(path)
        if self._received > SMALL and not self._take(self.limits.bodies.drop(self)):
            self.give_up()
        if not self._connection.refused:
            super().requestReceived(command, path, version)

    def _path_of(self, target: bytes) -> bytes:
        """The path and the query of a target, which may be in absolute form."""
        absolute = _ABSOLUTE.match(target)
        if absolute is None:
            return target
        # RFC 9112, section 3.2.2: the header does not count.
        self.requestHeaders.setRawHeaders(b"host", [absolute[1]])
        return absolute[2] or b"/"

    def process(self) -> None:
        if self.requestHeaders.hasHeader(b"x-forwarded-for") and self._connection.may_be_proxy:
            self.limits.proxies.warn(self._connection.peer)
        try:
            if self._received and self.requestHeaders.hasHeader(b"content-encoding"):
                self._unpack()
            self._read_form()
        except _Refusal as refusal:
            body = plain(self, refusal.status, refusal.text)
            self.setHeader("content-length", str(len(body)))
            self.write(body)
            self.finish()
        else:
            super().process()

    def write(self, data: bytes) -> None:
        super().write(data)
        if self.channel is not None:  # the client has not gone
            self.channel.write_head()

    def finish(self) -> None:
        self._is_over = True
        self._free_body()
        super().finish()

    def connectionLost(self, reason: Failure) -> None:
        self._call_off_deadline()
        self.limits.bodies.drop(self)
        self._is_over = True
        self._free_body()
        super().connectionLost(reason)

    def getClientAddress(self) -> IAddress:
        """The address of the client; of the one behind it where a trusted proxy tells."""
        peer = self._connection.peer
        if not self._connection.from_proxy:
            return peer
        trusted = self.limits.trusted
        host = getattr(peer, "host", "127.0.0.1")  # a UNIX socket has none
        hops = [hop.strip() for hop in (header(self, "x-forwarded-for") or "").split(",")]
        while hops and (hop := hops.pop()):
            if not is_address(hop):
                break
            host = hop
            if not within(hop, trusted):
                break
        kind = IPv6Address if ":" in host else IPv4Address
        return kind("TCP", host, getattr(peer, "port", 0))

    def refuse_body(self) -> None:
        """Say that the body is too large, and end the connection."""
        limit = self.limits.http.body_limit
        self._refuse(413, f"The body must not be larger than {limit} bytes.")

    def _refuse(self, status: int, text: str) -> None:
        self._call_off_deadline()
        self.limits.bodies.drop(self)
        self._body.truncate(0)
        self._connection.refuse(status, text)

    def _take(self, size: int) -> bool:
        """Count so many bytes for as long as the request is under way; False if there is no
        room for them.
        """
        if size <= SMALL:
            return True
        self._source = bucket_of(str(getattr(self.getClientAddress(), "host", "")))
        has_room = self.limits.bodies.take(size, self._source)
        self._taken += size if has_room else 0
        return has_room

    def _free_body(self) -> None:
        """Count the body no more, if nobody is going to read it."""
        if self._taken and self._is_over and not self._works:
            self.limits.bodies.give_back(self._taken, self._source)
            self._taken = 0

    def _call_off_deadline(self) -> None:
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        self._deadline = None

    def _unpack(self) -> None:
        """Undo the Content-Encoding of the body.

        :raises _Refusal: it cannot be done.
        """
        coding = (header(self, "content-encoding") or "").strip().lower().encode("latin-1")
        if coding in {b"", b"identity"}:
            return
        if coding not in PACKED:
            self.setHeader("accept-encoding", ACCEPTED)  # RFC 9110, section 15.5.16
            raise _Refusal(415, f"A body may be compressed by one of {ACCEPTED}, or not at all.")
        limit = self.limits.http.body_limit
        try:
            body = unpacked(coding, self._body.getvalue(), limit)
        except TooLong:
            text = f"The body must not be larger than {limit} bytes, decompressed as well."
            raise _Refusal(413, text) from None
        except BadlyPacked as error:
            raise _Refusal(400, f"The body {error}.") from None
        if not self._take(len(body)):
            self.setHeader("retry-after", str(PAUSE))
            raise _Refusal(503, NO_MEMORY)
        self.content = self._body = BytesIO(body)

    def _read_form(self) -> None:
        """Put the fields of a query and a form into ``args``.

        XML is no form, whatever its Content-Type says.

        :raises _Refusal: there are too many, or it is a form of another kind.
        """
        query = self.uri.partition(b"?")[2]
        if _has_many_fields(query):
            raise _Refusal(400, f"A query has at most {MAX_FIELDS} parameters.")
        self.args = fields_of(query)
        body = body_of(self)
        if self.method != b"POST" or begins_as_xml(body):
            return
        kind = media_type(self)
        if kind == "multipart/form-data":
            raise _Refusal(415, "Send forms as application/x-www-form-urlencoded, please.")
        if kind == "application/x-www-form-urlencoded":
            if _has_many_fields(body):
                raise _Refusal(413, f"A form has at most {MAX_FIELDS} fields.")
            self.args.update(fields_of(body))


def _has_many_fields(text: bytes) -> bool:
    return text.count(b"&") >= MAX_FIELDS


class _QuietSite(Site):
    """A site that counts answers, and logs no line for each: what matters is logged where
    it happens.

    It speaks HTTP/1.1 and no HTTP/2, whose requests are not counted here.
    """

    protocol = Channel  # type: ignore[assignment] # the base class's chooses between the two
    displayTracebacks = False
    noisy = False

    def __init__(
        self, resource: IResource, limits: Limits, answers: Counter, **options: Any
    ) -> None:
        super().__init__(resource, **options)
        self._limits = limits
        self._answers = cache(answers.labels)  # to look one up takes its time

    def buildProtocol(self, addr: IAddress | None) -> Any:
        self.timeOut = self._limits.http.idle_timeout  # which the new channel takes over
        return super().buildProtocol(addr)

    def log(self, request: HTTPRequest) -> None:
        self._answers(request.code).inc()


def bounded_site(
    resource: IResource, limits: Limits, counters: Counters | None = None
) -> LimitedConnections:
    """A factory that serves a resource over bounded HTTP.

    :param resource: the root.
    :param counters: where answers are counted.
    """
    request_class = type("BoundedRequest", (BoundedRequest,), {"limits": limits})
    site: Factory[Any] = _QuietSite(
        resource,
        limits,
        (counters or Counters()).answers,
        requestFactory=request_class,
        reactor=limits.clock,
        parsePOSTFormSubmission=False,
    )
    return LimitedConnections(site, limits)
