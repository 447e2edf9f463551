"""Subscribes to followed lists and feeds at their hubs, to read them as soon as they change.

::

    GET  /follows/KEY?hub.mode=subscribe&hub.topic=...&hub.challenge=x91     200, x91
    POST /follows/KEY   the content                                          202

This is WebSub; but what is pushed only says that it is time to read: the list or the feed is the
truth.  So the content needs no signature, and whoever guesses a callback can make the broker read a
little more often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final, Protocol

from attrs import define
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.web.server import Request

from rsscloud_broker.client.outbound import GuardedWeb
from rsscloud_broker.client.web import ClientError
from rsscloud_broker.client.websub import ask_hub
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.http.answering import PLAIN, Answer, Answers, plain
from rsscloud_broker.interfaces import IClock, IOutbound, Route
from rsscloud_broker.util.clock import endless_call
from rsscloud_broker.util.urls import joined
from rsscloud_broker.web.hub_calls import callback_key, confirmed, hub_call
from rsscloud_broker.wire import links
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.websub import BadRequest

#: The path of the callbacks, before the key of a list or feed.
PATH: Final = "/follows/"

#: Seconds of the lease that a hub is asked for, which is the longest that is taken, and of one
#: without a length.
LONGEST_LEASE, USUAL_LEASE = 10 * 86_400, 86_400

#: The part of a lease after which it is renewed, and the shortest pause in seconds before that.
RENEW_AT, SHORTEST_PAUSE = 0.75, 300.0

#: Seconds in which a hub has to verify the intent; after which one that refused is asked again; and
#: between two looks at what is due.
VERIFY_WITHIN, ASK_AGAIN, LOOK = 600.0, 3600.0, 5.0


class Pushed(Protocol):
    """What is followed, and can be pushed."""

    @property
    def url(self) -> str:
        """Its URL."""

    @property
    def is_pushed(self) -> bool:
        """Whether the operator wants it to be pushed."""

    @property
    def hub(self) -> tuple[str, str] | None:
        """Its hub, and the URL by which the hub knows it; None as long as it is unknown."""

    def hint(self) -> None:
        """Read it now, since it has probably changed."""


@define(eq=False)
class _Subscription:
    """A subscription to something that is followed.

    :ivar asked: whether the hub was asked, and has not verified that yet.
    :ivar topic: what the hub was asked for.
    :ivar due_at: when the hub is asked next, by the monotonic clock.
    :ivar hinted_at: when the last hint was passed on.
    :ivar hint: the call that will pass the next hint on.
    """

    followed: Pushed
    asked: bool = False
    topic: str = ""
    due_at: float = 0.0
    hinted_at: float = float("-inf")
    hint: IDelayedCall | None = None


def key_of(url: str) -> str:
    """The last segment of the path of the callback of a list or feed.

    It is the same after a restart, so that the broker renews its subscription and leaves no other
    behind.
    """
    return blake2b(url.encode(), digest_size=12).hexdigest()


def hub_named(headers: Mapping[str, str], url: str) -> tuple[str, str] | None:
    """The hub that the headers of an answer name, and the URL by which it knows what was read."""
    try:
        found = links.parse(headers.get("link", ""))
    except links.MalformedLink:
        return None
    hub, own = next(iter(links.targets(found, "hub")), ""), links.targets(found, "self")
    hub = hub and joined(url, hub)
    return (hub, joined(url, next(iter(own), url)) or url) if hub else None


class ListSubscriptions:
    """Keeps the subscriptions.

    :param public_url: the broker's own URL, without a slash at the end.
    """

    log = Logger()

    def __init__(
        self, followed: Sequence[Pushed], web: IOutbound, clock: IClock, public_url: str
    ) -> None:
        self._subscriptions = {key_of(each.url): _Subscription(each) for each in followed}
        self._web = GuardedWeb(web)
        self._clock = clock
        self._public_url = public_url
        self._tending = endless_call(clock, self._tend_all, "Subscribing to what is followed")

    def start(self) -> None:
        """Begin to subscribe."""
        self._tending.start(LOOK)

    def stop(self) -> None:
        """Subscribe no more.  The subscriptions end with their leases, or are renewed later."""
        if self._tending.running:
            self._tending.stop()
        for each in self._subscriptions.values():
            if each.hint is not None and each.hint.active():
                each.hint.cancel()

    async def _tend_all(self) -> None:
        for key, each in self._subscriptions.items():
            if not self._tending.running:
                return
            try:
                await self._tend(key, each)
            except Exception:  # log a bug; it must not keep others waiting
                self.log.failure("Subscribing to {url} failed.", url=each.followed.url)
                self._refused(each, "the broker made a mistake")

    async def _tend(self, key: str, subscription: _Subscription) -> None:
        hub = subscription.followed.hub
        now = self._clock.seconds()
        if hub is None or now < subscription.due_at:
            return
        url, subscription.topic = hub
        subscription.asked, subscription.due_at = True, now + VERIFY_WITHIN
        fields = [
            ("hub.mode", "subscribe"),
            ("hub.topic", subscription.topic),
            ("hub.callback", f"{self._public_url}{PATH}{key}"),
            ("hub.lease_seconds", str(LONGEST_LEASE)),
        ]
        try:
            await ask_hub(self._web, url, fields)
        except (ClientError, Unavailable) as error:
            self._refused(subscription, str(error))

    def _refused(self, subscription: _Subscription, reason: str) -> None:
        subscription.asked = False
        subscription.due_at = self._clock.seconds() + ASK_AGAIN
        self.log.info(
            "{url} is only polled: its hub takes no subscription ({reason}).",
            url=subscription.followed.url,
            # How many characters of what a hub says are logged.
            reason=clean(reason)[:200],
        )

    # --- what hubs call

    def routes(self) -> list[Route]:
        """The routes of the callbacks."""
        if not self._subscriptions:
            return []
        return [
            Route(f"{PATH}*", "GET", Answers(self._verify)),
            # The most bytes that a hub may push.
            Route(f"{PATH}*", "POST", Answers(self._receive), body_limit=10 * 1024 * 1024),
        ]

    async def _verify(self, request: Request) -> Answer:
        try:
            call = hub_call(request)
        except BadRequest as error:
            return plain(400, str(error))
        subscription = self._subscriptions.get(callback_key(request))
        if subscription is None or not subscription.asked or call.topic != subscription.topic:
            return plain(404, "Nobody here has asked for this.")
        if call.mode == "denied":
            self._refused(subscription, call.reason or "it gives no reason")
            return plain(200, "Noted.")
        if call.mode != "subscribe":
            return plain(404, "Nobody here has asked for this.")
        lease = min(call.lease_seconds or USUAL_LEASE, LONGEST_LEASE)
        subscription.asked = False
        subscription.due_at = self._clock.seconds() + max(lease * RENEW_AT, SHORTEST_PAUSE)
        self.log.info(
            "The hub of {url} tells of its changes for {lease} s.",
            url=subscription.followed.url,
            lease=lease,
        )
        return confirmed(call.challenge)

    async def _receive(self, request: Request) -> Answer:
        subscription = self._subscriptions.get(callback_key(request))
        if subscription is None:
            return plain(410, "Nobody here has asked for this.")
        if subscription.hint is None or not subscription.hint.active():
            now = self._clock.seconds()
            # Seconds between two reads that hubs cause.
            wait = max(subscription.hinted_at + 2.0 - now, 0.0)
            subscription.hint = self._clock.callLater(wait, self._hint, subscription)
        return Answer(b"", PLAIN, 202)

    def _hint(self, subscription: _Subscription) -> None:
        subscription.hinted_at = self._clock.seconds()
        subscription.followed.hint()
