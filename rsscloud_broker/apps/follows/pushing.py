"""Subscribes to followed lists and feeds at their hubs, to read them as soon as they change.

::

    GET  /follows/KEY?hub.mode=subscribe&hub.topic=...&hub.challenge=x91     200, x91
    POST /follows/KEY   the content                                          202

This is WebSub; but what is pushed only says that it is time to read: the list or the feed is the
truth.  So the content needs no signature, and who guesses a callback can make the broker read a
little more often.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, TypeAlias

from attrs import define
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rsscloud_broker.apps.follows.feeds import FeedFollower
from rsscloud_broker.apps.follows.lists import ListFollower
from rsscloud_broker.client.web import Web
from rsscloud_broker.client.websub import (
    LONGEST_LEASE,
    MAX_CONTENT_BYTES,
    HubSubscriber,
    PushedContent,
)
from rsscloud_broker.interfaces import IClock, IOutbound, Route
from rsscloud_broker.util.clock import call_off, endless_call
from rsscloud_broker.web.hub_calls import callback_routes
from rsscloud_broker.wire.websub import HubCall

#: The path of the callbacks, before the key of a list or feed.
PATH: Final = "/follows/"

#: Seconds after which a hub that refused, or did not verify, is asked again; and between two looks
#: for hubs that were found.
ASK_AGAIN, LOOK = 3600.0, 5.0

#: A list or a feed that is followed, and that a hub can push.
Pushed: TypeAlias = ListFollower | FeedFollower


@define(eq=False)
class _Hinter:
    """Hints to a follower that it is time to read, but at most every two seconds.

    :ivar at: when it was hinted at last.
    :ivar next: the call that will hint next.
    """

    followed: Pushed
    at: float = float("-inf")
    next: IDelayedCall | None = None

    def add(self, clock: IClock) -> None:
        """Have the follower read soon."""
        if self.next is None or not self.next.active():
            # Seconds between two reads that hubs cause.
            wait = max(self.at + 2.0 - clock.seconds(), 0.0)
            self.next = clock.callLater(wait, self._hint, clock)

    def _hint(self, clock: IClock) -> None:
        self.at = clock.seconds()
        self.followed.hint()


def key_of(url: str) -> str:
    """The last segment of the path of the callback of a list or feed.

    It is the same after a restart, so that the broker renews its subscription and leaves no other
    behind.
    """
    return blake2b(url.encode(), digest_size=12).hexdigest()


class HubSubscriptions:
    """Keeps the subscriptions to lists and feeds at their hubs.

    :param public_url: the broker's own URL, without a slash at the end.
    """

    log = Logger()

    def __init__(
        self, followed: Sequence[Pushed], web: IOutbound, clock: IClock, public_url: str
    ) -> None:
        self._hinters = {key_of(each.url): _Hinter(each) for each in followed}
        self._clock = clock
        self._callbacks = f"{public_url}{PATH}"
        self._subscriber = HubSubscriber(
            Web(web),
            clock,
            lambda content: None,  # contents come to ``receive`` instead
            lambda said: self.log.info("At a hub: {said}", said=said),
            lease=LONGEST_LEASE,
            retry_after=ASK_AGAIN,
            keeps_asking=True,
        )
        self._looking = endless_call(
            clock, self._subscribe_at_hubs, "Subscribing to what is followed"
        )

    def start(self) -> None:
        """Begin to subscribe."""
        self._looking.start(LOOK)

    def stop(self) -> None:
        """Subscribe no more.  The subscriptions end with their leases, or are renewed later."""
        if self._looking.running:
            self._looking.stop()
        self._subscriber.stop()
        for each in self._hinters.values():
            call_off(each.next)

    def _subscribe_at_hubs(self) -> None:
        """Subscribe at the hubs that are known by now, unless that was done already."""
        for key, each in self._hinters.items():
            if (hub := each.followed.hub) is not None:  # None: not read yet, or it names none
                self._subscriber.keep_subscribed(key, *hub, self._callbacks)

    def routes(self) -> list[Route]:
        """The routes of the callbacks."""
        return callback_routes(PATH, self, MAX_CONTENT_BYTES) if self._hinters else []

    async def verify(self, key: str, call: HubCall) -> bool:
        """Whether to confirm what a hub asks a callback: see ``IsCalledByHubs``."""
        return await self._subscriber.verify(key, call)

    async def receive(self, key: str, content: PushedContent) -> bool:
        """Hint that the list or feed of a callback is to be read; False if none has this key.

        Every node has all callbacks; only at the one that follows does the hint do anything.
        """
        if (hinter := self._hinters.get(key)) is None:
            return False
        hinter.add(self._clock)
        return True
