"""The pages of rssCloud: forms for people who ping or register by hand, and what came of it.

``GET /rssCloud`` shows both forms, and so do ``/pingForm`` and ``/pleaseNotifyForm``, as other
rssCloud servers call the pages of theirs.  Forms are sent to the paths of the REST interface, and a
browser gets a page as the answer: 200 for what was done, else the form with what was filled in,
and why that was not taken (400; 403 if the operator does not allow it, 429 if it was one too
many).  Programs get XML or JSON there, as ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Final

from twisted.web.server import Request

from rsscloud_broker.front_doors.answering import Page
from rsscloud_broker.front_doors.requests import all_parameters, parameters, respond
from rsscloud_broker.interfaces import FrontDoorParts, Route
from rsscloud_broker.wire import rsscloud
from rsscloud_broker.wire.rsscloud import BadRegistration, Limited, NotAllowed

#: What most callbacks take.
_USUAL_PROTOCOL: Final = "http-post"

_PATHS: Final = ("/rssCloud", "/pingForm", "/pleaseNotifyForm")
_FIELDS: Final = ("url", "url1", "protocol", "domain", "port", "path", "notifyProcedure")


class RssCloudPages:
    """Makes the pages."""

    def __init__(self, parts: FrontDoorParts) -> None:
        self._pages = parts.pages
        self._running = dict.fromkeys(parts.running, "runs")
        self._protocols = " ".join(sorted(parts.broker.protocols - parts.broker.content_protocols))

    def routes(self) -> Sequence[Route]:
        """Where the forms are."""
        return [Route(path, "GET", Page(self.forms)) for path in _PATHS]

    async def forms(self, request: Request) -> bytes:
        """The two forms, empty."""
        return await self._forms(request, 200, "")

    async def pinged(self, request: Request, doing: Awaitable[str]) -> bytes:
        """What came of a ping.

        :param doing: gives the sentence of success; raises ``BadRegistration`` with that of
            failure.
        """
        return await self._done(request, doing, "Pinged", "rsscloud_pinged.html")

    async def registered(self, request: Request, doing: Awaitable[str]) -> bytes:
        """What came of a registration.

        :param doing: as for ``pinged``.
        """
        return await self._done(request, doing, "Registered", "rsscloud_registered.html")

    async def _done(
        self, request: Request, doing: Awaitable[str], title: str, template: str
    ) -> bytes:
        try:
            message = await doing
        except BadRegistration as error:
            if isinstance(error, Limited):
                request.setHeader("retry-after", str(error.retry_after))
            return await self._forms(request, _status(error), _in_words(error))
        topics = rsscloud.distinct(rsscloud.topics_of_form(all_parameters(request)))
        # Of several, which only programs send, some may have been refused.
        url = topics[0] if len(topics) == 1 else ""
        page = await self._pages.render(title, template, message=message, url=url, **self._running)
        return _html(request, 200, page)

    async def _forms(self, request: Request, status: int, message: str) -> bytes:
        sent = parameters(request)
        slots = {name: sent.get(name.lower(), "") for name in _FIELDS}
        slots["protocol"] = slots["protocol"] or _USUAL_PROTOCOL
        page = await self._pages.render(
            "This did not work" if message else "rssCloud",
            "rsscloud.html",
            message=message,
            protocols=self._protocols,
            **slots,
        )
        return _html(request, status, page)


def _in_words(error: BadRegistration) -> str:
    """What went wrong, and why, for people."""
    sentence = str(error).replace("<i>", "").replace("</i>", "")  # as rssCloud has it
    return f"{sentence} {error.reason}." if error.reason else sentence


def _status(error: BadRegistration) -> int:
    match error:
        case Limited():
            return 429
        case NotAllowed():
            return 403
    return 400


def _html(request: Request, status: int, page: bytes) -> bytes:
    return respond(request, status, "text/html; charset=utf-8", page)
