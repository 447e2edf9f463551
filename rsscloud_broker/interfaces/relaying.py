"""What relays and followers need of the broker: pings that come from elsewhere, and how far they
have come.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence

from attrs import frozen
from zope.interface import Interface

from rsscloud_broker.interfaces.simplefeed import Position
from rsscloud_broker.model import Ping
from rsscloud_broker.model.shared import FollowedList, RelayProgress


class IRelayStore(Interface):
    """The part of the store that relays use; each method as in ``IStore``."""

    def pings_after(after: int, limit: int) -> Awaitable[list[Ping]]:
        """The pings with a greater id, in the order of their ids.

        Whoever goes on after the last one of one call misses no ping: a ping is returned only when
        no ping with a smaller id can appear any more.
        """

    def pings_by_id(ids: Collection[int]) -> Awaitable[list[Ping]]:
        """The pings with these ids, in any order.  Those that were deleted are left out."""

    def begin_relay(
        names: Collection[str], now: float, forget_before: float
    ) -> Awaitable[list[RelayProgress]]:
        """How far pings were passed on to each target, in this order.

        A target that is unknown gets the pings that are recorded from now on.

        :param forget_before: targets that are not named are forgotten if their progress was last
            recorded before this time.
        """

    def record_relay(progress: RelayProgress, now: float) -> Awaitable[None]:
        """Record how far pings were passed on to a target.  It never goes back."""


class IFollowStore(Interface):
    """Stores how far followed lists and feeds were read."""

    def followed_lists(
        urls: Collection[str], forget_before: float
    ) -> Awaitable[list[FollowedList]]:
        """How far each list was read, in this order.

        :param forget_before: lists that are not named are forgotten if they were last read before
            this time.
        """

    def record_followed(followed: FollowedList, now: float) -> Awaitable[None]:
        """Record how far a list was read."""

    def followed_feed_position(url: str) -> Awaitable[Position | None]:
        """How far a feed was read; None if it was never read."""

    def record_followed_feed(url: str, position: Position, now: float) -> Awaitable[None]:
        """Record how far a feed was read."""

    def forget_followed_feeds(urls: Collection[str], forget_before: float) -> Awaitable[None]:
        """Forget feeds that are not named, if they were last read before a time."""


@frozen
class Intake:
    """What became of pings that came from elsewhere.

    :ivar taken: how many were recorded.
    :ivar known: how many were here already.
    :ivar refused: how many the operator or an administrator does not allow here.
    """

    taken: int = 0
    known: int = 0
    refused: int = 0


class IPingIntake(Interface):
    """Takes in pings that were made elsewhere, as if they had been made here."""

    def take_in(pings: Sequence[Ping], precision: float) -> Awaitable[Intake]:
        """Record those pings that are not here yet, and fetch the topics that they name and that
        have subscriptions.

        A ping is here already if the same one (name, URL and feed) was recorded for a time that
        differs by less than ``precision`` seconds; or if it has passed this broker.

        :param pings: each with the time at which it was made, and with its origin.
        :raises Unavailable: the disk is nearly full, or the database cannot be used.  The pings
            may then be recorded in part.
        """
