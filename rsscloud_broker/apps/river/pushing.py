"""Subscribes to feeds at their own hubs (WebSub) and clouds (rssCloud), and takes what they push.

A feed may name several hubs and clouds; one is used at a time.  If it fails, or misses new items,
the next one is tried, and after the last one the first, after a day.  Meanwhile the broker polls.

The callback of each feed has a path that only the hub knows.  A signed document is stored at once;
for everything else that arrives there, the broker reads the feed itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import evolve
from twisted.logger import Logger

from rsscloud_broker.apps.river.intake import RiverIntake
from rsscloud_broker.apps.river.model import FeedRecord, Offer, new_keys
from rsscloud_broker.apps.river.store import RiverStore
from rsscloud_broker.client.subscriber import RENEW_AFTER, RegisteredCallback, register
from rsscloud_broker.client.web import ClientError, Web
from rsscloud_broker.client.websub import LONGEST_LEASE, PushedContent, ask_for_topic, lease_of
from rsscloud_broker.errors import DocumentFault, Refused, TooMany
from rsscloud_broker.interfaces import AppParts
from rsscloud_broker.util.caches import BoundedDict
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.wire import websub
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.websub import HubCall

#: Seconds after which a renewal that failed is tried again, while the lease lasts, and a cloud is
#: asked again if the broker stopped before it answered.
RETRY_SOON: Final = 300.0
#: How many pushed documents may be in memory at the same time, and the seconds after which a hub
#: may try again if there are more.
MAX_PUSHES, FULL_PAUSE = 50, 60

#: The paths of the callbacks, before the key of a feed.
WEBSUB_PATH, CLOUD_PATH = "/river/websub/", "/river/rsscloud/"


class Pushing:
    """Keeps the subscriptions at hubs and clouds."""

    log = Logger()

    def __init__(self, parts: AppParts, store: RiverStore, intake: RiverIntake) -> None:
        self._store = store
        self._intake = intake
        self._parts = parts
        self._web = Web(parts.outbound)
        self._taking = 0  # how many pushed documents are being stored now
        # The topics of feeds that are being left, by the keys of the feeds, as long as hubs may
        # have to verify that: see ``verify``.
        self._leaving: BoundedDict[str, str] = BoundedDict(1000)
        intake.on_silent = self.give_up_silent

    async def tend(self, feed: FeedRecord) -> None:
        """Do what is due for a feed: subscribe, renew, or give up a hub that did not verify."""
        offer = feed.current
        # The broker knows by itself when what it serves changes.
        if offer is None or self._intake.is_own(feed):
            await self._store.change_feed(feed.id, {"push_due_at": None})
        elif offer.kind == "rsscloud":
            await self._register(feed, offer)
        elif feed.asked_at is None:
            await self._ask_hub(feed, offer)
        else:  # it was asked an hour ago, and a verification would have ended the waiting
            await self._handle_failure(
                feed,
                f"the hub {offer.url} took the request to subscribe, and did not verify it within "
                "an hour",
            )

    async def _ask_hub(self, feed: FeedRecord, offer: Offer) -> None:
        """Ask a hub to push a feed; it verifies that later, or the next offer is tried."""
        now = self._parts.clock.wall_seconds()
        # Seconds in which a hub has to verify the intent.
        waiting = {"asked_at": now, "push_due_at": now + 3600.0}
        await self._store.change_feed(feed.id, waiting)
        about = ("subscribe", offer.topic, self._callback(feed), feed.secret, LONGEST_LEASE)
        try:
            await ask_for_topic(self._web, offer.url, *about)
        except ClientError as error:
            await self._handle_failure(feed, f"the hub did not take the subscription: {error}")

    def _callback(self, feed: FeedRecord) -> str:
        return f"{self._parts.public_url}{WEBSUB_PATH}{feed.key}"

    async def _register(self, feed: FeedRecord, offer: Offer) -> None:
        """Register the callback of a feed at a cloud, which challenges it before it answers."""
        assert offer.cloud is not None
        now = self._parts.clock.wall_seconds()
        waiting = {"asked_at": now, "push_due_at": now + RETRY_SOON}
        await self._store.change_feed(feed.id, waiting)
        parts = urlsplit(self._parts.public_url)
        default = 443 if parts.scheme == "https" else 80
        # A cloud calls port 443 over https; "https-post" is not known to all.
        protocol = "https-post" if parts.scheme == "https" and parts.port else "http-post"
        path, host = f"{parts.path}{CLOUD_PATH}{feed.key}", parts.hostname or ""
        callback = RegisteredCallback(protocol, parts.port or default, path, domain=host)
        try:
            await register(self._web, offer.cloud, offer.topic, callback)
        except ClientError as error:
            await self._handle_failure(feed, f"the cloud did not take the registration: {error}")
            return
        now = self._parts.clock.wall_seconds()
        # Seconds that a registration at a cloud lasts.
        await self._store_confirmation(feed, now, 25 * 3600.0, now + RENEW_AFTER)

    async def _store_confirmation(
        self, feed: FeedRecord, now: float, lease: float, due: float
    ) -> None:
        """Store that a hub or a cloud pushes for ``lease`` seconds; it is asked anew at ``due``."""
        offer = feed.current
        self.log.info(
            "{hub} pushes the changes of the feed {url} for {lease:.0f} s.",
            url=feed.url,
            hub=offer.url if offer else "",
            lease=lease,
        )
        values: dict[str, Any] = {"asked_at": None, "verified_at": now, "pushes_until": now + lease}
        values |= {"push_due_at": due, "push_problem": "", "missed": 0}
        await self._store.change_feed(feed.id, values)

    async def _handle_failure(self, feed: FeedRecord, reason: str) -> None:
        """Try again soon while the lease lasts; else go on with the next hub or cloud."""
        now = self._parts.clock.wall_seconds()
        # How many characters of what a hub says are kept.
        reason = clean(reason).rstrip(".")[:300]
        self.log.warn("The feed {url} is not pushed: {reason}.", url=feed.url, reason=reason)
        values: dict[str, Any] = {"push_problem": reason, "asked_at": None}
        if feed.is_pushed(now):
            values["push_due_at"] = now + RETRY_SOON
        else:
            values |= _next_offer(feed, now)
            await self._parts.broker.distrust_pings(feed.url)
        await self._store.change_feed(feed.id, values)

    async def give_up_silent(self, feed: FeedRecord) -> None:
        """Give up a hub or a cloud that missed new items."""
        offer = feed.current
        name = "the feed's hub"
        if offer is not None:
            name = f"the {'cloud' if offer.kind == 'rsscloud' else 'hub'} {offer.url}"
        reason = f"{name} did not tell of new items {feed.missed} times in a row"
        await self._handle_failure(evolve(feed, pushes_until=None), reason)

    async def leave(self, feed: FeedRecord) -> None:
        """Unsubscribe from a feed that nobody follows.  A cloud cannot be asked for that."""
        offer = feed.current
        if offer is None or offer.kind != "websub" or feed.pushes_until is None:
            return
        self._leaving[feed.key] = offer.topic
        try:
            about = ("unsubscribe", offer.topic, self._callback(feed))
            await ask_for_topic(self._web, offer.url, *about)
        except ClientError as error:
            self.log.info(
                "The river's subscription to {url} ends with its lease: {error}",
                url=feed.url,
                error=error,
            )

    async def verify(self, key: str, call: HubCall) -> bool:
        """Whether to confirm a hub's verification of intent; a denial is noted, and confirmed."""
        if call.mode == "unsubscribe":
            return self._leaving.get(key) == call.topic
        feed = await self._store.feed_by_key(key)
        offer = feed.current if feed is not None else None
        if feed is None or offer is None or offer.kind != "websub" or offer.topic != call.topic:
            return False
        if call.mode == "denied":
            because = f": {call.reason}" if call.reason else ""
            ended = f"the hub {offer.url} refused or ended the subscription{because}"
            await self._handle_failure(evolve(feed, pushes_until=None), ended)
            return True
        wanted = feed.asked_at is not None or feed.pushes_until is not None
        if not wanted or not await self._store.is_followed(feed.id):
            return False
        now, (lease, pause) = self._parts.clock.wall_seconds(), lease_of(call)
        await self._store_confirmation(feed, now, lease, now + pause)
        return True

    async def expects_challenge(self, key: str, url: str) -> bool:
        """Whether the river has just asked a cloud to register a callback for a topic."""
        feed = await self._store.feed_by_key(key)
        offer = feed.current if feed is not None else None
        if feed is None or offer is None or offer.kind != "rsscloud":
            return False
        return feed.asked_at is not None and normal_form(url) == normal_form(offer.topic)

    async def receive(self, key: str, content: PushedContent) -> bool:
        """Store a pushed document if it is signed, and have the broker read its feed; ignore one
        with a wrong signature.

        :returns: whether anybody follows the feed of the callback.
        :raises TooMany: too many documents are being taken.
        """
        source, signature = content.source, content.signature
        feed = await self._store.feed_by_key(key)
        if feed is None or not await self._store.is_followed(feed.id):
            return False
        if signature and not websub.is_signed(signature, content.body, feed.secret):
            self.log.warn(
                "A document from {source} with a wrong signature was ignored, for the feed {url}.",
                url=feed.url,
                source=source,
            )
            return True
        if signature and await self._store_signed(feed, content):
            source = ""  # the hub proved to be the one that was asked: it is not limited
        await self._have_read(feed, source)
        return True

    async def _store_signed(self, feed: FeedRecord, content: PushedContent) -> bool:
        """Store a signed document.  Returns whether it is one of a feed."""
        if self._taking >= MAX_PUSHES:
            raise TooMany("as many documents are being taken as fit into memory", FULL_PAUSE)
        self._taking += 1
        try:
            taken = self._intake.read_and_store(
                feed, content.body, content.content_type, whole=False
            )
            return await taken is not None
        except DocumentFault:
            return False  # the broker reads the feed itself
        finally:
            self._taking -= 1

    async def pinged(self, key: str, source: str) -> bool:
        """Have the broker read a feed, since a cloud says that it changed.

        :returns: whether anybody has subscribed to this.
        :raises TooMany: the source pinged too often.
        """
        feed = await self._store.feed_by_key(key)
        if feed is None or not await self._store.is_followed(feed.id):
            return False
        await self._have_read(feed, source)
        return True

    async def _have_read(self, feed: FeedRecord, source: str) -> None:
        """Store that a feed was pinged, and have the broker read it; source "" has no limit."""
        now = self._parts.clock.wall_seconds()
        await self._store.change_feed(feed.id, {"pinged_at": now, "missed": 0})
        try:
            await self._parts.broker.fetch_for_followers(feed.url, source)
        except TooMany:
            raise
        except Refused as error:
            self.log.info("The feed {url} is not read now: {error}", url=feed.url, error=error)


def _next_offer(feed: FeedRecord, now: float) -> Mapping[str, Any]:
    """Go on with the next hub or cloud of a feed; with the first again after a pause."""
    following = feed.offer + 1
    is_last = following >= len(feed.offers)
    values: dict[str, Any] = {
        "offer": 0 if is_last else following,
        # A hub or a cloud that failed is tried again after a day.
        "push_due_at": now + 86_400.0 if is_last else now,
        "pushes_until": None,
        "verified_at": None,
        "missed": 0,
    }
    return {**values, **new_keys()} if len(feed.offers) > 1 else values
