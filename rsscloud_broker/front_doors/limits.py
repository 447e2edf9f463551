"""HTTP from strangers: bounded bodies, forms and headers, and deadlines.

``twisted.web`` reads a body of any length and waits for it as long as bytes
drip in.  Here a body over the limit is refused before it is read (or, where its
length is not told, as soon as it passes the limit), all bodies together have a budget of
bytes, and a request has a deadline from its first line to its last byte.  Connections have
limits of their own: see ``connections``.

An error is told in plain text, whoever tells it: a door, the site, or this module.  If a browser
asked, the text is put into a page here, with a way back to the front page.

Forms and queries are read here too.  Twisted's reading of ``multipart/form-data`` and
of the Content-Type rests on a library for e-mail, which takes minutes for some bodies
within the limit and fails at some headers; no protocol here needs either.  And Twisted
ends a field at a ``;``, which may stand in a URL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from io import BytesIO
from typing import Any, TypeAlias

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
    within,
)
from rsscloud_broker.front_doors.negotiation import wants_page
from rsscloud_broker.front_doors.requests import (
    begins_as_xml,
    body_of,
    fields_of,
    header,
    media_type,
    plain,
)
from rsscloud_broker.front_doors.security import SECURITY_HEADERS
from rsscloud_broker.sources import bucket_of
from rsscloud_broker.urls import is_address
from rsscloud_broker.wire.codings import ACCEPTED, PACKED, BadlyPacked, TooLong, unpacked

__all__ = ["LINGER", "MAX_FIELDS", "Limits", "bounded_site"]

_ABSOLUTE = re.compile(rb"https?://([^/?#]*)(/.*)?", re.IGNORECASE | re.DOTALL)

#: How many fields a form may have, and how many parameters a query.
MAX_FIELDS = 1000

_PLAIN = "text/plain"

NO_MEMORY = "The broker has no memory left for requests. Please send it again soon."


#: Makes a page of the status of an answer and the sentences that say what went wrong.
ErrorPage: TypeAlias = Callable[[int, str], bytes]


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
    error_page: ErrorPage | None = None  # None where no person asks for anything

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
        if self.code >= 400 and not self.startedWriting:
            data = self._shown(data)
        super().write(data)

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
        page = self.error_page(status, text) if self.error_page and self._is_by_browser() else b""
        self._connection.refuse(status, text, page)

    def _is_by_browser(self) -> bool:
        """Whether a person will see the answer."""
        return wants_page(header(self, "accept"), [_PLAIN])

    def _shown(self, text: bytes) -> bytes:
        """What is sent of an error: its text, or for a person a page around it.

        :param text: the whole body of the answer; empty for HEAD, perhaps.
        """
        headers = self.responseHeaders
        length = b"%d" % len(text)
        is_whole = self.method == b"HEAD" or headers.getRawHeaders(b"content-length") == [length]
        (kind,) = headers.getRawHeaders(b"content-type") or [b""]
        is_plain = kind.startswith(_PLAIN.encode("ascii"))
        if not (self.error_page and is_whole and is_plain and self._is_by_browser()):
            return text
        for name, value in SECURITY_HEADERS.items():
            self.setHeader(name, value)
        self.setHeader(b"content-type", b"text/html; charset=utf-8")
        # Only here: whoever gets the text from a cache instead of the page can read it, too.
        headers.addRawHeader(b"vary", b"Accept")
        if not text:
            headers.removeHeader(b"content-length")  # that of the page is not known
            return b""
        page = self.error_page(self.code, text.decode("utf-8", "replace").strip())
        self.setHeader(b"content-length", b"%d" % len(page))
        return page

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
    resource: IResource,
    limits: Limits,
    counters: Counters | None = None,
    error_page: ErrorPage | None = None,
) -> LimitedConnections:
    """A factory that serves a resource over bounded HTTP.

    :param resource: the root.
    :param counters: where answers are counted.
    :param error_page: makes the pages that tell people of errors; without it everybody gets
        plain text.
    """
    own = {"limits": limits, "error_page": error_page and staticmethod(error_page)}
    request_class = type("BoundedRequest", (BoundedRequest,), own)
    site: Factory[Any] = _QuietSite(
        resource,
        limits,
        (counters or Counters()).answers,
        requestFactory=request_class,
        reactor=limits.clock,
        parsePOSTFormSubmission=False,
    )
    return LimitedConnections(site, limits)
