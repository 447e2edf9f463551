"""The page ``/events``: the feeds of events, for people who follow them or write programs."""

from __future__ import annotations

from functools import partial
from typing import Final

from sqlalchemy import Connection
from twisted.web.server import Request
from twisted.web.template import Flattenable, tags

from rsscloud_broker.apps.events.names import CHANGES, PINGS, recent_path
from rsscloud_broker.http.answering import Answer
from rsscloud_broker.interfaces import FrontDoorParts, IDatabase
from rsscloud_broker.simplefeed import log
from rsscloud_broker.simplefeed.log import LogState
from rsscloud_broker.web.callers import viewer_of
from rsscloud_broker.web.words import moment

#: The feeds that the page lists, and what they are called.
_LISTED: Final = {CHANGES: "All changes", PINGS: "All pings"}


class EventsPage:
    """The page ``/events``, which lists the feeds of all changes and of all pings."""

    def __init__(self, database: IDatabase, parts: FrontDoorParts) -> None:
        self._database = database
        self._clock = parts.clock
        self._pages = parts.pages
        self._callers = parts.callers
        self._public_url = parts.public_url

    async def show(self, request: Request) -> Answer:
        """Render the page for anybody."""
        viewer = await viewer_of(self._callers, request)
        found = await self._database.read(_find_listed_logs)
        now = self._clock.wall_seconds()
        page = await self._pages.render(
            "Feeds of events",
            "rsscloud_broker.apps.events:page.html",
            viewer,
            here="/events",
            url=self._public_url,
            feeds=list(map(partial(_describe_feed, now=now), found)),
            none="" if found else "none",
        )
        return Answer(page, headers={"cache-control": "no-cache" if viewer is None else "no-store"})


def _find_listed_logs(conn: Connection) -> list[LogState]:
    """The logs of the feeds that the page lists, as far as they exist."""
    return [found for name in _LISTED if (found := log.find_log(conn, name)) is not None]


def _describe_feed(found: LogState, now: float) -> Flattenable:
    """A feed in the list: its name, its path, how many entries it has, and when the newest came."""
    path = recent_path(found.name)
    newest = ["the newest ", moment(found.updated, now)] if found.count else ["none yet"]
    return tags.div(
        tags.dt(tags.a(_LISTED[found.name], href=path)),
        tags.dd(tags.code(path)),
        tags.dd(f"{found.count:,} ", _noun(found.count), " so far, ", *newest),
    )


def _noun(count: int) -> str:
    return "entry" if count == 1 else "entries"
