"""Answers the requests of the REST interface of rssCloud, to programs and to browsers.

Programs get XML or JSON, always with status 200; browsers get a page.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Final

from attrs import frozen
from twisted.web.server import Request

from rsscloud_broker.front_doors.requests import header, plain, respond
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
        """The answer in XML."""
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
    if kind == "application/json":
        answer = {"success": result.error is None, "msg": result.msg}
        return respond(request, 200, "application/json", json.dumps(answer).encode())
    return respond(request, 200, XML, result.document())
