"""The interface of the store, which keeps everything that outlives the process, and of the
check for free disk space.

The core and the sinks call ``IStore``.  ``rsscloud_broker.storage`` implements it for SQLite and
PostgreSQL, and the contract tests say what any other implementation must do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from zope.interface import Interface

from rsscloud_broker.interfaces.checks import ICheckStore
from rsscloud_broker.interfaces.distribution import IDistributionStore
from rsscloud_broker.interfaces.feeds import IChangeStore
from rsscloud_broker.interfaces.relaying import IFollowStore, IRelayStore
from rsscloud_broker.interfaces.shared_work import ISharedWork
from rsscloud_broker.interfaces.trials import ITrials
from rsscloud_broker.interfaces.views import IStatistics
from rsscloud_broker.model import (
    Callback,
    Content,
    FetchResult,
    Intent,
    Ping,
    Subscription,
    Topic,
    TopicStatus,
    TopicSummary,
)
from rsscloud_broker.model.administration import Change
from rsscloud_broker.model.log_entry import LogEntry, LogFilter
from rsscloud_broker.model.ways import Way
from rsscloud_broker.model.work import (
    FetchRecord,
    HostState,
    PendingIntent,
    PingedTopic,
    PingRecord,
    PollPlan,
    Swept,
)

T = TypeVar("T")


class IStore(
    IDistributionStore,
    ICheckStore,
    IStatistics,
    IRelayStore,
    IFollowStore,
    IChangeStore,
    ISharedWork,
    ITrials,
):
    """Everything that outlives the process.

    Each method is one transaction, which is on disk before the method returns.  Each raises
    ``Unavailable`` if the database cannot be used now.  A method that takes the URL of a topic
    also finds the topic by a URL that it has moved from.
    """

    # pings

    def add_ping(
        ping: Ping, repeat_window: float, source: str = ..., claim: bool = ..., way: Way = ...
    ) -> Awaitable[PingRecord]:
        """Record a ping, and request a check of each topic that the ping names and that has a
        subscription.

        A repeat (the same name, URL and feed within ``repeat_window`` seconds) gets no
        record of its own, but requests the checks.

        :param source, claim: as for ``request_check``.
        :param way: how the ping came.
        """

    def add_pings(
        wanted: Sequence[tuple[Ping, float]], way: Way = ...
    ) -> Awaitable[list[PingRecord]]:
        """As ``add_ping``, for several pings, each with its ``repeat_window``.  Their checks are
        not claimed.
        """

    def known_pings(wanted: Sequence[tuple[Ping, float]]) -> Awaitable[list[bool]]:
        """Whether each ping would be a repeat for ``add_pings``.  Nothing is changed."""

    def pings(since: float, until: float, before: Ping | None, limit: int) -> Awaitable[list[Ping]]:
        """Pings with ``since <= received_at < until``, newest first.

        :param before: the last ping of the previous call, to go on after it; None at first.
        """

    def count_pings(until: float = ...) -> Awaitable[int]:
        """The number of pings ever recorded, including those pruned since.

        :param until: those that were received at this time or later are not counted.
        """

    def ping_hours(since: float, until: float) -> Awaitable[dict[int, int]]:
        """The number of pings in each hour that has any; the keys are hours since the epoch.

        This reads in several transactions, and takes as long as there are pings.
        """

    def prune_pings(before: float, limit: int) -> Awaitable[int]:
        """Remove the oldest of the pings received before a time.

        :param limit: how many are removed at most, so that nothing else waits long.
        :returns: how many were removed; if that is ``limit``, call again.
        """

    # the event log

    def add_log_entries(entries: Sequence[LogEntry]) -> Awaitable[None]:
        """Add entries to the event log.  Their ids ascend in this order."""

    def log_entries(
        wanted: LogFilter, before: int | None, limit: int
    ) -> Awaitable[Sequence[LogEntry]]:
        """The newest entries of the event log that pass a filter: see ``IEventLog.entries``."""

    def log_entries_after(
        wanted: LogFilter, after: int, limit: int
    ) -> Awaitable[Sequence[LogEntry]]:
        """The oldest entries with a greater id: see ``IEventLog.entries_after``."""

    def prune_log(before: float, keep: int, limit: int) -> Awaitable[int]:
        """Remove the oldest entries that are from before a time, or beyond the newest ``keep``.

        :param limit: how many rows are looked at, so that nothing else waits long.
        :returns: how many were removed; if that is ``limit``, call again.
        """

    # topics

    def topic(url: str) -> Awaitable[Topic | None]:
        """The topic at a URL, or None if the store does not know it."""

    def topic_status(url: str) -> Awaitable[TopicStatus | None]:
        """The topic at a URL, with the history of its fetches and the plan of its polls."""

    def record_fetch(
        fetched: FetchResult, ping: Ping | None, if_asked: bool = ...
    ) -> Awaitable[FetchRecord]:
        """Record what a fetch found at the present URL of a topic.

        If the content differs from the last fetch (or this is the first), the topic has
        changed: a fan-out begins if the topic has subscriptions, and ``ping`` is recorded.
        Checks that were requested before the fetch began are done.

        If another node has recorded a fetch that began later, this one is not recorded.

        :param if_asked: whether the ping is recorded only if a check waits that was requested
            because of a ping.

        If some subscription of the topic wants content, the store keeps the content, one copy
        for all of them, while a walk or a pending notification needs it.  If the content does
        not fit, the fan-out begins without it, with ``Fanout.lacks_content`` set.

        When the store has more topics without subscriptions than it may keep, it forgets those
        fetched longest ago.
        """

    def publish(
        fetched: Sequence[FetchResult], ping: Ping, operation: Callable[[Any], T]
    ) -> Awaitable[tuple[T, list[FetchRecord]]]:
        """Record the contents of topics that the broker itself serves.

        As ``record_fetch`` for each, together with what an operation stores: see ``IDatabase``.
        A topic that has ended is revived.

        :param ping: the ping of the first topic.
        :returns: what the operation returned, and the records in the order of the topics.
        """

    def unpublish(
        url: str, reason: str, at: float, operation: Callable[[Any], T]
    ) -> Awaitable[tuple[T, bool]]:
        """End a topic that the broker itself serves: as ``end_topic``, together with what an
        operation stores.
        """

    def record_failure(url: str, at: float, reason: str) -> Awaitable[None]:
        """Record that a fetch of a topic failed.  An unknown topic is ignored."""

    def record_feed(url: str, feed: Mapping[str, Any]) -> Awaitable[None]:
        """Store what a feed says about itself, in place of what it said before."""

    def move_topic(url: str, to: str, at: float, change: Change | None = ...) -> Awaitable[bool]:
        """Move a topic with its subscriptions to another URL.

        The topic is still found by its old URL, and by the URLs before that.  If the store
        knows nothing of the new URL, the digest of the last content moves along.

        :param change: what an administrator did, recorded together with the move; None if no
            administrator moved the topic.
        :returns: False if the topic stays: it or the topic at the other URL has ended, or it
            came from that URL less than a week ago, so that the two redirect to each other; or
            both have so many subscriptions that others would have to wait.
        """

    def polls_due(now: float, limit: int) -> Awaitable[list[TopicStatus]]:
        """The topics whose polls are due, longest due first, with or without subscriptions.

        If there can be several nodes, this process claims them, until it plans their next polls;
        those that another node has claimed are left out.
        """

    def plan_polls(plans: Sequence[PollPlan]) -> Awaitable[None]:
        """Store when topics are polled next.

        The first subscription of a topic that is not polled makes it due at once, so that its
        polls are planned.
        """

    def forget_ping(url: str, at: float) -> Awaitable[None]:
        """Forget when a topic was last pinged, and make its next poll due now if it is polled."""

    def push_content(url: str, content: Content, at: float) -> Awaitable[bool]:
        """Begin a fan-out of pushed content, if the topic has subscriptions.

        Such a fan-out supersedes no other, and no other supersedes it.

        :returns: whether the topic has subscriptions.
        """

    def content(key: int) -> Awaitable[Content | None]:
        """The content with the key that a fan-out names.  None if nothing needs it any more."""

    def newest_content(url: str) -> Awaitable[Content | None]:
        """The newest content of a topic that the store keeps, or None."""

    def end_topic(url: str, reason: str, at: float, change: Change | None = ...) -> Awaitable[bool]:
        """End a topic, known or not: the broker fetches it no more, its checks are dropped,
        and a fan-out begins if it has subscriptions.

        :param change: as for ``move_topic``.
        :returns: False if the topic had ended already, or if it is unknown and the store has
            as many such topics as it may keep.
        """

    def revive_topic(url: str, change: Change | None = ...) -> Awaitable[bool]:
        """Revive an ended topic.  The next fetch is unconditional.

        :param change: as for ``move_topic``.
        :returns: whether the topic had ended.
        """

    def watched_topics(after: int, limit: int) -> Awaitable[tuple[list[str], int | None]]:
        """The URLs of those of some topics that have subscriptions and have not ended.

        :param after: the position at which the last call ended, to go on there; 0 at first.
        :param limit: how many topics are looked at.
        :returns: the URLs, and the position at which this call ended; None after the last topic.
        """

    def topic_summaries(after: int, limit: int) -> Awaitable[list[TopicSummary]]:
        """The topics that have subscriptions and have not ended, in the order of their ids.

        :param after: only topics with a greater id.
        """

    # subscriptions

    def put_subscription(
        subscription: Subscription, known: bytes | None = ..., intent: int | None = ...
    ) -> Awaitable[Subscription]:
        """Store a subscription, in place of one with the same topic and callback.

        The errors of the replaced subscription are cleared, and its pending notification is
        due at once.

        :param known: the digest of the topic's content when the subscriber asked.  If the
            topic has changed or ended since, the store adds a pending notification.  If that
            is to carry content which the store does not have, a check is requested, and the
            validators are forgotten, so that the server sends the content.
        :param intent: the key of the intent that is settled by this, which is removed.
        :raises ClaimLost: that intent was replaced meanwhile, or another node has claimed it.
            Then nothing is stored.
        """

    def remove_subscription(
        topic: str, callback: Callback, intent: int | None = ...
    ) -> Awaitable[bool]:
        """Remove a subscription, and return whether there was one.

        :param intent: as for ``put_subscription``.
        :raises ClaimLost: as for ``put_subscription``.
        """

    def has_subscription(topic: str, callback: Callback) -> Awaitable[bool]:
        """Whether there is a subscription with a topic and a callback."""

    def subscriptions(
        topic: str, after: int, limit: int, until: int | None = ...
    ) -> Awaitable[list[Subscription]]:
        """The subscriptions of a topic with an id above ``after``, in the order of their ids.

        :param until: the last id that is wanted; None for all.
        """

    def subscription_counts(topic: str) -> Awaitable[dict[str, int]]:
        """The number of subscriptions of a topic by protocol.  Of a topic with more than 10,000
        subscriptions, 10,000 are counted.
        """

    def sweep(now: float, idle_topics_before: float, after: int = ...) -> Awaitable[Swept]:
        """Remove the subscriptions that failed too often or have expired, and the topics
        without subscriptions that were last fetched before ``idle_topics_before``.

        This is done in several transactions, and a call removes a few hundred rows of each kind at
        most, so that nothing else waits long.

        :param after: the ``after`` of the last call, to go on after it; 0 at first.
        :returns: what this call has removed; if its ``after`` is not None, call again.
        """

    # statistics

    def add_statistics(
        at: float, counted: Mapping[str, int], measured: Mapping[str, int]
    ) -> Awaitable[None]:
        """Store numbers of the minute and the hour of a time.

        :param counted: how often something happened, by name; added to what is stored.
        :param measured: how many of something there are, by name, replacing what is stored.  The
            names begin with ``number_of_``.
        """

    def measure() -> Awaitable[Mapping[str, int]]:
        """How many topics and subscriptions there are, for ``add_statistics``.

        This reads in several transactions, and takes as long as there are topics and subscriptions.
        """

    def put_busy_topics(hour: int, busiest: Sequence[PingedTopic]) -> Awaitable[None]:
        """Store which topics were pinged most in an hour, in place of what is stored for it.

        :param hour: whole hours since the epoch.
        """

    def prune_statistics(now: float, hours: int) -> Awaitable[None]:
        """Remove the numbers of minutes more than 25 hours ago, and of hours longer ago, in several
        transactions.
        """

    # intents

    def add_intent(intent: Intent, limit: int) -> Awaitable[PendingIntent | None]:
        """Store an intent until it is verified, in place of an earlier one with the same topic
        and callback.

        :returns: None if ``limit`` intents are stored already.
        """

    def postpone_intent(key: int, attempts: int, retry_at: float) -> Awaitable[None]:
        """Record that the verification of an intent failed, and when it is tried again.  An intent
        that was removed or replaced meanwhile is not touched.

        :param attempts: how many times it has failed by now.
        :param retry_at: a time of the wall clock.
        """

    def remove_intent(key: int) -> Awaitable[None]:
        """Remove an intent."""

    def intents(after: int = ..., limit: int = ...) -> Awaitable[list[PendingIntent]]:
        """The intents that are not verified yet, oldest first.

        If there can be several nodes, those that this process has claimed.

        :param after: only intents with a greater key.
        """

    def claim_intents(limit: int) -> Awaitable[list[PendingIntent]]:
        """Claim intents that no node has claimed: the node that accepted them has ended.

        A node can neither postpone nor remove an intent that another has claimed.
        """

    def set_back(seconds: float, now: float) -> Awaitable[None]:
        """Move due times that lie in the future back, after the wall clock was set back.

        This takes several transactions.  If one fails, the times in the other rows stay.

        :param seconds: by how much the clock was set back.
        :param now: what the clock shows since.
        """

    # the database itself

    def check_writable() -> Awaitable[None]:
        """Write and commit something that changes nothing."""

    def sizes() -> Awaitable[Mapping[str, int]]:
        """The bytes that each part of the database takes on the disk, by the name of the part.

        One part is ``main``.
        """

    def waiting_checks() -> Awaitable[Mapping[str, int]]:
        """How many topics wait in the database to be fetched, and no process has them in memory.

        Counted to ten thousand each.

        :returns: ``ready``, which any process may claim; and ``put_off``, which are fetched again
            later, as a fetch has failed.
        """

    # hosts

    def hosts() -> Awaitable[list[HostState]]:
        """The states of the hosts that do not answer."""

    def record_hosts(states: Sequence[HostState]) -> Awaitable[None]:
        """Store the states of hosts.  A host without failures is forgotten."""

    def count_of_host(host: str, limit: int) -> Awaitable[int]:
        """The number of subscriptions with a callback at a host, counted up to ``limit``."""


class IDiskSpace(Interface):
    """Says whether the disk has space for new data."""

    def check() -> None:
        """Return if the disk has space.

        :raises DiskFull: the disk has too little; the text says what to do.
        """
