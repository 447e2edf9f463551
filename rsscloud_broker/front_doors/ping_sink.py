"""The ping sink, a front door: sites announce that they have changed, as at weblogs.com.

The broker stores a ping and answers at once.  It fetches topics only after the answer, since
blog engines wait no more than a few seconds.

By XML-RPC, at any of the paths for calls (see ``site``)::

    weblogUpdates.ping(name, url[, changesurl[, category]])
    weblogUpdates.extendedPing(name, url, check, rss[, tags])
    weblogUpdates.rssUpdate(name, url)          the URL is a feed
    -> {flerror: false, message: "Thanks for the ping."}

By SOAP 1.1, with SOAPAction ``"/weblogUpdates"``: ``ping(weblogname, weblogurl)``
and ``extendedPing(weblogname, weblogurl, changesurl, rssurl, tags)``, with a
result of the same two members.

By GET, or by POST of a form; the answer is a page for people, its status 200,
400, or 429 with Retry-After::

    /pingSiteForm?name=NAME&url=URL[&changesURL=URL]    without parameters: the form
    /ping?url=URL[&name=NAME]
    /rss/ping?u=FEED_URL
    /c?p=ping&url=URL                           as at IceRocket
    /fb/a/pingSubmit?bloglink=URL               as at FeedBurner
    /?name=NAME&url=URL[&rssUrl=URL][&checkUrl=URL]

Source: the weblogs.com interface as "RSS Feed State" describes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import field, frozen
from attrs.validators import and_, ge, le
from twisted.web.server import Request
from twisted.web.xmlrpc import XMLRPC, Fault
from zope.interface import implementer

from rsscloud_broker.errors import Forbidden, Refused, TooMany
from rsscloud_broker.http.answering import Answers, show_page
from rsscloud_broker.http.requests import client_address, parameters, passage
from rsscloud_broker.http.shown_exchange import MAX_VALUE, ShownAnswer, document_slots, topic_link
from rsscloud_broker.http.xmlrpc import CONTENT_TYPE, procedure
from rsscloud_broker.interfaces import (
    FrontDoorParts,
    IFrontDoor,
    Route,
    SoapDescription,
    SoapOperation,
    SoapService,
)
from rsscloud_broker.model import Ping
from rsscloud_broker.wire import weblog_updates, xmlrpc
from rsscloud_broker.wire.origin import BadOrigin
from rsscloud_broker.wire.text import text_of
from rsscloud_broker.wire.units import YEAR
from rsscloud_broker.wire.weblog_updates import BadCall, BadPing
from rsscloud_broker.wire.wsdl import WEBLOG_UPDATES, weblog_updates_wsdl
from rsscloud_broker.wire.xmlrpc import INVALID_PARAMS


@frozen
class PingSinkOptions:
    """Options of the ping sink.

    :ivar repeat_window: seconds within which a repeated ping is answered with thanks and not
        recorded again.
    """

    repeat_window: int = field(default=60, validator=and_(ge(0), le(YEAR)))


class WeblogUpdates(XMLRPC):
    """The XML-RPC procedures ``weblogUpdates.*``.

    A ping that is refused is answered with ``flerror``, a call with wrong parameters with a fault.
    """

    def __init__(self, door: PingSinkDoor) -> None:
        super().__init__()
        self._door = door

    async def _store_ping(
        self, method: str, request: Request, values: Sequence[Any]
    ) -> dict[str, Any]:
        """Store the ping of a call; the result says whether it was refused."""
        make = weblog_updates.ping_of_parameters
        try:
            return await self._door.answer_call(request, make, method, values)
        except BadCall as error:
            raise Fault(INVALID_PARAMS, str(error)) from error

    @procedure(
        ["struct", "string", "string"],
        ["struct", "string", "string", "string"],
        ["struct", "string", "string", "string", "string"],
    )
    async def xmlrpc_ping(self, request: Request, *values: Any) -> dict[str, Any]:
        """Say that a site changed: its name, its URL, the changed page, a category."""
        return await self._store_ping("ping", request, values)

    @procedure(
        ["struct", "string", "string", "string"],
        ["struct", "string", "string", "string", "string"],
        ["struct", "string", "string", "string", "string", "string"],
    )
    async def xmlrpc_extendedPing(self, request: Request, *values: Any) -> dict[str, Any]:
        """Say that a site changed: its name, its URL, the changed page, its feed, tags
        separated by |.  With three parameters the third is the feed.
        """
        return await self._store_ping("extendedPing", request, values)

    @procedure(["struct", "string", "string"])
    async def xmlrpc_rssUpdate(self, request: Request, *values: Any) -> dict[str, Any]:
        """Say that a feed changed: its name, its URL."""
        return await self._store_ping("rssUpdate", request, values)


@implementer(IFrontDoor)
class PingSinkDoor:
    """The front door for pings as at weblogs.com, by XML-RPC, SOAP, GET and POST."""

    name = "ping_sink"

    def __init__(self, options: PingSinkOptions, parts: FrontDoorParts) -> None:
        self._parts = parts
        self._page = partial(show_page, parts.callers, parts.pages, here="/pingSiteForm")
        self._repeat_window = options.repeat_window

    async def answer_call(
        self, request: Request, make: Callable[..., Ping], *args: Any, **kwargs: str
    ) -> dict[str, Any]:
        """Store the ping of a call.

        :param make: makes the ping, given further arguments and ``at``, the time.
        :returns: the result of the call: ``flerror`` and ``message``, which is either thanks, or
            why the ping was refused.
        """
        try:
            await self._store(request, make(*args, at=self._parts.clock.wall_seconds(), **kwargs))
        except _REFUSALS as error:
            return {"flerror": True, "message": _sentence_of(error)}
        return {"flerror": False, "message": weblog_updates.THANKS}

    async def _store(self, request: Request, ping: Ping) -> Ping:
        """Store a ping, as the headers of the request say that it was made, and return it."""
        made = passage(request).of(ping)
        await self._parts.broker.ping(made, self._repeat_window, client_address(request))
        return made

    def routes(self) -> Sequence[Route]:
        form, ping = Answers(self._ping_site_form), Answers(self._ping_page)
        feed_ping = Answers(self._feed_ping)
        home_ping = Answers(partial(self._site_ping, changed="checkurl"))
        any_way, by_url, by_name = frozenset[str](), frozenset({"url"}), frozenset({"url", "name"})
        # If the rssCloud front door runs, a POST to /ping with only a URL is an rssCloud ping.
        form_of_ping = by_name if "rsscloud" in self._parts.running else by_url
        by_blog = frozenset({"blogurl"})  # as in the form of Ping-O-Matic
        routes = [
            (path, method, page, requires)
            for path, page, requires in (
                ("/pingSiteForm", form, any_way),
                ("/rss/ping", feed_ping, any_way),
                ("/c", ping, frozenset({"p"})),
                ("/fb/a/pingSubmit", ping, any_way),
                ("/", home_ping, by_url),
            )
            for method in ("GET", "POST")
        ]
        for path in ("/ping", "/ping/"):
            routes += [
                (path, "GET", ping, any_way),
                (path, "POST", ping, form_of_ping),
                (path, "POST", ping, by_blog),
            ]
        return [
            Route(path, method, page, requires, for_everybody=True)
            for path, method, page, requires in routes
        ]

    def xmlrpc_handlers(self) -> Mapping[str, XMLRPC]:
        return {"weblogUpdates": WeblogUpdates(self)}

    def soap_services(self) -> Sequence[SoapService]:
        return [
            SoapService(
                action="/weblogUpdates",
                operations={
                    "ping": SoapOperation(self._soap_ping, _SOAP_NAMES, takes_request=True),
                    "extendedPing": SoapOperation(self._soap_ping, _SOAP_NAMES, takes_request=True),
                },
                description=SoapDescription(
                    WEBLOG_UPDATES, ("/weblogUpdates",), weblog_updates_wsdl
                ),
            )
        ]

    async def _soap_ping(self, values: Mapping[str, Any], request: Request) -> dict[str, Any]:
        """Store the ping of a SOAP call; the result says whether it was refused."""
        texts: dict[str, str] = {}
        for name in _SOAP_NAMES:
            value = values.get(name)
            text = "" if value is None else text_of(value)
            if text is None:
                raise Refused(f"The parameter {name} must be a string.")
            texts[name] = text
        return await self.answer_call(
            request,
            weblog_updates.site_ping,
            texts["weblogname"],
            texts["weblogurl"],
            changes_url=texts["changesurl"],
            rss_url=texts["rssurl"],
            tags=texts["tags"],
        )

    async def _ping_site_form(self, request: Request) -> bytes:
        """Show the form, or answer it."""
        if request.method != b"POST" and not parameters(request).keys() & {"name", "url"}:
            return await self._show_form(request, 200)
        return await self._site_ping(request, "changesurl")

    async def _site_ping(self, request: Request, changed: str) -> bytes:
        """Answer a ping of a site, whose changed page is in the field ``changed``."""
        form = parameters(request)
        name, url, feed = (form.get(each, "") for each in ("name", "url", "rssurl"))
        changes = form.get(changed, "")
        return await self._answer_ping(request, name, url, changes_url=changes, rss_url=feed)

    async def _ping_page(self, request: Request) -> bytes:
        """Answer a ping that may lack a name, or call its fields otherwise."""
        form = parameters(request)
        url = _url_in(form, "url", "blogurl", "bloglink")
        name = form.get("name", "").strip() or form.get("title", "").strip()
        return await self._answer_ping(request, name or url, url, rss_url=form.get("rssurl", ""))

    async def _feed_ping(self, request: Request) -> bytes:
        """Answer a ping of a feed, whose URL is also taken for the site and for its name."""
        url = parameters(request).get("u", "")
        return await self._answer_ping(request, url, url, rss_url=url)

    async def _answer_ping(self, request: Request, name: str, url: str, **urls: str) -> bytes:
        """Store a ping and answer with a page: thanks, or the form and why it was refused."""
        call = (name, url, urls.get("changes_url", ""), urls.get("rss_url", ""))
        try:
            now = self._parts.clock.wall_seconds()
            ping = await self._store(request, weblog_updates.site_ping(name, url, now, **urls))
        except _REFUSALS as error:
            status = 403 if isinstance(error, Forbidden) else 400
            if isinstance(error, TooMany):
                status = 429
                request.setHeader("retry-after", str(error.retry_after))
            return await self._show_form(request, status, _sentence_of(error), call)
        return await self._page(
            request,
            200,
            "Ping",
            "ping_accepted.html",
            message=weblog_updates.THANKS,
            name=ping.name,
            url=ping.url,
            topic_link=topic_link(ping.rss_url or ping.url, self._parts.running),
            **dict.fromkeys(self._parts.running, "runs"),
            **self._exchange_slots(call, weblog_updates.THANKS, refused=False),
        )

    async def _show_form(
        self, request: Request, status: int, message: str = "", call: tuple[str, ...] | None = None
    ) -> bytes:
        """The form for a ping, with the values that the person has filled in.

        :param message: why the ping was refused; empty if none was sent yet.
        :param call: the parameters of the call that a program would have made; None if no ping
            was sent yet.
        """
        sent = parameters(request)
        return await self._page(
            request,
            status,
            "No ping" if message else "Ping",
            "ping_form.html",
            message=message,
            name=(sent.get("name") or sent.get("title", ""))[:MAX_VALUE],
            url=_url_in(sent, "url", "blogurl", "bloglink", "u")[:MAX_VALUE],
            rssUrl=sent.get("rssurl", "")[:MAX_VALUE],
            **(self._exchange_slots(call, message, refused=True) if call else {}),
        )

    def _exchange_slots(
        self, call: tuple[str, ...], message: str, *, refused: bool
    ) -> dict[str, str]:
        """The ping and its answer as XML-RPC, by which blog engines ping.

        :param call: name, URL, changed page and feed.
        """
        values = [value[:MAX_VALUE] for value in call]
        method = "extendedPing"
        if not any(values[2:]):
            method, values = "ping", values[:2]
        # Without the XML declaration, whose quotes would make the command hard to read.
        _, _, document = xmlrpc.encode_call(f"weblogUpdates.{method}", values).partition(b"\n")
        result = xmlrpc.encode_response({"flerror": refused, "message": message})
        answer = ShownAnswer(200, [("Content-Type", CONTENT_TYPE)], result.decode())
        return document_slots(self._parts.public_url, "/RPC2", document, answer)


def _url_in(form: Mapping[str, str], *names: str) -> str:
    """The value of the first of some fields that is not empty; empty if all are."""
    return next(filter(None, map(form.get, names)), "")


def _sentence_of(error: Exception) -> str:
    """The sentence for a ping that is refused."""
    if isinstance(error, TooMany):
        return weblog_updates.limited(error.reason, error.retry_after)
    return str(error)


#: Why a ping is refused.
_REFUSALS = (BadPing, BadOrigin, TooMany, Forbidden)
_SOAP_NAMES = ("weblogname", "weblogurl", "changesurl", "rssurl", "tags")
