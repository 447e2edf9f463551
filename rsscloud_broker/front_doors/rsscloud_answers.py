"""Answers the requests of the REST interface of rssCloud, to programs and to browsers.

Programs get XML or JSON, with status 200 unless the broker is at fault.

Browsers get a page.  ``GET /rssCloud`` shows forms to ping and to register, and so do ``/pingForm``
and ``/pleaseNotifyForm``, the paths that other rssCloud servers use.  Browsers send the forms to
the paths of the REST interface: the answer has status 200 if the request succeeded, else the form
with the values that were filled in and the reason (400; 403 if the operator does not allow it, 429
if a limit on requests was reached).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from attrs import frozen
from twisted.web.server import Request

from rsscloud_broker.http.answering import Answers, Say, show_page
from rsscloud_broker.http.requests import all_parameters, header, parameters, plain, respond
from rsscloud_broker.http.shown_exchange import MAX_VALUE, ShownAnswer, form_slots, topic_link
from rsscloud_broker.interfaces import FrontDoorParts, Route
from rsscloud_broker.wire import rsscloud
from rsscloud_broker.wire.negotiation import preferred, wants_page
from rsscloud_broker.wire.rsscloud import BadRegistration, Limited, NotAllowed
from rsscloud_broker.wire.text import clean, sentence

#: The media types in which programs get answers.
_KINDS: Final = ("text/xml", "application/xml", "application/json")

_XML: Final = "text/xml; charset=utf-8"

#: The protocol that the form proposes: most callbacks use it.
_USUAL_PROTOCOL: Final = "http-post"

_PATHS: Final = ("/rssCloud", "/pingForm", "/pleaseNotifyForm")
_FIELDS: Final = ("url", "url1", "protocol", "domain", "port", "path", "notifyProcedure")

#: The titles and templates of the pages that thank, by the root elements of the answers in XML.
_THANKS: Final = {
    "result": ("Pinged", "rsscloud_pinged.html"),
    "notifyResult": ("Registered", "rsscloud_registered.html"),
}


@frozen
class RestResult:
    """What came of a request.

    :ivar root: the name of the root element of the answer in XML.
    :ivar msg: the sentence of success or of failure.
    :ivar error: why the request was refused; None if it was not.
    """

    root: str
    msg: str
    error: BadRegistration | None = None

    @property
    def reason(self) -> str:
        """Why the request failed, for the header ``Rsscloud-Reason``; often empty."""
        reason = clean(self.error.reason) if self.error else ""
        return reason.encode("ascii", "backslashreplace").decode("ascii")

    def document(self) -> bytes:
        """The answer in XML, which has the reason of a failure in a comment."""
        reason = clean(self.error.reason) if self.error else ""
        success = self.error is None
        return rsscloud.result_document(self.root, success=success, msg=self.msg, reason=reason)


async def rest_answer(
    request: Request,
    root: str,
    act: Callable[[], Awaitable[str]],
    page: Callable[[Request, RestResult], Awaitable[bytes]],
) -> bytes:
    """Perform a REST request and answer with the media type that the client accepts.

    :param root: the name of the root element of an XML answer.
    :param act: performs the request; returns the sentence of success, or raises
        ``BadRegistration`` with that of failure.
    """
    accept = header(request, "accept")
    as_page = wants_page(accept, _KINDS)
    kind = preferred(accept, _KINDS)
    if kind is None and not as_page:
        return plain(request, 406, "Not Acceptable")
    try:
        result = RestResult(root, await act())
    except BadRegistration as error:
        result = RestResult(root, str(error), error)
    if as_page:
        return await page(request, result)
    if result.reason:
        request.setHeader("rsscloud-reason", result.reason)
    return _answer_program(request, 200, kind, result)


def failure_of(root: str) -> Say:
    """Make the function that answers a request which the broker could not perform.

    Programs get the text as XML or JSON; browsers get it as plain text.

    :param root: the name of the root element of an XML answer.
    """

    def answer_failure(request: Request, status: int, text: str, **headers: str) -> bytes:
        accept = header(request, "accept")
        if wants_page(accept, _KINDS):
            return plain(request, status, text, **headers)
        # Pings are refused with this error, too.  Without it the result would be a success.
        result = RestResult(root, msg=text, error=BadRegistration(text))
        return _answer_program(request, status, preferred(accept, _KINDS), result, **headers)

    return answer_failure


def _answer_program(
    request: Request, status: int, kind: str | None, result: RestResult, **headers: str
) -> bytes:
    """Answer with a result as JSON or XML."""
    if kind == "application/json":
        answer = {"success": result.error is None, "msg": result.msg}
        return respond(request, status, kind, json.dumps(answer).encode(), **headers)
    return respond(request, status, _XML, result.document(), **headers)


class RssCloudPages:
    """Makes the pages; the rssCloud front door calls it."""

    def __init__(self, parts: FrontDoorParts) -> None:
        self._parts = parts
        self._page = partial(show_page, parts.callers, parts.pages, here=_PATHS[0])
        # What callbacks can register for: a registration cannot say how to sign content.
        self._protocols = " ".join(sorted(parts.broker.protocols - parts.broker.content_protocols))

    def routes(self) -> Sequence[Route]:
        """The routes of the page with the forms."""
        return [Route(path, "GET", Answers(self.forms)) for path in _PATHS]

    async def forms(self, request: Request) -> bytes:
        """The page with the two forms, empty."""
        return await self._forms_page(request, 200, "", {})

    async def result(self, request: Request, result: RestResult) -> bytes:
        """The page that thanks for a ping or a registration; or the forms, with what was wrong."""
        shown = self._exchange_slots(request, result)
        error = result.error
        if error is not None:
            status = 403 if isinstance(error, NotAllowed) else 400
            if isinstance(error, Limited):
                status = 429
                request.setHeader("retry-after", str(error.retry_after))
            return await self._forms_page(request, status, _in_words(error), shown)
        topics = rsscloud.distinct(rsscloud.topics_of_form(all_parameters(request)))
        # Only programs send several topics; some of them may have been refused.
        url = topics[0] if len(topics) == 1 else ""
        title, template = _THANKS[result.root]
        return await self._page(
            request,
            200,
            title,
            template,
            message=result.msg,
            url=url,
            topic_link=topic_link(url, self._parts.running),
            **dict.fromkeys(self._parts.running, "runs"),
            **shown,
        )

    def _exchange_slots(self, request: Request, result: RestResult) -> dict[str, str]:
        """The request and its answer, as a program exchanges them."""
        sent = parameters(request)
        fields = [(name, sent.get(name.lower(), "")) for name in _FIELDS if name[:3] != "url"]
        if result.root == "result":  # a ping has nothing but topics
            fields = []
        names = (name for name, _ in all_parameters(request) if name[:3] == "url")
        fields += [(name, sent[name]) for name in dict.fromkeys(names)]
        headers = [("Content-Type", _XML)]
        if result.reason:
            headers.append(("Rsscloud-Reason", result.reason))
        answer = ShownAnswer(200, headers, result.document().decode())
        path = request.path.decode("ascii")
        return form_slots(self._parts.public_url, path, fields, answer)

    async def _forms_page(
        self, request: Request, status: int, message: str, shown: dict[str, str]
    ) -> bytes:
        """The page with the forms, which have the values that were sent."""
        sent = parameters(request)
        slots = {name: sent.get(name.lower(), "")[:MAX_VALUE] for name in _FIELDS}
        slots["protocol"] = slots["protocol"] or _USUAL_PROTOCOL
        return await self._page(
            request,
            status,
            "This did not work" if message else "rssCloud",
            "rsscloud.html",
            message=message,
            protocols=self._protocols,
            **slots,
            **shown,
        )


def _in_words(error: BadRegistration) -> str:
    said = str(error).replace("<i>", "").replace("</i>", "")  # rssCloud's markup
    # The sentence says already if the broker does not call a URL at all.
    return said if error.reason in said else f"{said} {sentence(error.reason)}"
