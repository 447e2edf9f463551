"""Answers a request with what an async function returns, and each error with its HTTP status.

Pages and protocols use it, so an error has the same status everywhere, in the form of each
protocol:

- 400, 403 and 429: the broker refuses the request (``Refused``, ``Forbidden``, ``TooMany``).
- 503: it lacks something, such as room on its disk, or it is stopping.
- 500: it has a bug, which is logged.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Final, Protocol, TypeAlias

from attrs import field, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.web.http import NO_BODY_CODES, NOT_MODIFIED
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request
from twisted.web.template import Flattenable

from rsscloud_broker.errors import Forbidden, ForgedForm, Refused, TooMany, Unavailable
from rsscloud_broker.http import requests
from rsscloud_broker.http.limits import BoundedRequest
from rsscloud_broker.http.requests import RequestError
from rsscloud_broker.interfaces import Caller, ICallers, IPages
from rsscloud_broker.wire.conditional import has_version

log = Logger()

HTML: Final = "text/html; charset=utf-8"
PLAIN: Final = "text/plain; charset=utf-8"

#: Seconds between two log lines that say that something is unavailable.
_LOG_INTERVAL: Final = 60.0


class _UnavailableLog:
    """Logs that something is unavailable, at most once a minute: more lines could fill a disk."""

    def __init__(self) -> None:
        self._logged_at = -_LOG_INTERVAL  # the first one is logged at once
        self._unlogged = 0  # requests since the last line

    def add(self, error: Unavailable, now: float) -> None:
        """Log that a request failed since the broker lacks something, or count the request.

        :param now: seconds, by a monotonic clock.
        """
        if now < self._logged_at + _LOG_INTERVAL:
            self._unlogged += 1
            return
        more = f" ({self._unlogged:,} more requests since the last line)" if self._unlogged else ""
        log.error("Unavailable: {error}", error=f"{error}{more}")
        self._logged_at, self._unlogged = now, 0


_unavailable_log = _UnavailableLog()

#: Seconds after which a client may try again when something is unavailable.
RETRY_AFTER: Final = 30


@frozen
class Answer:
    """An answer to a request.

    :ivar headers: further headers, by name.
    """

    body: bytes
    content_type: str = HTML
    status: int = 200
    headers: Mapping[str, str] = field(factory=dict)


#: What answers a request: a body whose status and headers are set; an answer with them; or None
#: if the request is answered in another way, as with a stream of events.
Answered: TypeAlias = bytes | Answer | None


@frozen
class Failure:
    """How an error is answered.

    :ivar text: sentences for the client.
    :ivar retry_after: the number of seconds after which it makes sense to try again, or None.
    """

    status: int
    text: str
    retry_after: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        """When to try again, as headers."""
        return {} if self.retry_after is None else {"retry-after": str(self.retry_after)}

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """How an error is answered, whatever the protocol.

        A nearly full disk is answered like everything else that is missing for a while, so that
        clients try again, and a proxy before several nodes tries another one.
        """
        match error:
            case CancelledError():
                return cls(503, "The broker is stopping.", RETRY_AFTER)
            case TooMany():
                return cls(429, f"This was not accepted: {error}.", error.retry_after)
            case Refused():
                is_forbidden = isinstance(error, (Forbidden, ForgedForm))
                return cls(403 if is_forbidden else 400, f"This was not accepted: {error}.")
            case Unavailable():
                return cls(503, f"{error.public_text} Please try again later.", RETRY_AFTER)
            case _:
                return cls(500, "The broker made a mistake. It has been logged.")


class Say(Protocol):
    """Sets the status and the headers of an answer, and makes a body that says why a request
    failed.
    """

    def __call__(self, request: Request, status: int, text: str, **headers: str) -> bytes: ...


def answer(request: Request, body: Awaitable[Answered], say: Say = requests.plain) -> int:
    """Answer a request with a body as soon as the body has been made.

    If the client hangs up, the work still goes on, since the request was made.  An error is
    answered as ``Failure.of`` or a ``RequestError`` says, unless the front door answers it by its
    own protocol.

    :param say: writes such an answer in the form of a protocol.
    :returns: ``NOT_DONE_YET``, as ``twisted.web`` wants it.
    """

    async def write() -> None:
        """Answer with what ``body`` returns, or with its error, if the client is still there."""
        try:
            content = await body
        except Exception as error:
            content = _failure_body(request, error, say)
        if content is None or request.channel is None:  # the client has hung up
            return
        if isinstance(content, Answer):
            send(request, content)
            return
        _send_body(request, request.code, content)

    writing = Deferred.fromCoroutine(write())
    if isinstance(request, BoundedRequest) and request.begin_work():
        writing.addBoth(lambda _: request.end_work())
    return NOT_DONE_YET


def _failure_body(request: Request, error: Exception, say: Say) -> bytes:
    """Log a bug or what the broker lacks; the body that says why the request failed."""
    if isinstance(error, RequestError):
        return say(request, error.status, str(error), **error.headers)
    failure = Failure.of(error)
    if isinstance(error, Unavailable):
        _unavailable_log.add(error, time.monotonic())
    elif failure.status == 500:  # a bug: log it, and still answer
        log.failure("A request to {path} failed.", path=request.path)
    return say(request, failure.status, failure.text, **failure.headers)


def send(request: Request, answer: Answer) -> None:
    """Send an answer, and end the request.

    An answer with status 200 gets an ETag if it has none, and a client that has the same version
    gets 304.
    """
    request.setResponseCode(answer.status)
    request.setHeader("content-type", answer.content_type)
    for name, value in answer.headers.items():
        request.setHeader(name, value)
    is_read = request.method in {b"GET", b"HEAD"}
    lacks_tag = answer.status == 200 and is_read and "etag" not in answer.headers
    if lacks_tag and client_has(request, f'"{sha256(answer.body).hexdigest()[:16]}"'):
        request.finish()
        return
    _send_body(request, answer.status, answer.body)


def client_has(request: Request, etag: str) -> bool:
    """Set the ETag of an answer to GET or HEAD, and say whether the client has that version.

    Then the status is 304.  Unlike Twisted, it compares tags weakly (RFC 9110, section 13.1.2).
    """
    request.setHeader("etag", etag)
    tags = request.requestHeaders.getRawHeaders(b"if-none-match")
    known = has_version(tags, None, (etag.encode("ascii"),), None)
    if known:
        request.setResponseCode(NOT_MODIFIED)
    return known


def _send_body(request: Request, status: int, body: bytes) -> None:
    if status not in NO_BODY_CODES:  # such an answer must not have a Content-Length
        request.setHeader("content-length", str(len(body)))
    request.write(body)
    request.finish()


def plain(status: int, text: str, headers: Mapping[str, str] | None = None) -> Answer:
    """An answer with a sentence, for programs and people.

    :param headers: beside Content-Type.
    """
    return Answer(f"{text}\n".encode(), PLAIN, status, headers or {})


async def viewer_of(callers: ICallers | None, request: Request) -> Caller | None:
    """Who has signed in and looks at a page that anybody may see; None for a stranger.

    :param callers: None if the broker has no accounts.
    """
    try:
        return await callers.caller(request) if callers is not None else None
    except Unavailable:
        return None  # the page itself may not need the store


def private(viewer: Caller | None) -> dict[str, str]:
    """The headers that keep caches from giving a page for one person to another."""
    return {"cache-control": "no-store"} if viewer is not None else {}


async def show_page(
    callers: ICallers | None,
    pages: IPages,
    request: Request,
    status: int,
    title: str,
    template: str,
    /,
    **slots: Flattenable,
) -> bytes:
    """Answer with a page that anybody may see, and which says who has signed in.

    :param callers: as for ``viewer_of``.
    """
    viewer = await viewer_of(callers, request)
    page = await pages.render(title, template, viewer, **slots)
    return requests.respond(request, status, HTML, page, **private(viewer))


class Answers(Resource):
    """A resource whose answers one async function makes, for every HTTP method.

    :param respond: takes the request and returns its answer: see ``Answered``.
    :param say: see ``answer``.
    """

    isLeaf = True

    def __init__(
        self, respond: Callable[[Request], Awaitable[Answered]], say: Say = requests.plain
    ) -> None:
        super().__init__()
        self._respond = respond
        self._say = say

    def render(self, request: Request) -> int:
        return answer(request, self._respond(request), self._say)
