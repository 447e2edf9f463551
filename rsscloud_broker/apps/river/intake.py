"""Takes documents of feeds in, from the broker and from hubs, and stores their items.

The broker reads the feeds: for it the river is an ordinary subscriber, with a notifier of its own
that calls nobody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Any, Final

from zope.interface import implementer

from rsscloud_broker.apps.river.items_sql import StoredItems
from rsscloud_broker.apps.river.model import FeedRecord, Offer, ReadDocument, Way, new_keys
from rsscloud_broker.apps.river.options import RiverOptions
from rsscloud_broker.apps.river.reading import read_document
from rsscloud_broker.apps.river.store import RiverStore
from rsscloud_broker.errors import DocumentFault
from rsscloud_broker.interfaces import AppParts, INotifier
from rsscloud_broker.model import Callback, Denial, Intent, Notification, Outcome, host_of
from rsscloud_broker.wire.text import parse_number

PROTOCOL: Final = "river"

_KEY: Final = "key"


@implementer(INotifier)
class RiverIntake:
    """Stores documents, and is the notifier by which the broker notifies the river itself.

    :ivar on_new: called when new items have been stored.
    :ivar on_silent: called with a feed whose hub or cloud has missed new items.
    """

    protocol = PROTOCOL
    carries_content = True
    drop_after_failures = None
    #: Only the river's own database can fail, and then the attempt is not counted.
    retries = (5.0, 60.0, 600.0)

    def __init__(self, parts: AppParts, store: RiverStore, options: RiverOptions) -> None:
        self._store = store
        self._parts = parts
        self._parse = parts.parse
        self._seconds_kept = options.days * 86_400.0
        self._prefix = f"{parts.public_url}/river/feeds/"
        # In each intent of the river, so that ``verify`` can tell them from those of strangers.
        self._key = token_urlsafe(24)
        self.on_new: Callable[[], None] = lambda: None
        self.on_silent: Callable[[FeedRecord], Awaitable[None]]

    def intent(self, feed: FeedRecord, lease: int, *, present: bool = False) -> Intent:
        """The intent by which the river subscribes to a feed, or unsubscribes."""
        callback = Callback(f"{self._prefix}{feed.id}", PROTOCOL)
        return Intent(feed.url, callback, lease, options={_KEY: self._key}, present=present)

    async def verify(self, intent: Intent) -> Outcome:
        """Confirm the river's own intents: nobody else has the key."""
        if compare_digest(intent.options.get(_KEY, "").encode(), self._key.encode()):
            return Outcome(True)
        return Outcome(False, "only this broker's own river can subscribe by this protocol")

    async def notify(self, notification: Notification) -> Outcome:
        """Store the items of a feed that the broker has read."""
        feed = await self._feed_of(notification.callback)
        if feed is None:
            return Outcome(False, "nobody follows this feed any more", gone=True)
        content = notification.content
        if content is None:
            return Outcome(False, "there is no content: it is not kept any more")
        try:
            await self.read_and_store(feed, content.body, content.content_type, whole=True)
        except DocumentFault as error:
            problem = f"what its server sends cannot be read as a feed: {error.reason}"
            await self._store.change_feed(feed.id, {"problem": problem})
        return Outcome(True)

    async def deny(self, denial: Denial) -> Outcome:
        """Note that a feed has ended."""
        feed = await self._feed_of(denial.callback)
        if feed is not None:
            ended = {"problem": f"it has ended: {denial.reason}", "reads_until": None}
            await self._store.change_feed(feed.id, ended)
        return Outcome(True)

    async def _feed_of(self, callback: Callback) -> FeedRecord | None:
        """The feed whose id is at the end of a callback; None if there is none."""
        number = parse_number(callback.url.removeprefix(self._prefix))
        return None if number is None else await self._store.feed(number)

    async def read_and_store(
        self, feed: FeedRecord, body: bytes, content_type: str, *, whole: bool
    ) -> StoredItems | None:
        """Read a document and store its items.

        :param whole: whether the broker has read it; False if a hub has pushed it.
        :returns: None if nobody follows the feed any more.
        :raises DocumentFault: it is no feed, or takes too much to read.
        """
        document = await self._parse(host_of(feed.url), read_document, body, content_type, feed.url)
        return await self.store_items(feed, document, whole=whole)

    async def store_items(
        self, feed: FeedRecord, document: ReadDocument, *, whole: bool
    ) -> StoredItems | None:
        """Store the items of a document; call ``on_new`` if some are new.

        If polls found new items several times in a row, call ``on_silent``.

        :param whole: whether the broker has read it; False if a hub has pushed it.
        :returns: None if nobody follows the feed any more.
        """
        now = self._parts.clock.wall_seconds()
        values = self._values_learned(feed, document, now) if whole else {}
        way: Way = "pushed" if not whole or await self._was_pinged(feed, now) else "polled"
        stored = await self._store.store_document(
            feed.id, document, way, whole, now, self._seconds_kept, values
        )
        if stored is not None:
            if stored.new:
                self.on_new()
            # After two polls in a row that found items which should have been pushed.
            if stored.feed.missed >= 2:
                await self.on_silent(stored.feed)
        return stored

    def is_own(self, feed: FeedRecord) -> bool:
        """Whether this broker serves a feed, or is its hub or its cloud."""
        return any(map(self.is_own_url, (feed.url, *(offer.url for offer in feed.offers))))

    def is_own_url(self, url: str) -> bool:
        """Whether this broker serves a URL."""
        return url.startswith(f"{self._parts.public_url}/")

    async def _was_pinged(self, feed: FeedRecord, now: float) -> bool:
        """Whether somebody has just said that a feed changed."""
        pinged_at = feed.pinged_at
        # The broker knows when its own feeds were pinged; a first document came by no ping.
        if self.is_own(feed) and feed.turn:
            status = await self._parts.topics.status(feed.url)
            pinged_at = status.pinged_at if status is not None else None
        # Seconds after a ping in which new items count as pushed.
        return pinged_at is not None and abs(now - pinged_at) < 600.0

    def _values_learned(
        self, feed: FeedRecord, document: ReadDocument, now: float
    ) -> Mapping[str, Any]:
        """What a whole document says about its feed, as values for ``change_feed``."""
        values: dict[str, Any] = {"is_found": True, "problem": "", "failures": 0}
        values |= {"title": document.title or feed.title, "link": document.link}
        named = document.offers
        if not any(offer.in_header for offer in named):  # only some requests show the headers
            named = (*(offer for offer in feed.offers if offer.in_header), *named)
        # Each once; of two with the same protocol and URL, the first counts.
        offers = tuple({(offer.kind, offer.url): offer for offer in reversed(named)}.values())[::-1]
        if offers != feed.offers:
            values |= {"offers": offers, **_choose_offer(feed, offers, now)}
        return values


def _choose_offer(feed: FeedRecord, offers: tuple[Offer, ...], now: float) -> Mapping[str, Any]:
    """Which of the new hubs and clouds of a feed is used: the same as before, or else the first.

    Another one than before gets new keys, since the one before knows the old ones.  If there was
    none before, nobody knows the keys, and they stay.

    :returns: values for ``change_feed``.
    """
    if feed.current in offers:
        return {"offer": offers.index(feed.current)}
    return {
        "offer": 0,
        "push_due_at": now if offers else None,
        "asked_at": None,
        "verified_at": None,
        "pushes_until": None,
        "missed": 0,
        "push_problem": "",
        **({} if feed.current is None else new_keys()),
    }
