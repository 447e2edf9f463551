"""The front door for the pings of other brokers, whose change lists it reads.

All other front doors wait for callers.  This one calls: each minute it reads the lists that the
configuration names, and takes in the pings that are new::

    [[front_doors.follows.sources]]
    url = "http://other.example/shortChanges.xml"
    archives = "http://other.example/"

Each ping comes in as if it had been made here, once, with the time at which it was made, and with
the list as its origin.  So two brokers that follow each other have the same lists, and no ping goes
round.  ``followed_list`` says how a list is read; ``wire.change_list_reader`` what is in it.

Sources of other kinds, such as feeds of changes, fit in beside the lists: a class with ``start``
and ``stop`` that is given ``FollowParts``, and the attrs class of its options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs
from attrs import field, frozen
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.logger import Logger
from zope.interface import implementer

from rsscloud_broker.front_doors.follow_parts import FollowParts, Source
from rsscloud_broker.front_doors.followed_list import ListFollower
from rsscloud_broker.interfaces import FrontDoorParts, IFrontDoor, Route, RoutesOnly
from rsscloud_broker.store_retry import StoreRetry

#: How many lists may be followed.
MAX_SOURCES: Final = 50

#: For how many seconds is kept how far a list was read that the configuration does not name.
KEPT: Final = 7 * 86_400.0


def _are_different(options: FollowsOptions, key: attrs.Attribute[Any], sources: Any) -> None:
    if len(sources) > MAX_SOURCES:
        raise ValueError(f"'{key.name}' has {len(sources)} sources; at most {MAX_SOURCES} may be")
    urls = [source.url for source in sources]
    if twice := next((url for url in urls if urls.count(url) > 1), ""):
        raise ValueError(f"'{key.name}' has {twice!r} more than once; name each list once")


@frozen
class FollowsOptions:
    """Options of the front door.

    :ivar sources: the lists that are followed.
    """

    sources: tuple[Source, ...] = field(default=(), validator=_are_different)


@implementer(IFrontDoor)
class FollowsDoor(RoutesOnly, Service):
    """Follows the change lists of other brokers."""

    name = "follows"
    log = Logger()

    def __init__(self, options: FollowsOptions, parts: FrontDoorParts) -> None:
        self._options = options
        self._parts = parts
        self._followers: list[ListFollower] = []
        self._beginning: Deferred[None] = succeed(None)
        self._store_retry = StoreRetry(parts.clock, "Following")

    def routes(self) -> Sequence[Route]:
        return []

    def startService(self) -> None:
        super().startService()
        self._store_retry.stopped = False
        if self._options.sources:
            self._beginning = Deferred.fromCoroutine(self._begin())

    def stopService(self) -> None:
        super().stopService()
        self._store_retry.stop()
        self._beginning.cancel()
        for follower in self._followers:
            follower.stop()
        self._followers = []

    async def _begin(self) -> None:
        try:
            await self._begin_to_follow()
        except CancelledError:
            pass  # the service stops
        except Exception:  # a bug
            self.log.failure("The change lists of other brokers cannot be followed.")

    async def _begin_to_follow(self) -> None:
        parts = self._parts
        if parts.intake is None or parts.follows is None or parts.web is None:
            raise ValueError("a follower needs what FrontDoorParts describes as intake")
        given = FollowParts(
            parts.intake, parts.follows, parts.web, parts.clock, parts.counters, parts.in_thread
        )
        sources = self._options.sources
        before = parts.clock.wall_seconds() - KEPT
        read = parts.follows.followed_lists
        states = await self._store_retry(lambda: read([source.url for source in sources], before))
        for source, state in zip(sources, states, strict=True):
            follower = ListFollower(source, state, given)
            self._followers.append(follower)
            follower.start()
