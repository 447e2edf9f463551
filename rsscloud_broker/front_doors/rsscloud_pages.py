"""The HTML pages of the rssCloud front door: forms to ping and to register, and their results.

``GET /rssCloud`` shows both forms, and so do ``/pingForm`` and ``/pleaseNotifyForm``, the paths
that other rssCloud servers use.  Browsers send the forms to the paths of the REST interface and
get a page as the answer: with 200 if the request succeeded, else the form with the values that
were filled in and the reason (400; 403 if the operator does not allow it, 429 if a limit on
requests was reached).  Programs get XML or JSON at the same paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twisted.web.server import Request

from rsscloud_broker.front_doors.rsscloud_answers import XML, RestResult
from rsscloud_broker.http.answering import Answers
from rsscloud_broker.http.requests import all_parameters, parameters, respond
from rsscloud_broker.http.shown_exchange import (
    MAX_VALUE,
    ShownAnswer,
    form_slots,
    topic_link,
)
from rsscloud_broker.interfaces import FrontDoorParts, Route
from rsscloud_broker.wire import rsscloud
from rsscloud_broker.wire.rsscloud import BadRegistration, Limited, NotAllowed
from rsscloud_broker.wire.text import sentence

#: The protocol that the form proposes: most callbacks use it.
_USUAL_PROTOCOL: Final = "http-post"

_PATHS: Final = ("/rssCloud", "/pingForm", "/pleaseNotifyForm")
_FIELDS: Final = ("url", "url1", "protocol", "domain", "port", "path", "notifyProcedure")


class RssCloudPages:
    """Makes the pages; the rssCloud front door calls it."""

    def __init__(self, parts: FrontDoorParts) -> None:
        self._pages = parts.pages
        self._public_url = parts.public_url
        # The names of front doors and applications: some sentences are shown only if one runs.
        self._running_parts = parts.running
        # What callbacks can register for: a registration cannot say how to sign content.
        self._protocols = " ".join(sorted(parts.broker.protocols - parts.broker.content_protocols))

    def routes(self) -> Sequence[Route]:
        return [Route(path, "GET", Answers(self.forms)) for path in _PATHS]

    async def forms(self, request: Request) -> bytes:
        return await self._forms_page(request, 200, "", {})

    async def ping_result(self, request: Request, result: RestResult) -> bytes:
        return await self._result_page(request, result, "Pinged", "rsscloud_pinged.html")

    async def registration_result(self, request: Request, result: RestResult) -> bytes:
        return await self._result_page(request, result, "Registered", "rsscloud_registered.html")

    async def _result_page(
        self, request: Request, result: RestResult, title: str, template: str
    ) -> bytes:
        shown = self._exchange_slots(request, result)
        error = result.error
        if error is not None:
            if isinstance(error, Limited):
                request.setHeader("retry-after", str(error.retry_after))
            return await self._forms_page(request, _status_of(error), _in_words(error), shown)
        topics = rsscloud.distinct(rsscloud.topics_of_form(all_parameters(request)))
        # Only programs send several topics; some of them may have been refused.
        url = topics[0] if len(topics) == 1 else ""
        page = await self._pages.render(
            title,
            template,
            here=_PATHS[0],
            message=result.msg,
            url=url,
            topic_link=topic_link(url, self._running_parts),
            **dict.fromkeys(self._running_parts, "runs"),
            **shown,
        )
        return _respond_html(request, 200, page)

    def _exchange_slots(self, request: Request, result: RestResult) -> dict[str, str]:
        sent = parameters(request)
        fields = [(name, sent.get(name.lower(), "")) for name in _FIELDS if name[:3] != "url"]
        if result.root == "result":  # a ping has nothing but topics
            fields = []
        names = (name for name, _ in all_parameters(request) if name[:3] == "url")
        fields += [(name, sent[name]) for name in dict.fromkeys(names)]
        headers = [("Content-Type", XML)]
        if result.reason:
            headers.append(("Rsscloud-Reason", result.reason))
        answer = ShownAnswer(200, headers, result.document().decode())
        path = request.path.decode("ascii")
        return form_slots(self._public_url, path, fields, answer)

    async def _forms_page(
        self, request: Request, status: int, message: str, shown: dict[str, str]
    ) -> bytes:
        sent = parameters(request)
        slots = {name: sent.get(name.lower(), "")[:MAX_VALUE] for name in _FIELDS}
        slots["protocol"] = slots["protocol"] or _USUAL_PROTOCOL
        page = await self._pages.render(
            "This did not work" if message else "rssCloud",
            "rsscloud.html",
            here=_PATHS[0],
            message=message,
            protocols=self._protocols,
            **slots,
            **shown,
        )
        return _respond_html(request, status, page)


def _in_words(error: BadRegistration) -> str:
    said = str(error).replace("<i>", "").replace("</i>", "")  # rssCloud's markup
    # The sentence says already if the broker does not call a URL at all.
    return said if error.reason in said else f"{said} {sentence(error.reason)}"


def _status_of(error: BadRegistration) -> int:
    match error:
        case Limited():
            return 429
        case NotAllowed():
            return 403
    return 400


def _respond_html(request: Request, status: int, page: bytes) -> bytes:
    return respond(request, status, "text/html; charset=utf-8", page)
