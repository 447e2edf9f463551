"""Answers the requests of the REST interface of rssCloud, to programs and to browsers.

Programs get XML or JSON, with status 200 unless the broker is at fault; browsers get a page.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Final

from attrs import frozen
from twisted.web.server import Request

from rsscloud_broker.http.answering import Say
from rsscloud_broker.http.requests import header, plain, respond
from rsscloud_broker.wire import rsscloud
from rsscloud_broker.wire.negotiation import preferred, wants_page
from rsscloud_broker.wire.rsscloud import BadRegistration
from rsscloud_broker.wire.text import clean

#: The media types in which programs get answers.
_KINDS: Final = ("text/xml", "application/xml", "application/json")

XML: Final = "text/xml; charset=utf-8"


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
    :param page: makes the page for a browser.
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
    if kind == "application/json":
        answer = {"success": result.error is None, "msg": result.msg}
        return respond(request, status, kind, json.dumps(answer).encode(), **headers)
    return respond(request, status, XML, result.document(), **headers)
