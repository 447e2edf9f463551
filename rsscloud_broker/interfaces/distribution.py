"""The part of the store that keeps fan-outs and pending notifications."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence

from zope.interface import Interface

from rsscloud_broker.model import Subscription
from rsscloud_broker.model.work import Delivery, Fanout, Recorded


class IDistributionStore(Interface):
    """The work of notifying subscribers.  ``IStore`` says what holds for all its methods."""

    def fanouts(limit: int) -> Awaitable[list[Fanout]]:
        """Unfinished fan-outs, oldest first, at most one per topic.

        A newer fan-out of a topic supersedes the older ones, except fan-outs of pushed content:
        those supersede none, and none supersedes them.  A fan-out that some node has begun goes on
        all the same.  Those that other nodes have claimed are left out.
        """

    def claim_fanouts(keys: Sequence[int]) -> Awaitable[list[Fanout]]:
        """Claim fan-outs, so that this process alone works on them.

        If other nodes live, this process claims a part of each: the next subscriptions up to
        ``Fanout.last_id``.  The rest is free for others.  It holds a claim until it ends, or until
        the fan-out is done.

        :returns: those that are still there and no other node has claimed, as they are now.
        """

    def subscriptions_of(ids: Sequence[int]) -> Awaitable[list[Subscription]]:
        """The subscriptions with the given ids, in that order.  Removed ones are left out."""

    def record_slice(
        fanout: Fanout,
        cursor: int,
        deliveries: Sequence[Delivery],
        done: bool,
        outstanding: Sequence[int] = ...,
    ) -> Awaitable[Recorded]:
        """Store the new cursor of a fan-out together with the outcomes of deliveries.

        :param done: whether the fan-out is finished.  Then the store removes it, the fan-outs
            that it superseded, and the contents that nothing needs any more.
        :param outstanding: the ids of the subscriptions up to the cursor that have no outcome yet.
            This process has claimed them until it ends.
        :returns: with ``lost`` if the claim of the fan-out was lost; then nothing was recorded.
        """

    def record_deliveries(deliveries: Sequence[Delivery]) -> Awaitable[Recorded]:
        """Store the outcomes of deliveries.

        Each subscription has at most one pending notification.  A delivered notification
        writes nothing, unless it clears earlier errors or a pending notification.  One that is
        given up counts as an error, and marks the subscription for dropping at
        ``drop_after_failures`` consecutive errors.  After either the subscription may get
        another pending notification.  A subscriber that is gone loses its subscription.
        Deliveries of removed subscriptions are ignored.  So are those of a subscription that
        ``claim_due`` returned, if this process has lost the claim since.
        """

    def claim_due(now: float, limit: int, busy: Collection[str]) -> Awaitable[list[Subscription]]:
        """Claim subscriptions whose pending notifications are due, longest due first.

        This process holds a claim until the outcome is recorded, or until it ends.

        :param busy: hosts whose callbacks are left out.
        """

    def hand_back() -> Awaitable[None]:
        """Free the fan-outs that this process has claimed, and topics, polls and intents, so that
        other nodes work on them, as this one stops.

        It keeps the claims of notifications until their outcomes are recorded, or until it ends.
        """

    def next_due() -> Awaitable[float | None]:
        """When the first unclaimed pending notification is due; None if there is none."""

    def make_due(host: str, origin: str, now: float) -> Awaitable[bool]:
        """Make pending notifications for a host due now, since the host answers again: some
        thousands, in several transactions.

        If a subscriber has asked not to be called before a later time, its notification becomes
        due at that time.

        :param origin: the host and the port, as ``host:port``, if only that port is meant;
            empty for all ports of the host.
        :returns: whether there are such notifications.
        """

    def make_due_for_content(url: str, at: float) -> Awaitable[bool]:
        """Make those pending notifications of a topic due that wait for its content, which is
        stored now, and have had no attempt.  They may be a million, in several transactions.

        :param at: when they become due, unless they are due earlier.
        :returns: whether there are such notifications.
        """
