"""``rssCloud.saveRss``: an author sends a feed, and gets its public URL.

By XML-RPC ``rssCloud.saveRss(username, password, rsstext)`` returns the URL; by SOAP 1.1 the
operation ``saveRss`` of the service ``/rssCloud`` does.  By REST, the answer is XML or JSON, with
status 200 even if the save failed, as for the other requests of rssCloud::

    POST /rsscloud/saveRss
      username=dave&password=...&rsstext=<rss version="2.0">...
    <result success="true" msg="Thanks for the feed." url="https://broker.example/feeds/..."/>

``rsstext`` may be a string or base64.  The bytes of base64 are stored as they came.  A string was
decoded with the call, so it is encoded again as its XML declaration says.

Source: the implementor's guide to rssCloud (2009), "Saving the feed through the cloud".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from twisted.web.server import Request
from twisted.web.xmlrpc import XMLRPC, withRequest
from zope.interface import implementer

from rsscloud_broker.apps.hosting.documents import FEED, NotStored, bytes_of_form_field, encode_text
from rsscloud_broker.apps.hosting.gate import Gate
from rsscloud_broker.apps.hosting.hosting import Hosting
from rsscloud_broker.errors import Refused
from rsscloud_broker.http.answering import PLAIN, Answer, Answers
from rsscloud_broker.http.requests import client_address, raw_parameter, respond
from rsscloud_broker.interfaces import IFrontDoor, Route, SoapOperation, SoapService
from rsscloud_broker.wire import rsscloud
from rsscloud_broker.wire.negotiation import preferred
from rsscloud_broker.wire.rsscloud import BadRegistration
from rsscloud_broker.wire.text import text_of
from rsscloud_broker.wire.wsdl import DescribedOperation

SAVED: Final = "Thanks for the feed."

_NAMES: Final = ("username", "password", "rsstext")
_KINDS: Final = ("text/xml", "application/xml", "application/json")

#: For ``system.methodSignature``.
_SIGNATURE: Final = (("string", "string", "string", "string"),)

_FORM: Final = "application/x-www-form-urlencoded"

#: A form makes three bytes of each byte, at most; a call makes up to six, as ``&quot;``.  And the
#: other parameters, with the elements of a call, need this many bytes.
_FORM_FACTOR, _CALL_FACTOR, _BESIDE = 3, 6, 10_000

#: For the WSDL of the service.
_DESCRIBED: Final = DescribedOperation(
    "saveRss",
    "Save an RSS or Atom feed; its subscribers are notified, and the result is its public URL.",
    " ".join(_NAMES),
    "xsd:string",
)


class SaveProcedures(XMLRPC):
    """The XML-RPC procedure ``rssCloud.saveRss``; a save that fails is answered with a fault."""

    def __init__(self, door: SaveRssDoor) -> None:
        super().__init__()
        self._door = door

    @withRequest  # type: ignore[untyped-decorator] # of Twisted
    async def xmlrpc_saveRss(self, request: Request, *values: Any) -> str:
        """Save an RSS or Atom feed: username, password, and the text of the feed.  The broker
        notifies the subscribers, and returns the public URL of the feed.
        """
        try:
            rsscloud.check_count("saveRss", values, 3, 3)
        except BadRegistration as error:
            raise Refused(str(error)) from error
        return await self._door.save(request, *values)

    xmlrpc_saveRss.signature = _SIGNATURE


@implementer(IFrontDoor)
class SaveRssDoor:
    """The front door for ``saveRss``."""

    name = "hosting_save_rss"

    def __init__(self, hosting: Hosting, gate: Gate) -> None:
        self._hosting = hosting
        self._gate = gate

    def routes(self) -> Sequence[Route]:
        path, page = "/rsscloud/saveRss", Answers(self._answer_rest, _answer_failure)
        limit = _FORM_FACTOR * self._hosting.max_bytes + _BESIDE
        forms = frozenset({_FORM})
        return [
            Route(path, "POST", page, for_everybody=True),  # answers what is missing
            Route(path, "POST", page, content_types=forms, for_everybody=True, body_limit=limit),
        ]

    def xmlrpc_handlers(self) -> Mapping[str, XMLRPC]:
        return {"rssCloud": SaveProcedures(self)}

    def soap_services(self) -> Sequence[SoapService]:
        operation = SoapOperation(self._save_named, _NAMES, takes_request=True)
        limit = _CALL_FACTOR * self._hosting.max_bytes + _BESIDE
        return [
            SoapService(
                "/rssCloud", {"saveRss": operation}, described=(_DESCRIBED,), body_limit=limit
            )
        ]

    async def save(self, request: Request, name: Any, password: Any, feed: Any) -> str:
        """Save the feed of an account.

        :param name, password, feed: values of a call, of any type; the feed must be a str or bytes.
        :returns: the public URL of the feed.
        :raises Refused: it was not saved; the text is for the author.
        """
        name, password = text_of(name), text_of(password)
        if name is None or password is None or not isinstance(feed, str | bytes):
            raise NotStored("The username, the password and the rsstext must be strings.", 400)
        caller = await self._gate.by_password(request, name, password)
        body = encode_text(feed) if isinstance(feed, str) else feed
        await self._hosting.save(caller, FEED, body, client_address(request))
        return self._hosting.url_of(caller.name, FEED)

    async def _save_named(self, values: Mapping[str, Any], request: Request) -> str:
        """Save the feed in the named values of a form or a call, and return its public URL."""
        if absent := [name for name in _NAMES if values.get(name) is None]:
            raise Refused(rsscloud.missing(absent))
        return await self.save(request, *(values[name] for name in _NAMES))

    async def _answer_rest(self, request: Request) -> Answer:
        """Answer a request by REST with a document that says whether the feed was saved."""
        kind = preferred(request.getHeader("accept"), _KINDS)
        if kind is None:
            return Answer(b"Not Acceptable\n", PLAIN, 406)
        sent = {name: raw_parameter(request, name) for name in _NAMES}
        if (feed := sent["rsstext"]) is not None:
            sent["rsstext"] = bytes_of_form_field(feed)
        try:
            return _result(kind, SAVED, await self._save_named(sent, request))
        except Refused as error:
            return _result(kind, str(error))


def _result(kind: str | None, msg: str, url: str = "") -> Answer:
    """The answer with a sentence, in the media type that the client prefers.

    :param url: the public URL of the feed; empty if it was not saved.
    """
    if kind == "application/json":
        fields = {"success": bool(url), "msg": msg} | ({"url": url} if url else {})
        return Answer(json.dumps(fields).encode(), kind)
    document = rsscloud.result_document("result", success=bool(url), msg=msg, url=url)
    return Answer(document, "text/xml; charset=utf-8")


def _answer_failure(request: Request, status: int, text: str, **headers: str) -> bytes:
    """Answer that the broker could not save the feed: as other answers, but with a status."""
    answer = _result(preferred(request.getHeader("accept"), _KINDS), text)
    return respond(request, status, answer.content_type, answer.body, **headers)
