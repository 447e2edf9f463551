"""The HTTP request of the broker's site: ``twisted.web``'s, with limits on body, form and time.

``twisted.web`` reads a body of any length, for as long as bytes drip in.  A
`BoundedRequest` refuses a body over the limit before reading it (or, if the request does not
give the length, as soon as the body passes the limit), counts its bytes in a budget that all
requests share, and has a deadline for the time from its first line to its last byte.
Connections have limits of their own: see ``connections``.

Front doors, the site and this module write their errors in plain text.  If a browser sent the
request, this module puts the text into a page that links to the front page.

This module also parses forms and queries.  Twisted parses ``multipart/form-data`` and the
Content-Type with a library for e-mail, which takes minutes for some bodies within the limit and
fails on some headers; no protocol of the broker needs either.  Twisted also ends a field at a
``;``, which may be part of a URL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from io import BytesIO
from typing import Any, TypeAlias

from prometheus_client import Counter
from twisted.internet.interfaces import IAddress, IDelayedCall
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure
from twisted.web.http import Request as HTTPRequest
from twisted.web.resource import IResource
from twisted.web.server import Site

from rsscloud_broker.counters import Counters
from rsscloud_broker.http import requests
from rsscloud_broker.http.access_log import AccessLog
from rsscloud_broker.http.bodies import SMALL, BodyRules
from rsscloud_broker.http.channel import Channel
from rsscloud_broker.http.connections import PAUSE, REQUEST_TIMEOUT, HTTPLimits, LimitedConnections
from rsscloud_broker.http.security import SECURITY_HEADERS
from rsscloud_broker.http.tracing import TracedRequest
from rsscloud_broker.policy.addresses import bucket_of
from rsscloud_broker.util.clock import call_off
from rsscloud_broker.wire.codings import (
    ACCEPTED,
    CONTENT_CODINGS,
    DecodingFailed,
    TooLong,
    decode_content,
)
from rsscloud_broker.wire.negotiation import wants_page

__all__ = ["MAX_FIELDS", "HTTPLimits", "bounded_site"]

_ABSOLUTE = re.compile(rb"https?://([^/?#]*)/?(.*)", re.IGNORECASE | re.DOTALL)

#: How many fields a form may have, and how many parameters a query.
MAX_FIELDS = 1000

_PLAIN = "text/plain"

NO_MEMORY = "The broker has no memory left for requests. Please send it again soon."

#: Makes an HTML page from the status of an answer and the text that says what went wrong.
ErrorPage: TypeAlias = Callable[[int, str], bytes]


class BoundedRequest(TracedRequest):
    """A request with a bounded body and a deadline; `bounded_site` sets the limits."""

    routes: BodyRules | None = None  # None: all bodies have the same limit
    error_page: ErrorPage | None = None  # None: errors are always plain text

    channel: Channel | None  # type: ignore[assignment] # None once the client has hung up
    _deadline: IDelayedCall | None = None
    _counted = 0  # bytes of the whole body that are counted in ``limits.bodies``
    _source = ""
    _is_in_use = False  # a front door works on the answer and may read the body
    _is_over = False  # it is answered, or the client has hung up

    def __init__(self, channel: Channel, *args: Any, **kwargs: Any) -> None:
        super().__init__(channel, *args, **kwargs)
        self._connection.stop_awaiting_request()
        self._body = BytesIO()
        self._received = 0
        self._limit = self.limits.http.body_limit
        self._await_rest()

    def _await_rest(self) -> None:
        """Refuse the request unless all of it arrives in time."""
        timeout = REQUEST_TIMEOUT
        self._deadline = self.limits.clock.callLater(
            timeout, self._refuse, 408, f"The whole request must arrive within {timeout:g} seconds."
        )

    def gotLength(self, length: int | None) -> None:
        """Find the limit of the body, and refuse a longer one, when all headers are there."""
        self._body = BytesIO()  # not a temporary file, as Twisted would use: the limit is low
        self.content = self._body
        if self.routes is not None and self.channel is not None:
            larger = self.routes.body_limit(_path(self.channel.target), requests.media_type(self))
            self._limit = max(larger, self.limits.http.body_limit)
        if length is not None and length > self._limit:
            self.requestHeaders.removeHeader(b"expect")  # or Twisted asks for the body
            self.refuse_body()

    def handleContentChunk(self, data: bytes) -> None:
        """Keep a part of the body and count it; refuse a body that is too long."""
        self._received += len(data)
        if self._connection.refused:
            return
        if self._received > self._limit:
            self.refuse_body()
        else:
            self._body.write(data)
            self.limits.bodies.grow(self, self._received)

    def give_up(self) -> None:
        """Answer that there is no memory for the body, and end the connection."""
        self._refuse(503, NO_MEMORY)

    def begin_work(self) -> bool:
        """Note that a front door works on the answer, perhaps until after the client has left.

        :returns: whether the front door must call `end_work` when it has finished.
        """
        self._is_in_use = self._counted > 0
        return self._is_in_use

    def end_work(self) -> None:
        """Note that the front door has finished with the request."""
        self._is_in_use = False
        self._free_body()

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Count the body of a request that is whole, and have it answered if there is memory."""
        call_off(self._deadline)
        if not path.startswith(b"/"):
            path = self._path_of(path)
        if self._received > SMALL and not self._count_body(self.limits.bodies.drop(self)):
            self.give_up()
        if not self._connection.refused:
            super().requestReceived(command, path, version)

    def _path_of(self, target: bytes) -> bytes:
        """The path and query of a request target; an absolute one also sets the header Host."""
        absolute = _ABSOLUTE.match(target)
        if absolute is None:
            return target
        # The target's host replaces the Host header (RFC 9112, section 3.2.2).
        self.requestHeaders.setRawHeaders(b"host", [absolute[1]])
        return b"/" + absolute[2]

    def process(self) -> None:
        """Decode the body and read the form, and have the site answer; or say what is wrong."""
        if self.requestHeaders.hasHeader(b"x-forwarded-for") and self._connection.may_be_proxy:
            self.limits.proxies.warn(self._connection.peer)
        try:
            if self._received and self.requestHeaders.hasHeader(b"content-encoding"):
                self._decode_body()
            self._read_form()
        except requests.RequestError as refusal:
            self._answer_plainly(refusal.status, str(refusal))
        else:
            super().process()

    def _answer_plainly(self, status: int, text: str) -> None:
        """Answer with an error as text, which scripts of all sites may read: it says nothing but
        what is wrong with the request.  The connection stays open.
        """
        body = requests.plain(self, status, text, access_control_allow_origin="*")
        self.setHeader("content-length", str(len(body)))
        self.write(body)
        self.finish()

    def write(self, data: bytes) -> None:
        """Write a part of the answer; for a browser an error becomes a page."""
        if self.code >= 400 and not self.startedWriting:
            seconds = self.responseHeaders.getRawHeaders("retry-after")
            if self.code == 429 and seconds:
                # Nothing is left until then: "RateLimit Field" of
                # draft-ietf-httpapi-ratelimit-headers-10, which wants the time of Retry-After.
                self.setHeader("ratelimit", f'"default";r=0;t={seconds[0]}')
            data = self._error_body(data)
        super().write(data)

    def finish(self) -> None:
        self._is_over = True
        self._free_body()
        super().finish()

    def connectionLost(self, reason: Failure) -> None:
        """End the request, and free its body unless somebody still reads it."""
        call_off(self._deadline)
        self.limits.bodies.drop(self)
        self._is_over = True
        self._free_body()
        # Twisted would close what somebody may still read.
        body, self.content = self.content, None
        super().connectionLost(reason)
        self.content = body

    def refuse_body(self) -> None:
        """Answer that the body is too large, and end the connection."""
        self._refuse(413, f"The body must not be larger than {self._limit} bytes.")

    def _refuse(self, status: int, text: str) -> None:
        """Answer with an error at once, drop the body, and end the connection."""
        call_off(self._deadline)
        self.limits.bodies.drop(self)
        self._body.truncate(0)
        page = self.error_page(status, text) if self.error_page and self._is_by_browser() else b""
        self._connection.refuse(status, text, page)

    def _is_by_browser(self) -> bool:
        """Whether a browser sent the request, which shows the answer to a person."""
        return wants_page(requests.header(self, "accept"), [_PLAIN])

    def _error_body(self, text: bytes) -> bytes:
        """The body of an error: for a browser a page with the text, otherwise the text itself.

        The text may be a part of it, and a HEAD may have none.
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
        # The plain text has no Vary: a browser that gets it from a cache can show it, too.
        headers.addRawHeader(b"vary", b"Accept")
        if not text:
            headers.removeHeader(b"content-length")  # the length of the page is unknown
            return b""
        page = self.error_page(self.code, text.decode("utf-8", "replace").strip())
        self.setHeader(b"content-length", b"%d" % len(page))
        return page

    def _count_body(self, size: int) -> bool:
        """Count bytes of the body until the request is over; False if there is no memory left."""
        if size <= SMALL:
            return True
        self._source = bucket_of(str(getattr(self.getClientAddress(), "host", "")))
        has_memory = self.limits.bodies.take(size, self._source)
        self._counted += size if has_memory else 0
        return has_memory

    def _free_body(self) -> None:
        """Stop counting the body, unless somebody may still read it."""
        if self._counted and self._is_over and not self._is_in_use:
            self.limits.bodies.give_back(self._counted, self._source)
            self._counted = 0
            self._body.close()

    def _decode_body(self) -> None:
        """Undo the Content-Encoding of the body; raises ``RequestError`` if that cannot be done."""
        coding = requests.header(self, "content-encoding").strip().lower().encode("latin-1")
        if coding in {b"", b"identity"}:
            return
        if coding not in CONTENT_CODINGS:
            self.setHeader("accept-encoding", ACCEPTED)  # RFC 9110, section 15.5.16
            raise requests.RequestError(
                415, f"A body may be compressed by one of {ACCEPTED}, or not at all."
            )
        limit = self._limit
        try:
            body = decode_content(coding, self._body.getvalue(), limit)
        except TooLong:
            text = f"The body must not be larger than {limit} bytes, decompressed as well."
            raise requests.RequestError(413, text) from None
        except DecodingFailed as error:
            raise requests.RequestError(400, f"The body {error}.") from None
        if not self._count_body(len(body)):
            self.setHeader("retry-after", str(PAUSE))
            raise requests.RequestError(503, NO_MEMORY)
        self.content = self._body = BytesIO(body)

    def _read_form(self) -> None:
        """Put the fields of the query and the form into ``args``.

        A body that is XML is not a form, whatever its Content-Type says.
        """
        query = self.uri.partition(b"?")[2]
        if _has_many_fields(query):
            raise requests.RequestError(400, f"A query has at most {MAX_FIELDS} parameters.")
        self.args = requests.fields_of(query)
        body = requests.body_of(self)
        if self.method != b"POST" or requests.begins_as_xml(body):
            return
        kind = requests.media_type(self)
        if kind == "multipart/form-data":
            if self.routes is not None and self.routes.takes_files(_path(self.uri)):
                return  # the front door parses the body
            raise requests.RequestError(
                415, "Send forms as application/x-www-form-urlencoded, please."
            )
        if kind == "application/x-www-form-urlencoded":
            if _has_many_fields(body):
                raise requests.RequestError(413, f"A form has at most {MAX_FIELDS} fields.")
            self.args.update(requests.fields_of(body))


def _path(target: bytes) -> str:
    """The path of a request's target, which may be a whole URL."""
    if absolute := _ABSOLUTE.match(target):
        target = b"/" + absolute[2]
    return target.partition(b"?")[0].decode("latin-1")


def _has_many_fields(text: bytes) -> bool:
    """Whether a form or a query has more than ``MAX_FIELDS``; ``&`` is between them."""
    return text.count(b"&") >= MAX_FIELDS


class _QuietSite(Site):
    """A site that counts its answers, and writes an access log if the operator wants one.

    It speaks HTTP/1.1 only: requests by HTTP/2 would bypass the limits.
    """

    protocol = Channel  # type: ignore[assignment] # the base class's chooses between the two
    displayTracebacks = False
    noisy = False

    def __init__(
        self,
        resource: IResource,
        limits: HTTPLimits,
        answers: Counter,
        access_log: AccessLog | None,
        **options: Any,
    ) -> None:
        super().__init__(resource, **options)
        self._limits = limits
        self._answers = cache(answers.labels)  # cached, since a look-up is slow
        self._access_log = access_log

    def buildProtocol(self, addr: IAddress | None) -> Any:
        self.timeOut = self._limits.http.idle_timeout  # a new channel copies this
        return super().buildProtocol(addr)

    def log(self, request: HTTPRequest) -> None:
        """Count an answered request, and write its line; Twisted calls this."""
        self._answers(request.code).inc()
        if self._access_log is not None:
            self._access_log.add(request)


def bounded_site(
    resource: IResource,
    limits: HTTPLimits,
    counters: Counters | None = None,
    error_page: ErrorPage | None = None,
    access_log: AccessLog | None = None,
) -> LimitedConnections:
    """Make the factory that serves a resource over HTTP with limits.

    :param resource: the root resource.
    :param limits: the limits that all its connections share.
    :param counters: where answers and connections are counted.
    :param error_page: makes the error pages for browsers; without it all errors are plain text.
    :param access_log: gets a line for each request that is answered.
    """
    routes = resource if isinstance(resource, BodyRules) else None
    if routes is not None:
        limits.largest_body = max(limits.largest_body, routes.largest_body)
        limits.change(limits.http)
    own = {
        "limits": limits,
        "routes": routes,
        "error_page": error_page and staticmethod(error_page),
    }
    request_class = type("BoundedRequest", (BoundedRequest,), own)
    counters = counters or Counters()
    site: Factory[Any] = _QuietSite(
        resource,
        limits,
        counters.answers,
        access_log,
        requestFactory=request_class,
        reactor=limits.clock,
        parsePOSTFormSubmission=False,
    )
    connections = LimitedConnections(site, limits)
    counters.connections.set_function(lambda: len(connections.protocols))
    return connections
