"""The pages that say what this broker is: the front page and how to use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from attrs import frozen
from twisted.python.filepath import FilePath
from twisted.web.resource import IResource
from twisted.web.static import Data
from twisted.web.xmlrpc import XMLRPC
from zope.interface import implementer

from rsscloud_broker.interfaces import FrontDoorParts, IFrontDoor, Route, SoapService
from rsscloud_broker.web.pages import rendered


@frozen
class FrontPageOptions:
    """Options of the front page: none."""


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
            # How rssCloud notifies; WebSub has a section of its own.
            "protocols": ", ".join(sorted(parts.broker.protocols - parts.broker.content_protocols)),
            **dict.fromkeys(parts.running, "runs"),
            "websub": "runs" if parts.has_hub else "",  # a door alone is no hub
        }
        style = FilePath(__file__).sibling("style.css").getContent()
        self._pages: dict[str, IResource] = {
            "/": _page("rsscloud-broker", "front_page.html", slots),
            "/docs": _page("How to use this broker", "docs.html", slots),
            "/style.css": Data(style, "text/css; charset=utf-8"),
        }

    def routes(self) -> Sequence[Route]:
        return [Route(path, "GET", resource) for path, resource in self._pages.items()]

    def xmlrpc_handlers(self) -> Mapping[str, XMLRPC]:
        return {}

    def soap_services(self) -> Sequence[SoapService]:
        return []


def _page(title: str, template: str, slots: Mapping[str, str]) -> Data:
    """A page that is always the same."""
    return Data(rendered(title, template, **slots), "text/html; charset=utf-8")
