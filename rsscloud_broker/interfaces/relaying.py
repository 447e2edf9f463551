"""What relays and followers need of the broker: pings that come from elsewhere, and how far they
have come.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence

from attrs import frozen
from zope.interface import Interface

from rsscloud_broker.interfaces.simplefeed import Position
from rsscloud_broker.model import Ping
from rsscloud_broker.model.shared import FollowedList


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
