"""What outlives the process: the store, and whether its disk has room.

The core and the sinks call ``IStore``.  ``rsscloud_broker.storage`` implements it for SQLite and
PostgreSQL, and the contract tests say what any other implementation must do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import Any

from zope.interface import Interface

from rsscloud_broker.model import (
    Callback,
    Content,
    FetchResult,
    Intent,
    Ping,
    Subscription,
    Topic,
    TopicStatus,
)
from rsscloud_broker.records import (
    Check,
    Delivery,
    Fanout,
    FetchRecord,
    HostState,
    PingRecord,
    PollPlan,
    Recorded,
    Swept,
    WaitingIntent,
)


class IStore(Interface):
    """Everything that outlives the process.

    Each method is one transaction, on disk before it returns.  All of them
    raise ``Unavailable`` where the database cannot be used right now.
    """

    # pings

    def add_ping(ping: Ping, repeat_window: float) -> Awaitable[PingRecord]:
        """Record a ping, unless the same name, URL and feed were recorded in the
        last ``repeat_window`` seconds; either way ask for a check of each topic
        that it names and that has a subscription.
        """

    def pings(since: float, until: float, before: Ping | None, limit: int) -> Awaitable[list[Ping]]:
        """Records with ``since <= received_at < until``, newest first.

        :param before: the last record of the slice before this one.
        """

    def count_pings() -> Awaitable[int]:
        """The number of records ever made, those pruned since included."""

    def ping_hours(since: float, until: float) -> Awaitable[dict[int, int]]:
        """How many records each hour has: hours since the epoch to number."""

    def prune_pings(before: float) -> Awaitable[int]:
        """Remove the records received before a time; how many there were."""

    # topics

    def topic(url: str) -> Awaitable[Topic | None]:
        """What is known of a topic, by its URL or one that it moved from."""

    def topic_status(url: str) -> Awaitable[TopicStatus | None]:
        """All that is known of a topic, likewise."""

    def record_fetch(reading: FetchResult, ping: Ping | None) -> Awaitable[FetchRecord]:
        """Take in what a fetch found at the URL where a topic is now.

        If the content differs from the last reading (or there was none), the
        topic is changed: a fan-out begins if it has subscriptions, and ``ping``
        is recorded.  Checks asked for before the fetch began are answered.

        The content is kept, once for all, while a walk or a notification that
        waits has need of it, and if some subscription of the topic wants content.  Where
        there is no room for it, the fan-out begins all the same, and says so.

        The store forgets topics without subscriptions, longest read first, when there are
        more of them than it keeps.
        """

    def record_failure(url: str, at: float, reason: str) -> Awaitable[None]:
        """Take in that a topic could not be read, if it is known."""

    def record_feed(url: str, feed: Mapping[str, Any]) -> Awaitable[None]:
        """Keep what a feed says of itself, in place of what it said before."""

    def move_topic(url: str, to: str, at: float) -> Awaitable[bool]:
        """Move a topic with its subscriptions to another URL, by which it is known from
        now on; it is found by the old one too, and by those that it had before that.

        If nothing is known of the other URL, what was last read goes along.  True
        unless it stays: if it came from there less than a week ago, the two send each
        other back and forth.
        """

    def polls_due(now: float, limit: int) -> Awaitable[list[TopicStatus]]:
        """The topics whose polls are due, longest due first, subscribed to or not."""

    def plan_polls(plans: Sequence[PollPlan]) -> Awaitable[None]:
        """Keep when topics are polled next.  The first subscription of a topic that is
        not polled makes it due at once, to be planned.
        """

    def checks_due(limit: int) -> Awaitable[list[Check]]:
        """The topics that wait to be read, longest first."""

    def request_check(url: str, at: float, pinged: bool = ...) -> Awaitable[bool]:
        """Ask for a check of a topic, if it has a subscription.  True if it has.

        :param pinged: somebody said that it changed: then also of a topic without
            subscriptions, known or not; False if it is not known, and as many such topics
            wait to be read as the store keeps.
        """

    def request_content(url: str, at: float) -> Awaitable[bool]:
        """Ask for a check of a topic, as a notification waits for its content, which is not
        kept.  Its validators are forgotten, so that the content will come.  True unless it
        has no subscription, or has ended.
        """

    def drop_check(url: str, asked_until: float) -> Awaitable[None]:
        """Give up reading a topic that was asked for until a time."""

    def push_content(url: str, content: Content, at: float) -> Awaitable[bool]:
        """Begin a fan-out of a content that was pushed, if the topic has
        subscriptions.  True if it has.

        Such a fan-out makes no earlier one needless, and no later one makes it so.
        """

    def content(key: int) -> Awaitable[Content | None]:
        """A content by the key that a fan-out has.  None if it is needed no more."""

    def newest_content(url: str) -> Awaitable[Content | None]:
        """The last content of a topic that is kept."""

    def end_topic(url: str, reason: str, at: float) -> Awaitable[bool]:
        """End a topic, known or not: it is not to be read, checks of it are dropped,
        and a fan-out begins if it has subscriptions.  True unless it had ended.
        """

    def revive_topic(url: str) -> Awaitable[bool]:
        """Take back that a topic has ended.  True if it had.  It is read anew, in full."""

    def watched_topics(after: str, limit: int) -> Awaitable[list[str]]:
        """The URLs above one of topics that have subscriptions and have not ended, in
        their order.
        """

    # subscriptions

    def put_subscription(
        subscription: Subscription, known: bytes | None = ...
    ) -> Awaitable[Subscription]:
        """Store a subscription, replacing the one of that topic and callback;
        its errors are forgotten, and a notification that waits for it is due at once.

        :param known: the digest of the content that was there when it was asked
            for.  If the topic has changed or ended since, a notification waits for it;
            and if that is to carry a content which is not kept, a check is asked for,
            and the validators are forgotten, so that the content will come.
        """

    def remove_subscription(topic: str, callback: Callback) -> Awaitable[bool]:
        """Remove a subscription.  True if there was one."""

    def has_subscription(topic: str, callback: Callback) -> Awaitable[bool]:
        """Whether there is a subscription of that topic and callback."""

    def subscriptions(topic: str, after: int, limit: int) -> Awaitable[list[Subscription]]:
        """The subscriptions of a topic with an id above ``after``, by id."""

    def sweep(now: float, idle_topics_before: float) -> Awaitable[Swept]:
        """Drop the subscriptions that failed too often or have expired, and the topics
        without a subscription that were last read before a time.
        """

    # intents

    def add_intent(intent: Intent, limit: int) -> Awaitable[WaitingIntent | None]:
        """Keep an intent until it is verified, in place of an earlier one of the same
        topic and callback.  None if as many as ``limit`` wait already.
        """

    def postpone_intent(key: int, attempts: int, retry_at: float) -> Awaitable[None]:
        """Record that the verification of an intent failed, and when it is tried again.  An intent
        that was removed or replaced meanwhile is not touched.

        :param attempts: how many times it has failed by now.
        :param retry_at: a time of the wall clock.
        """

    def remove_intent(key: int) -> Awaitable[None]:
        """Forget an intent that was kept."""

    def intents() -> Awaitable[list[WaitingIntent]]:
        """The intents that are kept, oldest first."""

    # fan-out

    def fanouts(limit: int) -> Awaitable[list[Fanout]]:
        """Walks that have not ended, oldest first, one for each topic: the oldest that
        is not needless.  A newer one makes those before it needless, except where
        one of the two carries a content that was pushed.
        """

    def subscriptions_of(ids: Sequence[int]) -> Awaitable[list[Subscription]]:
        """The subscriptions with some ids, in that order; without those that are gone."""

    def record_slice(
        fanout: Fanout,
        cursor: int,
        deliveries: Sequence[Delivery],
        done: bool,
        left: Sequence[int] = ...,
    ) -> Awaitable[Recorded]:
        """Move a walk to a new cursor, together with what came of deliveries.  Once done,
        the walk and those that it made needless are removed, and contents that nothing needs
        any more.

        :param left: the ids of the subscriptions up to the cursor whose outcomes are not known
            yet.  This process works on them, until it ends.
        """

    def record_deliveries(deliveries: Sequence[Delivery]) -> Awaitable[Recorded]:
        """Take in what came of deliveries.

        For each subscription at most one notification waits.  One that was
        delivered writes nothing unless it clears earlier errors or one that
        waits; one that was given up counts as an error, and marks the
        subscription when there are as many in a row as ``marks``; after either,
        another may wait.  One that is gone removes the subscription.  Those of
        subscriptions that are not there any more are ignored.
        """

    def claim_due(now: float, limit: int, busy: Collection[str]) -> Awaitable[list[Subscription]]:
        """Subscriptions whose notification is to be tried by now, longest due first.  This
        process works on them until their outcomes are recorded, or until it ends.

        :param busy: hosts whose callbacks are left out.
        """

    def next_due() -> Awaitable[float | None]:
        """When the first of the waiting notifications is to be tried that nobody works on."""

    def hasten(host: str, origin: str, now: float) -> Awaitable[bool]:
        """Let the notifications for a host be due now, since it answers again; but not before
        the times that their subscribers asked for.  True if there are any.

        :param origin: the host and the port, as ``host:port``, if only that port is meant;
            empty for all of them.
        """

    def set_back(seconds: float, now: float) -> Awaitable[None]:
        """Move what is due at a later time along with a wall clock that was set back.

        :param seconds: by how much it was set back.
        :param now: what it shows since.
        """

    # hosts

    def hosts() -> Awaitable[list[HostState]]:
        """The hosts that do not answer."""

    def record_hosts(states: Sequence[HostState]) -> Awaitable[None]:
        """Keep the states of hosts; one without failures is forgotten."""

    def count_of_host(host: str, limit: int) -> Awaitable[int]:
        """How many subscriptions have a callback at a host, counted up to a limit."""


class IDiskSpace(Interface):
    """Says whether there is room for what is new."""

    def check() -> None:
        """Return, if there is.

        :raises Unavailable: there is too little; its text says what to do.
        """
