"""The events that travel on the bus.

An event is a fact that is already stored: past tense, frozen, never
subclassed.  It is a hint to look at the store, not a parcel: a sink that must
not miss anything reads its work from there.
"""

from __future__ import annotations

from typing import TypeAlias

from attrs import frozen

from rsscloud_broker.model import Ping, Subscription
from rsscloud_broker.records import Swept


@frozen
class PingReceived:
    """A ping was recorded."""

    ping: Ping


@frozen
class TopicChanged:
    """A topic was read and differs from what was read before."""

    topic: str
    at: float


@frozen
class TopicEnded:
    """A topic ended: its subscribers are told so, and it is not read any more."""

    topic: str
    reason: str
    at: float


@frozen
class ContentMissed:
    """A notification is due whose content is not kept; its topic waits to be read."""

    topic: str


@frozen
class ContentBrought:
    """A topic was read once more, and what notifications wait for is there."""

    topic: str


@frozen
class FilePublished:
    """A file for crawlers was made or made anew.

    :ivar path: where the broker serves it, such as ``/changes.xml``.
    """

    path: str
    at: float


@frozen
class SubscriptionStored:
    """A subscription was verified and stored, or renewed."""

    subscription: Subscription


@frozen
class SubscriptionRemoved:
    """A subscriber took its subscription back."""

    topic: str
    callback_url: str


@frozen
class SubscriptionsSwept:
    """The top of the hour removed what had ended."""

    swept: Swept
    at: float


#: Any event.
Event: TypeAlias = (
    PingReceived
    | TopicChanged
    | TopicEnded
    | ContentMissed
    | ContentBrought
    | FilePublished
    | SubscriptionStored
    | SubscriptionRemoved
    | SubscriptionsSwept
)
