"""The front door ``events``: the feeds of the broker, and the stream of their entries.

``docs/events.rst`` has its paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from sqlalchemy import Connection
from twisted.application.service import Service
from twisted.internet.interfaces import IDelayedCall
from twisted.web.server import Request
from twisted.web.template import Flattenable, tags
from zope.interface import implementer

from rsscloud_broker.apps.events.cutter import Cutter
from rsscloud_broker.apps.events.documents import EventDocuments
from rsscloud_broker.apps.events.names import CHANGES, PINGS, PREFIX, recent_path, urls_of
from rsscloud_broker.apps.events.options import EventsOptions, history
from rsscloud_broker.apps.events.stream import EntrySource, answer_stream
from rsscloud_broker.http.answering import Answer, Answers, viewer_of
from rsscloud_broker.interfaces import (
    FrontDoorParts,
    IFrontDoor,
    IServesTopics,
    Route,
    RoutesOnly,
    ServedTopics,
)
from rsscloud_broker.simplefeed import log
from rsscloud_broker.simplefeed.entries import EntryLink
from rsscloud_broker.simplefeed.feeds import Archive, Feeds
from rsscloud_broker.simplefeed.log import LogState
from rsscloud_broker.util.deferreds import returns_deferred
from rsscloud_broker.web.broadcast import Broadcast
from rsscloud_broker.web.streams import Places
from rsscloud_broker.web.words import moment
from rsscloud_broker.wire.links import HUB_PATHS

#: The feeds that the page lists, and what they are called.
_LISTED: Final = {CHANGES: "All changes", PINGS: "All pings"}


@implementer(IFrontDoor, IServesTopics)
class EventsDoor(RoutesOnly, Service):
    """The front door: it joins the cutter, the documents, the stream and the page."""

    name = "events"

    def __init__(self, options: EventsOptions, parts: FrontDoorParts) -> None:
        database, changes, directory = parts.database, parts.changes, parts.directory
        if database is None or changes is None or directory is None:
            raise ValueError("the feeds need what FrontDoorParts describes as database")
        # The names of the logs whose feeds have changed since their subscribers were notified.
        self._to_notify: set[str] = set()
        self._timer: IDelayedCall | None = None
        url = parts.public_url
        archive = Archive(directory)
        hub = [EntryLink(url + HUB_PATHS[0], "hub")] if parts.has_hub else []
        feeds = Feeds(
            database, archive, parts.in_thread, parts.clock, lambda name: urls_of(url, name), hub
        )
        self._documents = EventDocuments(feeds, parts)
        is_shown = history(options, url, ()).has
        self._cutter = Cutter(
            options, parts, changes, database, archive, is_shown, self._note_new_entries
        )
        places = Places(parts.max_connections, parts.max_connections_per_address)
        broadcast = Broadcast(
            EntrySource(database, parts.clock),
            parts.clock,
            places,
            "the events",
            "As many watch the events as may. Please come again later.",
        )
        self._database, self._parts = database, parts
        self._streams = {
            f"{PREFIX}/stream": Answers(partial(answer_stream, broadcast)),
            f"{PREFIX}/stream.jsonl": Answers(partial(answer_stream, broadcast, only_lines=True)),
        }
        self.topics = [ServedTopics(f"{url}{PREFIX}/", self._documents.read)]

    def routes(self) -> Sequence[Route]:
        paths = ("recent", "documents/*", "pings/recent", "pings/documents/*", "topic", "host")
        of_feeds = {f"{PREFIX}/{path}": self._documents for path in paths}
        return [
            Route(PREFIX, "GET", Answers(self._show_page)),
            *(
                Route(path, "GET", resource, for_everybody=True)
                for path, resource in {**of_feeds, **self._streams}.items()
            ),
        ]

    async def _show_page(self, request: Request) -> Answer:
        """The page about the feeds, for anybody: for people who follow them or write programs."""
        parts = self._parts
        viewer = await viewer_of(parts.callers, request)
        found = await self._database.read(_find_listed_logs)
        now = parts.clock.wall_seconds()
        page = await parts.pages.render(
            "Feeds of events",
            "rsscloud_broker.apps.events:page.html",
            viewer,
            here="/events",
            url=parts.public_url,
            feeds=[_describe_feed(each, now) for each in found],
            none="" if found else "none",
        )
        return Answer(page, headers={"cache-control": "no-cache" if viewer is None else "no-store"})

    def startService(self) -> None:
        super().startService()
        self._cutter.startService()

    @returns_deferred
    async def stopService(self) -> None:
        """Stop; the Deferred fires when the rows that were read have become entries."""
        super().stopService()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (cutting := self._cutter.stopService()) is not None:
            await cutting
        self._publish_waiting()

    def _note_new_entries(self, names: Sequence[str]) -> None:
        """Take note that feeds have new entries; their subscribers are notified soon."""
        self._documents.forget_recent(names)
        # How many feeds may wait for such a notification.
        self._to_notify.update(names[: 10_000 - len(self._to_notify)])
        if self.running and self._timer is None:
            self._notify_subscribers()

    def _notify_subscribers(self) -> None:
        """Notify the subscribers of the feeds that have changed, and again after a pause."""
        self._timer = None
        if self._to_notify:
            # Seconds between two notifications of the subscribers of a feed, at least.
            self._timer = self._parts.clock.callLater(5.0, self._notify_subscribers)
        self._publish_waiting()

    def _publish_waiting(self) -> None:
        """Notify the subscribers of the feeds that have changed."""
        waiting, self._to_notify = self._to_notify, set()
        for name in sorted(waiting):
            self._parts.published(recent_path(name))


def _find_listed_logs(conn: Connection) -> list[LogState]:
    """The logs of the feeds that the page lists, as far as they exist."""
    return [found for name in _LISTED if (found := log.find_log(conn, name)) is not None]


def _describe_feed(found: LogState, now: float) -> Flattenable:
    """A feed in the list: its name, its path, how many entries it has, and when the newest came."""
    path = recent_path(found.name)
    noun = "entry" if found.count == 1 else "entries"
    newest = ["the newest ", moment(found.updated, now)] if found.count else ["none yet"]
    return tags.div(
        tags.dt(tags.a(_LISTED[found.name], href=path)),
        tags.dd(tags.code(path)),
        tags.dd(f"{found.count:,} {noun} so far, ", *newest),
    )
