"""Resources whose answer takes a while."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.web.http import NO_CONTENT
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from rsscloud_broker.errors import TooMany, Unavailable
from rsscloud_broker.front_doors.limits import BoundedRequest
from rsscloud_broker.front_doors.requests import plain

log = Logger()

#: Seconds between two lines of the log that say that the store is unavailable.
_SAID_AGAIN: Final = 60.0


class _Complaints:
    """Says that the store is unavailable once a minute: a log of it may fill a disk."""

    def __init__(self) -> None:
        self._said_at = -_SAID_AGAIN
        self._unsaid = 0

    def say(self, error: Unavailable, now: float) -> None:
        """Say so, or count it.

        :param now: seconds, by whatever clock only goes forward.
        """
        if now < self._said_at + _SAID_AGAIN:
            self._unsaid += 1
            return
        more = f" ({self._unsaid:,} requests more since this was said)" if self._unsaid else ""
        log.error("Unavailable: {error}", error=f"{error}{more}")
        self._said_at, self._unsaid = now, 0


_complaints = _Complaints()

#: Seconds after which a client may try again when the store is unavailable.
RETRY_AFTER = "30"


def answer(request: Request, body: Awaitable[bytes]) -> int:
    """Write an answer when it is there.

    A client that has gone away does not stop the work: what it asked for was
    asked for.  What is one too many is a 429, unless the front door has said it
    in its own way; a store that cannot be used is a 503, a bug a 500.
    """

    async def write() -> None:
        try:
            content = await body
        except CancelledError:
            content = plain(request, 503, "The broker is stopping.", retry_after=RETRY_AFTER)
        except TooMany as error:
            text = f"This was not accepted: {error}."
            content = plain(request, 429, text, retry_after=str(error.retry_after))
        except Unavailable as error:
            _complaints.say(error, time.monotonic())
            content = plain(
                request,
                503,
                "The broker cannot store anything right now. Please try again later.",
                retry_after=RETRY_AFTER,
            )
        except Exception:  # answered and logged, whatever it was
            log.failure("A request to {path} failed.", path=request.path)
            content = plain(request, 500, "The broker made a mistake. It has been logged.")
        if request.channel is not None:  # otherwise the client has gone
            if request.code != NO_CONTENT:  # which has none, and no length of it either
                request.setHeader("content-length", str(len(content)))
            request.write(content)
            request.finish()

    writing = Deferred.fromCoroutine(write())
    if isinstance(request, BoundedRequest) and request.work_began():
        writing.addBoth(lambda _: request.work_ended())
    return NOT_DONE_YET


class Page(Resource):
    """A resource that answers every method it is routed for by one async function.

    :param respond: takes the request, sets status and headers, gives the body.
    """

    isLeaf = True

    def __init__(self, respond: Callable[[Request], Awaitable[bytes]]) -> None:
        super().__init__()
        self._respond = respond

    def render(self, request: Request) -> int:
        return answer(request, self._respond(request))
