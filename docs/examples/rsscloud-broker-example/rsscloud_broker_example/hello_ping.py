"""A front door that takes pings by the simplest of requests: GET, with a URL."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

from attrs import field, frozen
from attrs.validators import ge, matches_re
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request
from twisted.web.xmlrpc import XMLRPC
from zope.interface import implementer

from rsscloud_broker.errors import Refused, TooMany, Unavailable
from rsscloud_broker.http.requests import client_address
from rsscloud_broker.interfaces import (
    FrontDoorParts,
    IFrontDoor,
    IFrontDoorMaker,
    Route,
    SoapService,
)
from rsscloud_broker.model import Ping

#: What is taken for a web address: printable ASCII of at most 255 characters.
_WEB_ADDRESS = re.compile(r"https?://[!-~]{1,247}")


@frozen
class HelloPingOptions:
    """Keys of ``[front_doors.hello_ping]``.

    :ivar path: where the door is.
    :ivar repeat_window: seconds within which the same ping again counts once.
    """

    path: str = field(default="/hello-ping", validator=matches_re(r"/[A-Za-z0-9/_-]+"))
    repeat_window: float = field(default=60.0, validator=ge(0))


@implementer(IFrontDoor)
class HelloPing:
    """Takes pings by the simplest of requests: ``GET /hello-ping?url=URL``."""

    name = "hello_ping"

    def __init__(self, options: HelloPingOptions, parts: FrontDoorParts) -> None:
        self._options = options
        self._parts = parts

    def routes(self) -> Sequence[Route]:
        return [Route(self._options.path, "GET", HelloPingPage(self.ping))]

    def xmlrpc_handlers(self) -> Mapping[str, XMLRPC]:
        return {}

    def soap_services(self) -> Sequence[SoapService]:
        return []

    async def ping(self, url: str, caller: str) -> tuple[int, str]:
        """Take a ping in; the status and the text of the answer.

        :param caller: the address that it came from: nobody may ping without end.
        """
        if not _WEB_ADDRESS.fullmatch(url):
            return 400, "Say which site changed, such as ?url=http://example.org/"
        ping = Ping(name=url, url=url, received_at=self._parts.clock.wall_seconds())
        try:
            await self._parts.broker.ping(ping, self._options.repeat_window, caller)
        except TooMany as error:
            return 429, f"Not so fast, please: {error}."
        except Refused as error:
            return 400, f"This was not accepted: {error}."
        except Unavailable:
            return 503, "Nothing can be stored right now: please try again later."
        return 200, "Hello, and thanks for the ping."


class HelloPingPage(Resource):
    """The HTTP side of `HelloPing`: a query in, plain text out.

    :param ping: takes a URL and the address of the caller; gives the status and
        the text of the answer.
    """

    isLeaf = True
    log = Logger()

    def __init__(self, ping: Callable[[str, str], Awaitable[tuple[int, str]]]) -> None:
        super().__init__()
        self._ping = ping

    def render_GET(self, request: Request) -> int:
        answered = Deferred.fromCoroutine(self._answer(request))
        answered.addErrback(self._fail, request)
        # Nobody reads the answer of a caller who hung up.
        request.notifyFinish().addErrback(lambda _: answered.cancel())
        return NOT_DONE_YET

    async def _answer(self, request: Request) -> None:
        urls = (request.args or {}).get(b"url", [b""])
        caller = client_address(request)
        status, text = await self._ping(urls[0].decode("utf-8", "replace"), caller)
        request.setResponseCode(status)
        request.setHeader(b"content-type", b"text/plain; charset=utf-8")
        request.write(f"{text}\n".encode())
        request.finish()

    def _fail(self, failure: Failure, request: Request) -> None:
        if failure.check(CancelledError):
            return
        self.log.failure("A ping could not be answered", failure)
        request.setResponseCode(500)
        request.finish()


@implementer(IFrontDoorMaker)
class HelloPingMaker:
    """Makes a `HelloPing`."""

    name = "hello_ping"
    help = "Takes pings by GET /hello-ping?url=URL."
    options = HelloPingOptions
    needs = ("broker", "clock")

    def make(self, options: HelloPingOptions, parts: FrontDoorParts) -> IFrontDoor:
        return HelloPing(options, parts)
