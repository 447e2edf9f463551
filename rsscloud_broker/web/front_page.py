"""The pages that say what this broker is: the front page and how to use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.python.filepath import FilePath
from twisted.web.resource import IResource, Resource
from twisted.web.server import NOT_DONE_YET, Request
from twisted.web.static import Data
from twisted.web.xmlrpc import XMLRPC
from zope.interface import implementer

from rsscloud_broker.interfaces import FrontDoorParts, IFrontDoor, IPages, Route, SoapService


@frozen
class FrontPageOptions:
    """Options of the front page: none."""


class _StaticPage(Resource):
    """A page that is always the same."""

    isLeaf = True

    def __init__(self, pages: IPages, title: str, template: str, slots: Mapping[str, str]) -> None:
        super().__init__()
        self._render = lambda: pages.render(title, template, **slots)

    def render_GET(self, request: Request) -> int:
        async def write() -> None:
            body = await self._render()
            request.setHeader("content-type", "text/html; charset=utf-8")
            request.setHeader("content-length", str(len(body)))
            request.write(body)
            request.finish()

        Deferred.fromCoroutine(write()).addErrback(request.processingFailed)
        return NOT_DONE_YET


@implementer(IFrontDoor)
class FrontPageDoor:
    """``/``, ``/docs`` and the style sheet."""

    name = "front_page"

    def __init__(self, options: FrontPageOptions, parts: FrontDoorParts) -> None:
        address = urlsplit(parts.public_url)
        slots = {
            "url": parts.public_url,
            "domain": address.hostname or "",
            "port": str(address.port or (443 if address.scheme == "https" else 80)),
            "protocols": ", ".join(sorted(parts.broker.protocols)),
            **dict.fromkeys(parts.running, "runs"),
        }
        style = FilePath(__file__).sibling("style.css").getContent()
        self._pages: dict[str, IResource] = {
            "/": _StaticPage(parts.pages, "rsscloud-broker", "front_page.html", slots),
            "/docs": _StaticPage(parts.pages, "How to use this broker", "docs.html", slots),
            "/style.css": Data(style, "text/css; charset=utf-8"),
        }

    def routes(self) -> Sequence[Route]:
        return [Route(path, "GET", resource) for path, resource in self._pages.items()]

    def xmlrpc_handlers(self) -> Mapping[str, XMLRPC]:
        return {}

    def soap_services(self) -> Sequence[SoapService]:
        return []
