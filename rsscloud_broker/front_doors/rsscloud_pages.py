"""The HTML pages of the rssCloud front door: forms to ping and to register, and their results.

``GET /rssCloud`` shows both forms, and so do ``/pingForm`` and ``/pleaseNotifyForm``, the paths
that other rssCloud servers use.  Browsers send the forms to the paths of the REST interface and
get a page as the answer: with 200 if the request succeeded, else the form with the values that
were filled in and the reason (400; 403 if the operator does not allow it, 429 if a limit on
requests was reached).  Programs get XML or JSON at the same paths.
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

#: The protocol that the form proposes: most callbacks use it.
_USUAL_PROTOCOL: Final = "http-post"

_PATHS: Final = ("/rssCloud", "/pingForm", "/pleaseNotifyForm")
_FIELDS: Final = ("url", "url1", "protocol", "domain", "port", "path", "notifyProcedure")


class RssCloudPages:
    """Makes the pages; the rssCloud front door calls it."""

    def __init__(self, parts: FrontDoorParts) -> None:
        self._pages = parts.pages
        self._running = dict.fromkeys(parts.running, "runs")
        self._protocols = " ".join(sorted(parts.broker.protocols - parts.broker.content_protocols))

    def routes(self) -> Sequence[Route]:
        """The routes of the page with the forms."""
        return [Route(path, "GET", Page(self.forms)) for path in _PATHS]

    async def forms(self, request: Request) -> bytes:
        """The page with the two forms, empty."""
        return await self._forms(request, 200, "")

    async def pinged(self, request: Request, result: Awaitable[str]) -> bytes:
        """The page with the result of a ping.

        :param result: returns the sentence of success, or raises ``BadRegistration`` with that
            of failure.
        """
        return await self._result(request, result, "Pinged", "rsscloud_pinged.html")

    async def registered(self, request: Request, result: Awaitable[str]) -> bytes:
        """The page with the result of a registration.

        :param result: as for `pinged`.
        """
        return await self._result(request, result, "Registered", "rsscloud_registered.html")

    async def _result(
        self, request: Request, result: Awaitable[str], title: str, template: str
    ) -> bytes:
        try:
            message = await result
        except BadRegistration as error:
            if isinstance(error, Limited):
                request.setHeader("retry-after", str(error.retry_after))
            return await self._forms(request, _status(error), _in_words(error))
        topics = rsscloud.distinct(rsscloud.topics_of_form(all_parameters(request)))
        # Only programs send several topics; some of them may have been refused.
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
    """The error and its reason, as a sentence for people."""
    sentence = str(error).replace("<i>", "").replace("</i>", "")  # rssCloud's markup
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
