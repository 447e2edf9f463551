"""The work that the store keeps, and what it answers when something is recorded.

The core and the sinks exchange these values with ``IStore``.  Every class here is frozen and holds
plain values.  Times are seconds since the epoch (UTC) as floats; durations are seconds.
"""

from __future__ import annotations

from attrs import frozen

from rsscloud_broker.model import Intent, Outcome, Ping, Subscription, Topic


@frozen
class WaitingIntent:
    """An intent that was accepted and waits to be verified.

    :ivar id: the store's key, ascending.
    :ivar attempts: how many times its verification has failed for a passing reason.
    :ivar retry_at: when its verification is tried again; None if it was never tried.
    """

    id: int
    intent: Intent
    attempts: int = 0
    retry_at: float | None = None


@frozen
class PollPlan:
    """When a topic is polled next.

    :ivar at: None if it is not.
    :ivar reason: why then, for people.
    :ivar interval: see ``TopicStatus.poll_interval``.
    """

    url: str
    at: float | None
    reason: str
    interval: float | None
    planned_at: float


@frozen
class Delivery:
    """What is to be stored about the notification of one subscription.

    - tried, and delivered or gone: nothing waits any more
    - tried, failed, with ``retry_at``: it waits until then
    - tried, failed, without: it is given up, which counts as one error
    - tried, with ``retry_at`` and no ``attempts``: as without ``retry_at``, but then
      another one waits, for the topic has changed meanwhile
    - not tried to the end (``outcome`` is None): it waits until ``retry_at``

    :ivar attempts: how often that which waits was tried, this time included.
    :ivar drop_after_failures: consecutive errors after which the subscription is to be dropped;
        None where its protocol never gives up.
    :ivar pause: None; or, if this is news, the seconds that must lie between the last
        attempt and the next: one that waits already gets a fresh schedule then, and is due
        that early, unless its subscriber asked for a later time.
    :ivar not_before: the time that the subscriber asked for; None if it did not.
    :ivar content_id: the store's key of what is carried, if that was pushed.  Of several of
        those each waits in the order of their keys.
    :ivar claimed: whether this process works on it still.
    """

    subscription: Subscription
    outcome: Outcome | None
    at: float
    drop_after_failures: int | None = None
    attempts: int = 1
    retry_at: float | None = None
    pause: float | None = None
    not_before: float | None = None
    content_id: int | None = None
    claimed: bool = False


@frozen
class Recorded:
    """What the store made of deliveries.

    :ivar due: whether a notification is due at once that was not there before.
    :ivar dropped: the subscriptions whose queues were full, each as often as something that was
        pushed was left out.
    """

    due: bool = False
    dropped: tuple[Subscription, ...] = ()


@frozen
class HostState:
    """A host, or a port of one, that does not answer.

    :ivar host: its name, with ``:`` and the port if only that does not answer.
    :ivar failures: calls without an answer since the last one that had one; 0
        when it answers again.
    :ivar retry_at: when it may be called again.
    """

    host: str
    failures: int
    retry_at: float


@frozen
class Fanout:
    """A walk over the subscriptions of a changed topic, not yet at its end.

    :ivar cursor: the id of the last subscription that was handed out.
    :ivar left: the ids of those up to there whose outcomes are not recorded, in order.
    :ivar begun_at: when the reading was asked for that found the topic changed, or it
        was said to have.
    :ivar content_id: the store's key of the content that is carried; None if nobody
        wanted it when the walk began.
    :ivar pushed: whether that was pushed.
    :ivar later: whether a content was wanted and is not kept: who wants it is notified when
        the topic has been read once more.
    :ivar content_size: bytes of the content that is carried.
    """

    id: int
    topic: str
    cursor: int = 0
    begun_at: float = 0.0
    content_id: int | None = None
    pushed: bool = False
    later: bool = False
    content_size: int = 0
    left: tuple[int, ...] = ()


@frozen
class Check:
    """A topic that waits to be read.

    :ivar pinged: somebody said that it changed, which is listed if it did.
    """

    url: str
    pinged: bool = False


@frozen
class PingRecord:
    """What the store made of a ping.

    :ivar repeat: the same ping came a moment ago, so no new record was made.
    :ivar watched: the topics named by the ping that somebody subscribed to;
        each now waits in the store to be read.
    """

    ping: Ping
    repeat: bool
    watched: tuple[str, ...] = ()


@frozen
class FetchRecord:
    """What the store made of a reading.

    :ivar changed: the content differs from what was last read.
    :ivar ping: the record made of the ping that caused the reading, if the
        content had changed.
    :ivar brought: whether it brought a content that notifications have waited for; those
        that were not tried yet are due.
    :ivar stored: whether the content is stored.
    """

    topic: Topic
    changed: bool
    ping: Ping | None = None
    brought: bool = False
    stored: bool = False


@frozen
class Bounds:
    """How much a store keeps of what strangers cause, at most.

    :ivar idle_topics: topics that nobody has subscribed to.
    :ivar contents: bytes of contents, in all.
    :ivar contents_of_host: bytes of contents that came from one host.
    """

    idle_topics: int = 10_000
    contents: int = 1024**3
    contents_of_host: int = 128 * 1024**2


@frozen
class Swept:
    """What the sweep at the top of the hour removed.

    :ivar expired: subscriptions whose leases had ended.
    :ivar failing: subscriptions with too many failed notifications in a row.
    :ivar topics: topics that nobody has subscribed to, and that were read long ago.
    """

    expired: int = 0
    failing: int = 0
    topics: int = 0
