"""The front door for the pages that explain the broker to people: ``/`` and ``/docs``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web.resource import IResource, Resource
from twisted.web.server import NOT_DONE_YET, Request
from twisted.web.static import Data
from twisted.web.template import Flattenable, tags
from twisted.web.xmlrpc import XMLRPC
from zope.interface import implementer

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import Caller, FrontDoorParts, IFrontDoor, Route, SoapService
from rsscloud_broker.model import Ping
from rsscloud_broker.web.assets import ASSETS, Asset
from rsscloud_broker.web.pages import linked, rendered

_HTML: Final = "text/html; charset=utf-8"

#: The name and the address of a site are cut to this many characters.
MAX_SHOWN: Final = 80


@frozen
class FrontPageOptions:
    """Options of the front page.

    :ivar recent_pings: whether the front page shows the most recent pings, with links to the
        sites that they name.
    """

    recent_pings: bool = True


@implementer(IFrontDoor)
class FrontPageDoor:
    """The front door for ``/``, ``/docs``, the style sheets and the icons."""

    name = "front_page"

    def __init__(self, options: FrontPageOptions, parts: FrontDoorParts) -> None:
        address = urlsplit(parts.public_url)
        slots = {
            "url": parts.public_url,
            "domain": address.hostname or "",
            "port": str(address.port or (443 if address.scheme == "https" else 80)),
            # The protocols of rssCloud notifications; WebSub has a section of its own.
            "protocols": ", ".join(sorted(parts.broker.protocols - parts.broker.content_protocols)),
            **dict.fromkeys(parts.running, "runs"),
            "websub": "runs" if parts.has_hub else "",  # a hub also needs the WebSub notifier
        }
        docs = rendered("How to use this broker", "docs.html", **slots)
        self._resources: dict[str, IResource] = {
            "/": _FrontPage(options, parts, slots),
            "/docs": Data(docs, _HTML),
            **{f"/{name}": Asset(name) for name in ASSETS},
        }

    def routes(self) -> Sequence[Route]:
        return [Route(path, "GET", resource) for path, resource in self._resources.items()]

    def xmlrpc_handlers(self) -> Mapping[str, XMLRPC]:
        return {}

    def soap_services(self) -> Sequence[SoapService]:
        return []


class _FrontPage(Resource):
    """The front page.  It is rendered again only when the list of recent pings is a new one."""

    isLeaf = True

    def __init__(
        self, options: FrontPageOptions, parts: FrontDoorParts, slots: Mapping[str, str]
    ) -> None:
        super().__init__()
        self._broker = parts.broker
        self._clock = parts.clock
        self._callers = parts.callers
        self._shows_pings = options.recent_pings
        self._slots = slots
        self._pings: Sequence[Ping] | None = ()  # the pings on the page; None if it has no list
        self._page = b""

    def render_GET(self, request: Request) -> int:
        request.setHeader(b"content-type", _HTML.encode("ascii"))

        def failed(failure: Failure) -> None:
            # Twisted logs the failure and answers.  It returns the failure, which is dropped here.
            request.processingFailed(failure)

        Deferred.fromCoroutine(self._answer(request)).addErrback(failed)
        return NOT_DONE_YET

    async def _answer(self, request: Request) -> None:
        viewer = await self._viewer(request)
        page = await self._current()
        if viewer is not None:  # the page is for this person only
            request.setHeader(b"cache-control", b"no-store")
            page = self._rendered(viewer)
        if request.channel is not None:  # otherwise the client has hung up
            request.setHeader(b"content-length", b"%d" % len(page))
            request.write(page)
            request.finish()

    async def _viewer(self, request: Request) -> Caller | None:
        """Who has signed in and looks at the page."""
        try:
            return await self._callers.caller(request) if self._callers else None
        except Unavailable:
            return None

    async def _current(self) -> bytes:
        """The page with the current list of pings."""
        pings = await self._recent()
        if pings is not self._pings or not self._page:
            self._pings = pings
            self._page = self._rendered(None)
        return self._page

    def _rendered(self, viewer: Caller | None) -> bytes:
        """The page with the list of pings that it has now."""
        recent = "" if self._pings is None else _list_of(self._pings, self._clock.wall_seconds())
        return rendered("rsscloud-broker", "front_page.html", viewer, **self._slots, recent=recent)

    async def _recent(self) -> Sequence[Ping] | None:
        """The pings to show; None to show no list."""
        if not self._shows_pings:
            return None
        try:
            return await self._broker.recent_pings()
        except Unavailable:
            return None  # the rest of the page does not need the store


def _list_of(pings: Sequence[Ping], now: float) -> Flattenable:
    """The list of recent pings."""
    if not pings:
        return tags.p("There was no ping yet.")
    return tags.ul(*(_item(ping, now) for ping in pings), class_="pings")


def _item(ping: Ping, now: float) -> Flattenable:
    when = datetime.fromtimestamp(int(ping.received_at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    # A name may be in a script that runs from right to left; <bdi> keeps it from reversing the text
    # beside it.
    parts = [
        linked(ping.url, tags.bdi(clipped(ping.name))),
        tags.time(ago(now - ping.received_at), datetime=when),
    ]
    if ping.name != ping.url:
        parts.append(tags.span(tags.bdi(clipped(ping.url)), class_="where"))
    return tags.li(*parts)


def clipped(text: str) -> str:
    """A text, cut to ``MAX_SHOWN`` characters."""
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def ago(seconds: float) -> str:
    """A time in the past, in words such as "3 hours ago"."""
    for unit, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if (number := int(seconds // unit)) >= 1:
            return f"{number} {name}{'' if number == 1 else 's'} ago"
    return "just now"
