"""The front door for administrators: the JSON API at ``/api/v1``.

::

    GET  /api                                    the document that describes the API
    GET  /api/v1/subscriptions?host=reader.example
    POST /api/v1/subscriptions/7/redeliver       {"reason": "its server is back"}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen
from twisted.web.xmlrpc import XMLRPC
from zope.interface import implementer

from rsscloud_broker.interfaces import FrontDoorParts, IFrontDoor, Route, SoapService
from rsscloud_broker.web.admin.api import Api


@frozen
class AdministrationOptions:
    """The administration has no options."""


@implementer(IFrontDoor)
class AdministrationDoor:
    """The front door for administrators.  It has no routes if the broker has no accounts."""

    name = "administration"

    def __init__(self, options: AdministrationOptions, parts: FrontDoorParts) -> None:
        self._routes: Sequence[Route] = ()
        verbs, callers = parts.administration, parts.callers
        if verbs is None or callers is None:
            return
        self._routes = Api(verbs, callers, parts.clock, parts.public_url).routes()

    def routes(self) -> Sequence[Route]:
        return self._routes

    def xmlrpc_handlers(self) -> Mapping[str, XMLRPC]:
        return {}

    def soap_services(self) -> Sequence[SoapService]:
        return []
