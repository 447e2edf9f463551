"""Answers requests for pages with what an async function returns.

The front doors of this package use it.  ``front_doors.answering`` does the same for protocols.
Errors are answered in plain text, which the site turns into a page for browsers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Final

from attrs import field, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.web.http import CACHED, NO_BODY_CODES
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from rsscloud_broker.errors import DiskFull, TooMany, Unavailable

HTML: Final = "text/html; charset=utf-8"
PLAIN: Final = "text/plain; charset=utf-8"

#: What somebody is told whose request needs space on the disk.
DISK_IS_FULL: Final = (
    "The disk of this server is nearly full, so nothing new is stored. Nothing was changed. Try "
    "again later, or tell the operator of the server."
)

#: Seconds after which a client may try again when the store is unavailable.
_RETRY_AFTER: Final = "30"


@frozen
class Answer:
    """An answer to a request.

    :ivar headers: further headers, by name.
    """

    body: bytes
    content_type: str = HTML
    status: int = 200
    headers: Mapping[str, str] = field(factory=dict)


class Answers(Resource):
    """A resource whose answers one async function makes.

    An answer with status 200 gets an ETag if it has none, and a client that has the same version
    gets 304.

    :param respond: takes the request and returns the answer; or None if it answers the request
        itself, as with a stream of events.
    """

    isLeaf = True
    log = Logger()

    def __init__(self, respond: Callable[[Request], Awaitable[Answer | None]]) -> None:
        super().__init__()
        self._respond = respond

    def render(self, request: Request) -> int:
        Deferred.fromCoroutine(self._answer(request))
        return NOT_DONE_YET

    async def _answer(self, request: Request) -> None:
        answer: Answer | None
        try:
            answer = await self._respond(request)
        except CancelledError:
            answer = _error(503, "The broker is stopping.", _RETRY_AFTER)
        except TooMany as error:
            answer = _error(429, f"This was not accepted: {error}.", str(error.retry_after))
        except DiskFull:
            answer = _error(507, DISK_IS_FULL)
        except Unavailable as error:
            text = f"{error.told} Please try again later."
            answer = _error(503, text, _RETRY_AFTER)
        except Exception:  # a bug: log it, and still answer
            self.log.failure("A request to {path} failed.", path=request.path)
            answer = _error(500, "The broker made a mistake. It has been logged.")
        if answer is not None and request.channel is not None:  # None: it has hung up
            send(request, answer)


def plain(status: int, text: str, headers: Mapping[str, str] | None = None) -> Answer:
    """An answer with a sentence, for programs and people.

    :param headers: beside Content-Type.
    """
    return Answer(f"{text}\n".encode(), PLAIN, status, headers or {})


def _error(status: int, text: str, retry_after: str = "") -> Answer:
    return plain(status, text, {"retry-after": retry_after} if retry_after else {})


def send(request: Request, answer: Answer) -> None:
    """Send an answer, and end the request."""
    request.setResponseCode(answer.status)
    request.setHeader("content-type", answer.content_type)
    for name, value in answer.headers.items():
        request.setHeader(name, value)
    body = answer.body
    is_read = request.method in {b"GET", b"HEAD"}
    if answer.status == 200 and is_read and "etag" not in answer.headers:
        etag = f'"{sha256(body).hexdigest()[:16]}"'.encode("ascii")
        if request.setETag(etag) is CACHED:
            request.finish()
            return
    if answer.status not in NO_BODY_CODES:
        request.setHeader("content-length", str(len(body)))
    request.write(body)
    request.finish()


def body_of(request: Request) -> bytes:
    """The body of a request.  It is in memory, since bodies are limited."""
    if request.content is None:
        return b""
    request.content.seek(0)
    body: bytes = request.content.read()
    return body


def raw_parameter(request: Request, name: str) -> bytes | None:
    """The bytes of the first value of a parameter in the query or the form; None if it is absent.

    :param name: upper and lower case do not matter.
    """
    wanted = name.lower().encode("ascii")
    fields = (request.args or {}).items()
    return next((values[0] for key, values in fields if key.lower() == wanted), None)


def accepted_codings(request: Request) -> bytes:
    """The values of Accept-Encoding, for ``wire.codings.allows_gzip``; empty if there are none."""
    return b",".join(request.requestHeaders.getRawHeaders(b"accept-encoding", ()))


def parameter(request: Request, name: str) -> str:
    """The first value of a parameter in the query or the form; empty if there is none.

    Bytes that are not UTF-8 are replaced by the replacement character, and so is NUL, which
    PostgreSQL refuses.
    """
    values: list[bytes] = (request.args or {}).get(name.encode("ascii"), [b""])
    return values[0].decode("utf-8", "replace").replace("\0", "\ufffd")
