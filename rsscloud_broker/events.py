"""The events that the core publishes on the bus and sinks handle.

An event reports a fact that is already stored.  Its class is named in the past tense, is frozen,
and has no subclasses.  The bus may drop an event, so a sink that must miss nothing takes the event
as a hint and reads its work from the store.
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
    """A fetch found a topic changed, or its content was pushed."""

    topic: str
    at: float


@frozen
class TopicEnded:
    """A topic ended.  The broker tells its subscribers, and fetches it no more."""

    topic: str
    reason: str
    at: float


@frozen
class ContentMissed:
    """A notification is due and the store does not have its content; a check of the topic was
    requested.
    """

    topic: str


@frozen
class ContentBrought:
    """A fetch of a topic brought the content that pending notifications wait for."""

    topic: str


@frozen
class FilePublished:
    """A file for crawlers was written.

    :ivar path: the path at which the broker serves it, such as ``/changes.xml``.
    """

    path: str
    at: float


@frozen
class SubscriptionStored:
    """A subscription was verified and stored, or renewed."""

    subscription: Subscription


@frozen
class SubscriptionRemoved:
    """A subscriber unsubscribed, or an administrator removed the subscription.

    :ivar account: the administrator; empty if the subscriber unsubscribed.
    """

    topic: str
    callback_url: str
    account: str = ""


@frozen
class SubscriptionsSwept:
    """The sweep at the top of the hour is done.

    :ivar swept: how many subscriptions and topics it removed.
    """

    swept: Swept
    at: float


@frozen
class Administered:
    """An administrator changed something, and the change is stored.

    :ivar account: who.
    :ivar verb: what, in one word of ``admin_records.VERBS``.
    :ivar object: to what: a URL, a host, the id of a subscription, and so on.
    :ivar reason: why, for people; may be empty.
    """

    account: str
    verb: str
    object: str
    reason: str
    at: float


@frozen
class HostFreed:
    """An administrator closed the circuit breakers of a host, or lifted its block.

    :ivar host: the name of the host.
    """

    host: str


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
    | Administered
    | HostFreed
)
