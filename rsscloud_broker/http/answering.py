"""Answers a request with what an async function returns, and errors with their HTTP status.

Every front door uses `Page` for its routes.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.web.http import NO_CONTENT
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from rsscloud_broker.errors import TooMany, Unavailable
from rsscloud_broker.http.limits import BoundedRequest
from rsscloud_broker.http.requests import plain

log = Logger()

#: Seconds between two log lines that say that something is unavailable.
_LOG_INTERVAL: Final = 60.0


class _UnavailableLog:
    """Logs that something is unavailable, at most once a minute: more lines could fill a disk."""

    def __init__(self) -> None:
        self._logged_at = -_LOG_INTERVAL
        self._unlogged = 0

    def add(self, error: Unavailable, now: float) -> None:
        """Log that a request failed for the broker's own want, or count the request.

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
RETRY_AFTER = "30"


class Say(Protocol):
    """Sets the status and the headers of an answer, and writes why a request failed as its body."""

    def __call__(self, request: Request, status: int, text: str, **headers: str) -> bytes: ...


def answer(request: Request, body: Awaitable[bytes], say: Say = plain) -> int:
    """Answer a request with a body as soon as the body has been made.

    If the client hangs up, the work still goes on, since the request was made.  ``TooMany`` is
    answered with 429, unless the front door answers it by its own protocol; ``Unavailable`` and
    a broker that is stopping with 503; any other exception is logged and answered with 500.

    :param say: writes those answers in the form of a protocol.
    :returns: ``NOT_DONE_YET``, as ``twisted.web`` wants it.
    """

    async def write() -> None:
        try:
            content = await body
        except CancelledError:
            content = say(request, 503, "The broker is stopping.", retry_after=RETRY_AFTER)
        except TooMany as error:
            text = f"This was not accepted: {error}."
            content = say(request, 429, text, retry_after=str(error.retry_after))
        except Unavailable as error:
            _unavailable_log.add(error, time.monotonic())
            text = f"{error.told} Please try again later."
            content = say(request, 503, text, retry_after=RETRY_AFTER)
        except Exception:  # a bug: log it, and still answer
            log.failure("A request to {path} failed.", path=request.path)
            content = say(request, 500, "The broker made a mistake. It has been logged.")
        if request.channel is not None:  # otherwise the client has hung up
            if request.code != NO_CONTENT:  # a 204 must not have a Content-Length
                request.setHeader("content-length", str(len(content)))
            request.write(content)
            request.finish()

    writing = Deferred.fromCoroutine(write())
    if isinstance(request, BoundedRequest) and request.work_began():
        writing.addBoth(lambda _: request.work_ended())
    return NOT_DONE_YET


class Page(Resource):
    """A resource whose answers one async function makes, for every HTTP method.

    :param respond: takes the request, sets status and headers, and returns the body.
    :param say: see ``answer``.
    """

    isLeaf = True

    def __init__(self, respond: Callable[[Request], Awaitable[bytes]], say: Say = plain) -> None:
        super().__init__()
        self._respond = respond
        self._say = say

    def render(self, request: Request) -> int:
        return answer(request, self._respond(request), self._say)
