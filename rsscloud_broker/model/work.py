"""The work that the store keeps (fan-outs, checks, poll plans), and the answers of its methods.

The core and the sinks exchange these values with ``Store``.  Every class here is frozen and holds
plain values.  Times are seconds since the epoch (UTC) as floats; durations are seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import Final
from urllib.parse import quote

from attrs import field

from rsscloud_broker.model import Callback, Content, Intent, Outcome, Ping, Subscription, Topic
from rsscloud_broker.model.frozen import frozen
from rsscloud_broker.model.ways import UNKNOWN_SOURCE, ChangeSource, Way


@frozen
class PendingIntent:
    """An intent that the broker has accepted and not verified yet.

    :ivar id: the store's key, ascending.
    :ivar attempts: how many attempts to verify it have failed.
    :ivar retry_at: when the broker tries again to verify it; None if it has not tried yet.
    """

    id: int
    intent: Intent
    attempts: int = 0
    retry_at: float | None = None


#: See ``PollPlan.replaces``.
ANY_PLAN: Final = -1.0


@frozen
class PollPlan:
    """When a topic is polled next.

    :ivar at: the time of the poll; None if the topic is not polled.
    :ivar reason: why it is polled at that time, for people.
    :ivar interval: see ``TopicStatus.poll_interval``.
    :ivar planned_at: when the plan was made.
    :ivar replaces: the ``planned_at`` of the plan that it replaces, None if there is none; if there
        is another one by now, that stays.  ``ANY_PLAN`` replaces whatever there is.
    """

    url: str
    at: float | None
    reason: str
    interval: float | None
    planned_at: float
    replaces: float | None = ANY_PLAN


@frozen
class Delivery:
    """The outcome of an attempt to notify one subscriber, or a notification that waits for one.

    The store does with it:

    - attempted, and delivered or gone: the subscription has no pending notification any more
    - attempted and failed, with ``retry_at``: the notification is pending until then
    - attempted and failed, without ``retry_at``: the notification is given up, which counts as one
      error
    - attempted, with ``retry_at`` and 0 ``attempts``: the outcome is stored as without
      ``retry_at``, and another notification is pending, since the topic has changed meanwhile
    - not attempted to the end (``outcome`` is None): the notification is pending until
      ``retry_at``

    :ivar at: when the attempt ended.
    :ivar drop_after_failures: the number of consecutive errors after which the subscription is
        dropped; None if its protocol never drops it.
    :ivar attempts: how many attempts the pending notification has had, including this one.
    :ivar retry_at: when the pending notification is due; None if there is none.
    :ivar pause: None unless the topic has changed again.  Then the pause in seconds between the
        last attempt and the next: a pending notification starts its attempts afresh and is due
        after this pause, unless its subscriber asked for a later time.
    :ivar not_before: the time before which the subscriber asked not to be called; None if it did
        not ask.
    :ivar content_id: the store's key of the content that the notification carries, if that was
        pushed.  Several such notifications are delivered in the order of their keys.
    :ivar claimed: whether this process still works on the notification.
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


#: How many pushed contents may be queued for one subscription, besides the first.
MAX_QUEUED = 100


@frozen
class Recorded:
    """The answer of the store when it has recorded deliveries.

    :ivar due: whether the store added a pending notification that is due at once.
    :ivar dropped: the subscriptions whose queues of pushed contents were full, each once for
        every content that was left out.
    :ivar lost: whether nothing was recorded, because this process does not hold the claim any
        more: it stood still for too long, or the topic has moved.
    """

    due: bool = False
    dropped: tuple[Subscription, ...] = ()
    lost: bool = False


@frozen
class HostState:
    """The state of a host that does not answer, or of one port of it.

    :ivar host: the name of the host, followed by ``:`` and the port if only that port does not
        answer.
    :ivar failures: how many calls in a row had no answer; 0 when the host answers again.
    :ivar retry_at: when the broker may call the host again.
    """

    host: str
    failures: int
    retry_at: float


@frozen
class Fanout:
    """An unfinished fan-out: the work of notifying all subscribers of a topic about one change.

    :ivar cursor: the id of the last subscription that was taken up.
    :ivar begun_at: when the fetch was requested that found the topic changed, or when the content
        was pushed or the topic ended.
    :ivar content_id: the store's key of the content that the notifications carry; None if no
        subscription wanted content when the fan-out began, or if the store had no space for it.
    :ivar pushed: whether the content was pushed.
    :ivar lacks_content: whether the store had no space for the content.  Then the broker notifies
        the subscribers that want content after the next fetch of the topic.
    :ivar content_size: the number of bytes of the content.
    :ivar outstanding: the ids of the subscriptions up to the cursor that have no outcome yet, in
        ascending order.
    :ivar last_id: the id of the last subscription that is notified; None for all after the cursor.
        Other nodes notify those after it, in other parts of the same fan-out.
    :ivar node: the id of the node that has claimed it; None if no node has.
    :ivar is_public: whether the topic has subscriptions that strangers may know of.
    """

    id: int
    topic: str
    cursor: int = 0
    begun_at: float = 0.0
    content_id: int | None = None
    pushed: bool = False
    lacks_content: bool = False
    content_size: int = 0
    outstanding: tuple[int, ...] = ()
    last_id: int | None = None
    node: int | None = field(default=None, eq=False)
    is_public: bool = field(default=True, eq=False)


class CheckState(IntEnum):
    """What became of a request for a check.  It is true if the check was requested.

    :cvar NONE: it was not.
    :cvar WAITS: the check waits in the store until a node claims it.
    :cvar CLAIMED: this process has claimed it.
    :cvar ELSEWHERE: another node has claimed it, and fetches the topic once more.
    """

    NONE = 0
    WAITS = 1
    CLAIMED = 2
    ELSEWHERE = 3


@frozen
class Check:
    """A requested fetch of a topic.

    :ivar source: the source that requested it first; see ``addresses.bucket_of``.
    :ivar failures: how many attempts to fetch the topic have failed since then.
    """

    url: str
    source: str = ""
    failures: int = 0
    cause: ChangeSource = UNKNOWN_SOURCE


@frozen
class WantedChecks:
    """How many checks a process wants to claim, and of which topics.

    Sources take turns, and within a source the hosts of the topics.

    :ivar limit: how many in all, and ``of_host`` from one source at one host.
    :ivar now: the time; checks that were put off until then are ready.
    :ivar busy_sources: sources that are left out.
    :ivar busy_hosts: sources and hosts that are left out.
    :ivar after_source: the source that had its turn last; None at first.
    :ivar after_hosts: the hosts that had their turns last, by source.
    """

    limit: int
    of_host: int
    now: float
    busy_sources: Collection[str] = ()
    busy_hosts: Collection[tuple[str, str]] = ()
    after_source: str | None = None
    after_hosts: Mapping[str, str] = field(factory=dict)


@frozen
class ClaimedChecks:
    """The checks that a process has claimed.

    :ivar more: whether further ones may be ready.
    :ivar next_at: when the next check is ready of those that were put off; None if there is none.
    :ivar after_source, after_hosts: for the next ``WantedChecks``.
    """

    checks: Sequence[Check]
    more: bool
    next_at: float | None
    after_source: str | None
    after_hosts: Mapping[str, str]


@frozen
class PingRecord:
    """The answer of the store when a ping was added.

    :ivar repeat: whether the same ping came a moment ago, so that the store added no record.
    :ivar watched: the URLs of the topics that the ping names and that have subscriptions; a check
        of each is now requested.
    :ivar states: what became of these requests, in the same order.
    """

    ping: Ping
    repeat: bool
    watched: tuple[str, ...] = ()
    states: tuple[CheckState, ...] = ()


@frozen
class FetchRecord:
    """The answer of the store when it has recorded a fetch.

    :ivar topic: the topic as it is now.
    :ivar changed: whether the content differs from that of the last fetch, or from the last one
        that strangers know of, if they may know of this one.
    :ivar news: whether it differs from the last one that strangers know of, and they may know of
        this one.
    :ivar shown: whether strangers may know of the fetch: see ``Topic.shows``.
    :ivar ping: the record of the ping that caused the fetch, if there were such news.
    :ivar content_awaited: whether notifications waited for the content, which the store did not
        have before this fetch.  ``make_due_for_content`` makes them due.
    :ivar asked_again: whether a check was requested since the fetch began, and this process has
        claimed it.
    """

    topic: Topic
    changed: bool
    ping: Ping | None = None
    content_awaited: bool = False
    asked_again: bool = False
    news: bool = False
    shown: bool = True


#: The longest URL of a topic whose contents are kept, since an index has it.
MAX_HISTORY_URL: Final = 2000


@frozen
class KeptChange:
    """A change of a topic, as the store keeps it for the feeds.

    :ivar id: the store's key, ascending.
    :ivar at: when the fetch began that found it; or when it was pushed.
    :ivar origin: of the ping; see ``Ping``.
    :ivar content: the new content, if the history of the topic has contents; else None.
    """

    id: int
    url: str
    at: float
    way: Way
    origin: str = ""
    content: Content | None = None


@frozen
class History:
    """Of which topics the store keeps the changes for the feeds, and of which the contents too.

    :ivar left_out: how the URLs of topics begin whose changes are not kept: those of the feeds.
    :ivar contents: how the URLs of topics begin whose contents are kept.
    :ivar feeds: what comes before the URL of a topic, percent-encoded, in the URL of the feed with
        its contents.
    """

    left_out: tuple[str, ...] = ()
    contents: tuple[str, ...] = ()
    feeds: str = ""

    def has(self, url: str) -> bool:
        """Whether the changes of a topic are kept."""
        return not url.startswith(self.left_out) if self.left_out else True

    def has_content(self, url: str) -> bool:
        """Whether the contents of a topic are kept."""
        return self.has(url) and len(url) <= MAX_HISTORY_URL and url.startswith(self.contents)

    def feed_of(self, url: str) -> str:
        """The URL of the feed with the contents of a topic; empty if they are not kept."""
        return f"{self.feeds}{quote(url, safe='')}" if self.has_content(url) else ""


@frozen
class Bounds:
    """Limits on the data that callers of the broker can make the store keep.

    :ivar idle_topics: the number of topics without subscriptions.
    :ivar contents: the bytes of all contents.
    :ivar contents_of_host: the bytes of the contents from one host.
    :ivar failed_attempts: the number of failed attempts whose requests and answers are kept.
    :ivar history: which changes are kept for the feeds of the broker; None for none.
    """

    idle_topics: int = 10_000
    contents: int = 144 * 1024**2
    contents_of_host: int = 72 * 1024**2
    failed_attempts: int = 10_000
    history: History | None = None


@frozen
class SweptSubscription:
    """A subscription that the sweep removed.

    :ivar error: why its last notification failed, if the sweep removed it because too many had
        failed; ``MARKED`` if none had failed here; empty if its lease had ended.
    """

    topic: str
    callback: Callback
    error: str = ""


#: The error of a subscription that an administrator has marked, or that was imported as failed.
MARKED: Final = "it was marked to be removed"

#: How many subscriptions the sweep names of those that failed too often, and of those that expired.
MAX_NAMED: Final = 100


@frozen
class Swept:
    """How many rows a sweep, or a part of it, removed.

    :ivar expired: subscriptions whose leases had ended.
    :ivar failing: subscriptions with too many failed notifications in a row.
    :ivar topics: topics without subscriptions that were last fetched long ago.
    :ivar named: some of the removed subscriptions: at most a hundred of either kind.
    :ivar after: where the sweep goes on; None if it is complete.
    """

    expired: int = 0
    failing: int = 0
    topics: int = 0
    named: tuple[SweptSubscription, ...] = field(default=(), eq=False)
    after: int | None = None

    def followed_by(self, other: Swept) -> Swept:
        """Add the next part of a sweep to this one."""
        named = [*self.named, *other.named]
        failed = [one for one in named if one.error][:MAX_NAMED]
        expired = [one for one in named if not one.error][:MAX_NAMED]
        return Swept(
            self.expired + other.expired,
            self.failing + other.failing,
            self.topics + other.topics,
            (*failed, *expired),
            other.after,
        )


#: The names of statistics that are measured, not counted, begin with this.
MEASURED: Final = "number_of_"


@frozen
class PingedTopic:
    """How often a topic was pinged in some time.

    :ivar url: the feed that the pings named, or else the page.
    """

    url: str
    pings: int
