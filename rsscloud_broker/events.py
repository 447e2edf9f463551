"""The events that the core and the sinks publish on the bus, and that sinks handle.

An event reports a fact that is already stored.  Its class is named in the past tense, is frozen,
and has no subclasses.  The bus may drop an event, so a sink that must miss nothing takes the event
as a hint and reads its work from the store.

``source`` is the address of the caller; it is empty if there is none.
An event that is ``private`` only private followers may know of: see ``Topic.shows``.
"""

from __future__ import annotations

from typing import TypeAlias

from rsscloud_broker.model import Callback, Ping, Subscription
from rsscloud_broker.model.frozen import frozen
from rsscloud_broker.model.work import Swept


@frozen
class PingReceived:
    """A ping was recorded."""

    ping: Ping


@frozen
class PingAccepted:
    """The broker accepted a ping: what it says is stored, or was fetched.

    :ivar url: the feed that the ping names, or else the site.
    :ivar source: the address of the caller; empty for the broker itself.
    :ivar repeated: whether the same ping came a moment ago.
    :ivar origin, way: see ``Ping`` and ``Way``; either may be empty.
    """

    url: str
    at: float
    source: str = ""
    repeated: bool = False
    origin: str = ""
    way: str = ""


@frozen
class PingsTakenIn:
    """Pings that were made elsewhere were recorded, each with the time at which it was made.

    :ivar oldest: the earliest of these times.
    """

    oldest: float


@frozen
class PingRelayed:
    """A ping was passed on to a target of the relay, and the target accepted it.

    :ivar url: the feed that the ping names, or else the site.
    :ivar target: the URL that was called, and by which protocol.
    :ivar answer: what the target answered, for people; may be empty.
    :ivar seconds: how long the target took.
    """

    url: str
    target: Callback
    answer: str
    seconds: float
    at: float


@frozen
class RelayFailed:
    """A target of the relay did not accept a ping, or did not answer.

    :ivar url, target: as for ``PingRelayed``.
    :ivar reason: why, for people.
    :ivar retry_at: when the next attempt is made; None if there is none.
    """

    url: str
    target: Callback
    reason: str
    at: float
    retry_at: float | None = None


@frozen
class RelaySkipped:
    """Pings were not passed on to a target of the relay.

    :ivar target: as for ``PingRelayed``.
    :ivar reason: why not, for people.
    :ivar pings: how many.
    """

    target: Callback
    reason: str
    pings: int
    at: float


@frozen
class PingRefused:
    """The broker refused a ping, and answered its caller why.

    :ivar url, source: as for ``PingAccepted``; the URL is as the caller sent it.
    :ivar reason: why, for people.
    """

    url: str
    reason: str
    at: float
    source: str = ""


@frozen
class TopicFetched:
    """A fetch of a topic succeeded, and its result is recorded.

    :ivar changed: whether the content differs from that of the last fetch.
    :ivar result: the response of the server in a few words, for people.
    :ivar seconds: how long the server took to answer.
    """

    topic: str
    changed: bool
    result: str
    seconds: float
    at: float
    private: bool = False


@frozen
class TopicFetchFailed:
    """A fetch of a topic failed.

    :ivar reason: why, for people.
    :ivar seconds: how long the attempt took.
    """

    topic: str
    reason: str
    seconds: float
    at: float
    private: bool = False


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
    private: bool = False


@frozen
class TopicRevived:
    """A topic that had ended is fetched again."""

    topic: str
    at: float
    private: bool = False


@frozen
class TopicMoved:
    """A topic moved to another URL, with its subscriptions."""

    topic: str
    to: str
    at: float
    private: bool = False


@frozen
class ContentRequested:
    """A check of a topic was requested, since a due notification lacks the content."""

    topic: str


@frozen
class ContentFetched:
    """A topic was fetched, and the store now has the content that its notifications waited for."""

    topic: str


@frozen
class FilePublished:
    """A file for crawlers was written.

    :ivar path: the path at which the broker serves it, such as ``/changes.xml``.
    """

    path: str
    at: float


@frozen
class FileCopied:
    """A file for crawlers that another node has written was copied to the disk of this one."""

    path: str


@frozen
class SubscriptionRequested:
    """A subscriber asked for a subscription, or asked to end one; its callback is verified next."""

    topic: str
    callback: Callback
    at: float
    source: str = ""
    unsubscribe: bool = False


@frozen
class SubscriptionDenied:
    """The broker refused a request to subscribe or unsubscribe, or the callback did."""

    topic: str
    callback: Callback
    reason: str
    at: float
    source: str = ""


@frozen
class SubscriptionStored:
    """A subscription was verified and stored, or renewed."""

    subscription: Subscription
    source: str = ""


@frozen
class SubscriptionRemoved:
    """A subscriber unsubscribed, or an administrator removed the subscription.

    :ivar account: the administrator; empty if the subscriber unsubscribed.
    """

    topic: str
    callback: Callback
    source: str = ""
    account: str = ""


@frozen
class SubscriptionsSwept:
    """The sweep at the top of the hour is done.

    :ivar swept: how many subscriptions and topics it removed.
    """

    swept: Swept
    at: float


@frozen
class FanOutBegun:
    """The broker began to notify the subscribers of a topic."""

    topic: str
    at: float
    private: bool = False


@frozen
class FanOutEnded:
    """Every subscriber of a topic has had its first attempt.

    :ivar delivered: how many subscribers accepted their notification.
    :ivar failed: how many attempts failed.
    :ivar waiting: how many notifications still wait: the host of the callback does not answer or
        is slow, or the topic changed again.
    :ivar first, last: seconds from the request of the fetch that found the change to the first
        notification, and to the end; ``first`` is None if nobody accepted a notification.
    """

    topic: str
    delivered: int
    failed: int
    waiting: int
    first: float | None
    last: float
    at: float
    private: bool = False


@frozen
class NotificationDelivered:
    """A subscriber accepted a notification."""

    subscription: Subscription
    at: float


@frozen
class NotificationFailed:
    """A subscriber did not accept a notification.

    :ivar reason: why, for people.
    :ivar retry_at: when the next attempt is made; None if there is none.
    :ivar ends: whether the subscription ends with this, because the subscriber wants no more
        notifications or the topic has ended.
    """

    subscription: Subscription
    reason: str
    at: float
    retry_at: float | None = None
    ends: bool = False


@frozen
class HostUnreachable:
    """A circuit breaker opened: for a while the broker does not call a host.

    :ivar port: the port, if only that port does not answer; else None.
    :ivar reason: why the last call failed, for people.
    :ivar failures: how many calls in a row had no answer.
    :ivar retry_at: when the next call is made.
    """

    host: str
    port: int | None
    reason: str
    failures: int
    retry_at: float
    at: float


@frozen
class HostReachable:
    """A circuit breaker closed: the host answers again.

    :ivar port: as for ``HostUnreachable``.
    """

    host: str
    port: int | None
    at: float


@frozen
class Administered:
    """An administrator changed something, and the change is stored.

    :ivar account: who.
    :ivar verb: what, in one word of ``model.administration.VERBS``.
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
    :ivar before_start: whether this process started later; breakers opened since stay open.
    """

    host: str
    before_start: bool = False


@frozen
class WorkHinted:
    """Another node made work, ended before its work was done, or did what this one waits for.

    :ivar kind: what it is about (see ``storage.hints``), such as ``job.NAME``; empty for anything.
    :ivar key: the id of what it is about; 0 if it does not matter.
    """

    kind: str = ""
    key: int = 0


@frozen
class NodesCounted:
    """The number of nodes that work on the database has changed.

    :ivar live: how many there are, this one included.
    """

    live: int


@frozen
class ClaimsLost:
    """The process stood still for so long that other nodes have taken its work over."""


#: Any event.
Event: TypeAlias = (
    PingReceived
    | PingAccepted
    | PingsTakenIn
    | PingRelayed
    | RelayFailed
    | RelaySkipped
    | PingRefused
    | TopicFetched
    | TopicFetchFailed
    | TopicChanged
    | TopicEnded
    | TopicRevived
    | TopicMoved
    | ContentRequested
    | ContentFetched
    | FilePublished
    | FileCopied
    | SubscriptionRequested
    | SubscriptionDenied
    | SubscriptionStored
    | SubscriptionRemoved
    | SubscriptionsSwept
    | FanOutBegun
    | FanOutEnded
    | NotificationDelivered
    | NotificationFailed
    | HostUnreachable
    | HostReachable
    | Administered
    | HostFreed
    | WorkHinted
    | NodesCounted
    | ClaimsLost
)
