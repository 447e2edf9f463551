"""The front door for the pages that explain the broker to people: ``/`` and ``/docs``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from attrs import frozen
from twisted.web.server import Request
from twisted.web.template import Flattenable, tags
from zope.interface import implementer

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.http.answering import Answer, Answers, private, viewer_of
from rsscloud_broker.interfaces import Caller, FrontDoorParts, IFrontDoor, Route, RoutesOnly
from rsscloud_broker.model import Ping
from rsscloud_broker.util.caches import TimedCache
from rsscloud_broker.web.pages import linked
from rsscloud_broker.web.words import counted, moment, strangers_text
from rsscloud_broker.wire import cloud
from rsscloud_broker.wire.rsscloud import REST_PATHS
from rsscloud_broker.wire.units import DAY, HOUR

#: The names of the statistics of delivered notifications, by protocol.
_DELIVERED: Final = re.compile(r"deliveries\..*\.delivered")


@frozen
class FrontPageOptions:
    """Options of the front page.

    :ivar recent_pings: whether the front page shows the most recent pings, with links to the
        sites that they name.
    """

    recent_pings: bool = True


@implementer(IFrontDoor)
class FrontPageDoor(RoutesOnly):
    """The front door for ``/`` and ``/docs``."""

    name = "front_page"

    def __init__(self, options: FrontPageOptions, parts: FrontDoorParts) -> None:
        self._slots = {
            "url": parts.public_url,
            "cloud": cloud.encode(cloud.from_url(parts.public_url + REST_PATHS[0])),
            # The protocols of rssCloud notifications; WebSub has a section of its own.
            "protocols": ", ".join(sorted(parts.broker.protocols - parts.broker.content_protocols)),
            **dict.fromkeys(parts.running, "runs"),
            "websub": "runs" if parts.has_hub else "",  # a hub also needs the WebSub notifier
        }
        self._parts = parts
        self._shows_pings = options.recent_pings
        # Each has one value, by the key None: the front page, which is rendered for strangers once
        # a second at most, and the numbers, stored each minute only.
        self._for_strangers = TimedCache(self._render_page, parts.clock, seconds=1.0, size=1)
        self._today = TimedCache(self._count_today, parts.clock, seconds=15.0, size=1)

    def routes(self) -> Sequence[Route]:
        front_page, docs = Answers(self._front_page), Answers(self._docs)
        return [Route("/", "GET", front_page), Route("/docs", "GET", docs)]

    async def _docs(self, request: Request) -> Answer:
        """Answer ``/docs``: how to use this broker."""
        viewer = await viewer_of(self._parts.callers, request)
        about = ("How to use this broker", "docs.html", viewer)
        page = await self._parts.pages.render(*about, here="/docs", **self._slots)
        return Answer(page, headers=private(viewer))

    async def _front_page(self, request: Request) -> Answer:
        viewer = await viewer_of(self._parts.callers, request)
        if viewer is None:
            return Answer(await self._for_strangers.get(None))
        return Answer(await self._render_page(viewer), headers=private(viewer))

    async def _render_page(self, viewer: Caller | None) -> bytes:
        """The page with the newest pings."""
        pings = await self._recent_pings()
        recent = "" if pings is None else _list_of(pings, self._parts.clock.wall_seconds())
        more = {"recent": recent, "today": await self._today.get(None)}
        first = "" if viewer else "/signin?next="  # strangers sign in before
        more |= {f"{name}_url": f"{first}/{name}" for name in ("river", "write")}
        about = ("rsscloud-broker", "front_page.html", viewer)
        return await self._parts.pages.render(*about, **self._slots, **more)

    async def _count_today(self, _: None) -> str:
        """What the broker did since midnight (UTC), in words; empty if nothing, or unknown."""
        now = self._parts.clock.wall_seconds()
        try:
            found = await self._parts.statistics.statistics(now - now % DAY, now, HOUR)
        except Unavailable:
            return ""
        totals = {name: sum(steps.values()) for name, steps in found.items()}
        notified = (total for name, total in totals.items() if re.fullmatch(_DELIVERED, name))
        numbers = {
            "ping": totals.get("pings", 0),
            "change": totals.get("fetches.changed", 0),
            "notification": sum(notified),
        }
        return ", ".join(counted(number, noun) for noun, number in numbers.items() if number)

    async def _recent_pings(self) -> Sequence[Ping] | None:
        """The pings to show; None to show no list."""
        if not self._shows_pings:
            return None
        try:
            return await self._parts.broker.recent_pings()
        except Unavailable:
            return None  # the rest of the page does not need the store


def _list_of(pings: Sequence[Ping], now: float) -> Flattenable:
    """The list of recent pings."""
    items = []
    for ping in pings:
        parts = [linked(ping.url, strangers_text(ping.name)), moment(ping.received_at, now)]
        if ping.name != ping.url:
            parts.append(tags.span(strangers_text(ping.url), class_="where"))
        items.append(tags.li(*parts))
    return tags.ul(*items, class_="pings") if items else tags.p("There was no ping yet.")
