"""The front door ``events``: the feeds of the broker, and the stream of their entries.

==============================================  ==================================================
``/events``                                     a page about the feeds
``/events/recent``                              everything that changed, the newest first
``/events/documents/N``                         a document of that feed at its permanent URL
``/events/pings/recent``, ``.../documents/N``   the pings
``/events/host?name=NAME``                      what changed at a host
``/events/topic?url=URL``                       the contents of a topic, if they are kept
``/events/stream``, ``/events/stream.jsonl``    new entries as they come
==============================================  ==================================================
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from zope.interface import implementer

from rsscloud_broker.apps.events.cutter import Cutter
from rsscloud_broker.apps.events.documents import EventDocuments
from rsscloud_broker.apps.events.names import PREFIX, recent_path, urls_of
from rsscloud_broker.apps.events.options import EventsOptions, history
from rsscloud_broker.apps.events.page import EventsPage
from rsscloud_broker.apps.events.rows import EventFeeds
from rsscloud_broker.apps.events.stream import EntrySource, EntryStream
from rsscloud_broker.http.answering import Answers
from rsscloud_broker.interfaces import (
    FrontDoorParts,
    IFrontDoor,
    IServesTopics,
    Route,
    RoutesOnly,
    ServedTopics,
)
from rsscloud_broker.simplefeed.archive import Archive
from rsscloud_broker.simplefeed.entries import EntryLink
from rsscloud_broker.simplefeed.feeds import Feeds
from rsscloud_broker.web.broadcast import Broadcast
from rsscloud_broker.web.streams import Places
from rsscloud_broker.wire.links import HUB_PATHS


@implementer(IFrontDoor, IServesTopics)
class EventsDoor(RoutesOnly, Service):
    """The front door: it joins the cutter, the documents, the stream and the page."""

    name = "events"

    def __init__(self, options: EventsOptions, parts: FrontDoorParts) -> None:
        database, changes, directory = parts.database, parts.changes, parts.directory
        if database is None or changes is None or directory is None:
            raise ValueError("the feeds need what FrontDoorParts describes as database")
        self._clock = parts.clock
        self._published = parts.published
        # The names of the logs whose feeds have changed since their subscribers were notified.
        self._to_notify: set[str] = set()
        self._timer: IDelayedCall | None = None
        url = parts.public_url
        archive = Archive(directory)
        hub = [EntryLink(url + HUB_PATHS[0], "hub")] if parts.has_hub else []
        feeds = Feeds(
            database,
            archive,
            parts.in_thread,
            parts.clock,
            lambda name: urls_of(url, name),
            lambda name: hub,
        )
        self._documents = EventDocuments(feeds, parts)
        self._cutter = Cutter(
            EventFeeds(options, url),
            changes,
            database,
            archive,
            parts.clock,
            parts.in_thread,
            parts.parse,
            history(options, url, ()).has,
            self._note_new_entries,
        )
        places = Places(parts.max_connections, parts.max_connections_per_address)
        broadcast = Broadcast(
            EntrySource(database, parts.clock),
            parts.clock,
            places,
            "the events",
            "As many watch the events as may. Please come again later.",
        )
        page = EventsPage(database, parts)
        self._page = Answers(page.show)
        self._resources = {
            f"{PREFIX}/stream": Answers(EntryStream(broadcast, as_lines=False).answer),
            f"{PREFIX}/stream.jsonl": Answers(EntryStream(broadcast, as_lines=True).answer),
        }
        self.topics = [ServedTopics(f"{url}{PREFIX}/", self._documents.read)]

    def routes(self) -> Sequence[Route]:
        paths = ("recent", "documents/*", "pings/recent", "pings/documents/*", "topic", "host")
        of_feeds = {f"{PREFIX}/{path}": self._documents for path in paths}
        return [
            Route(PREFIX, "GET", self._page),
            *(
                Route(path, "GET", resource, for_everybody=True)
                for path, resource in {**of_feeds, **self._resources}.items()
            ),
        ]

    def startService(self) -> None:
        super().startService()
        self._cutter.startService()

    def stopService(self) -> Deferred[None] | None:
        """Stop; the Deferred fires when the present rows are cut."""
        super().stopService()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return self._cutter.stopService()

    def _note_new_entries(self, names: Sequence[str]) -> None:
        """Take note that feeds have new entries; their subscribers are notified soon."""
        self._documents.forget_recent(names)
        if not self.running:
            return
        # How many feeds may wait for such a notification.
        self._to_notify.update(names[: 10_000 - len(self._to_notify)])
        if self._timer is None:
            self._notify_subscribers()

    def _notify_subscribers(self) -> None:
        """Notify the subscribers of the feeds that have changed, and again after a pause."""
        self._timer = None
        waiting, self._to_notify = self._to_notify, set()
        if waiting:
            # Seconds between two notifications of the subscribers of a feed, at least.
            self._timer = self._clock.callLater(5.0, self._notify_subscribers)
        for name in sorted(waiting):
            self._published(recent_path(name))
