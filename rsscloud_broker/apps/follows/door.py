"""The front door for the pings of other brokers, whose change lists and feeds it reads.

Each ping comes in as if it had been made here, once, with the time at which it was made, and with
the list or feed as its origin.  So two brokers that follow each other have the same lists, and no
ping goes round.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from twisted.application.service import IService, MultiService, Service
from twisted.internet.defer import CancelledError, Deferred, gatherResults, succeed
from zope.interface import implementer

from rsscloud_broker.apps.follows.documents import FollowParts
from rsscloud_broker.apps.follows.feeds import FeedFollower
from rsscloud_broker.apps.follows.lists import ListFollower
from rsscloud_broker.apps.follows.options import FollowsOptions
from rsscloud_broker.apps.follows.pushing import HubSubscriptions, Pushed
from rsscloud_broker.interfaces import FrontDoorParts, IFrontDoor, Route, RoutesOnly
from rsscloud_broker.model.shared import FollowedList
from rsscloud_broker.util.cluster_jobs import RunOnOneNode
from rsscloud_broker.util.retry import StoreRetry
from rsscloud_broker.util.urls import identity


@implementer(IFrontDoor)
class FollowsDoor(RoutesOnly, MultiService):
    """Follows the change lists and feeds of other brokers, on one of the nodes."""

    name = "follows"

    def __init__(self, options: FollowsOptions, parts: FrontDoorParts) -> None:
        MultiService.__init__(self)
        self._following: _Following | None = None
        if options.sources or options.feeds:
            self._following = following = _Following(options, parts)
            running: IService = following
            if parts.jobs is not None:
                running = RunOnOneNode(following, parts.jobs, parts.clock, name=self.name)
            running.setServiceParent(self)

    def routes(self) -> Sequence[Route]:
        return [] if self._following is None else self._following.pushing.routes()


class _Following(Service):
    """Follows the change lists and feeds while it runs."""

    name = "followed lists and feeds"

    def __init__(self, options: FollowsOptions, parts: FrontDoorParts) -> None:
        self._options = options
        self._clock = parts.clock
        self._beginning: Deferred[None] = succeed(None)
        self._store_retry = StoreRetry(parts.clock, "Following")
        if parts.intake is None or parts.follows is None or parts.web is None:
            raise ValueError("a follower needs what FrontDoorParts describes as intake")
        self._store = parts.follows
        common = FollowParts(
            parts.intake, parts.follows, parts.web, parts.clock, parts.counters, parts.parse
        )
        self._lists = [ListFollower(source, common) for source in options.sources]
        self._feeds = [FeedFollower(feed, common) for feed in options.feeds]
        followed: list[Pushed] = [*self._lists, *self._feeds]
        # No hub can call a broker whose URL is only known on its own machine.
        hubs_can_call = bool(identity(parts.public_url))
        pushed = [each for each in followed if each.is_pushed and hubs_can_call]
        self.pushing = HubSubscriptions(pushed, parts.web, parts.clock, parts.public_url)

    def startService(self) -> None:
        """Begin to look up how far the lists were read, to follow, and to subscribe at hubs."""
        super().startService()
        self._store_retry.stopped = False
        self._beginning = Deferred.fromCoroutine(self._begin())
        self.pushing.start()

    def stopService(self) -> Deferred[None]:
        """Stop; the Deferred fires when it is stored how far the feeds were read."""
        super().stopService()
        self._store_retry.stop()
        self._beginning.cancel()
        self.pushing.stop()
        for each in self._lists:
            each.stop()
        return gatherResults([each.stop() for each in self._feeds]).addCallback(lambda done: None)

    async def _begin(self) -> None:
        """Look up how far the lists were read, and begin to follow lists and feeds."""
        what = "Looking up how far others were followed"
        with suppress(CancelledError):  # the service stops
            states = await self._store_retry.until_done(self._load_states, what)
            for follower, state in zip(self._lists, states, strict=True):
                follower.start(state)
            for feed in self._feeds:
                feed.start()

    async def _load_states(self) -> Sequence[FollowedList]:
        """Load how far each list was read, and forget others that nobody read for a week."""
        before = self._clock.wall_seconds() - (7 * 86_400.0)
        lists = [source.url for source in self._options.sources]
        feeds = [feed.url for feed in self._options.feeds]
        await self._store.forget_followed_feeds(feeds, before)
        return await self._store.followed_lists(lists, before)
