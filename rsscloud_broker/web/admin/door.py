"""The front door for administrators: pages at ``/admin``, and the JSON API at ``/api/v1``.

::

    GET  /admin/subscription?id=7                a page
    POST /admin/subscription                     with id=7, do=redeliver, reason=... and csrf=...
    GET  /api                                    the document that describes the API
    GET  /api/docs                               the same as a page, without signing in
    GET  /api/v1/subscriptions?host=reader.example
    POST /api/v1/subscriptions/7/redeliver       {"reason": "its server is back"}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zope.interface import implementer

from rsscloud_broker.config import NoOptions
from rsscloud_broker.interfaces import FrontDoorParts, IFrontDoor, Route, RoutesOnly
from rsscloud_broker.web.admin.accounts import AccountsPage, OneAccountPage
from rsscloud_broker.web.admin.api import Api
from rsscloud_broker.web.admin.lists import AdminLogPage, AnnouncementsPage, BlocksPage, HostsPage
from rsscloud_broker.web.admin.overview import ChangesPage, OverviewPage
from rsscloud_broker.web.admin.page import Console
from rsscloud_broker.web.admin.subscriptions import OneSubscriptionPage, SubscriptionsPage
from rsscloud_broker.web.admin.topics import TopicPage

_PAGES: Final = (
    OverviewPage,
    SubscriptionsPage,
    OneSubscriptionPage,
    TopicPage,
    HostsPage,
    BlocksPage,
    AccountsPage,
    OneAccountPage,
    AnnouncementsPage,
    ChangesPage,
    AdminLogPage,
)


@implementer(IFrontDoor)
class AdministrationDoor(RoutesOnly):
    """The front door for administrators.  It has no routes if the broker has no accounts."""

    name = "administration"

    def __init__(self, options: NoOptions, parts: FrontDoorParts) -> None:
        self._routes: Sequence[Route] = ()
        console = Console.of(parts)
        if console is None:
            return
        self._routes = [
            *Api(console, parts.public_url).routes(),
            *(route for page in _PAGES for route in page(console).routes()),
        ]

    def routes(self) -> Sequence[Route]:
        return self._routes
