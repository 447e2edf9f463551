"""Subscriptions that changed after they were read from the store.

The store reads in a thread, and what it gives may lie in memory for a while before it is used.
Somebody who unsubscribed meanwhile is not to be told any more.
"""

from __future__ import annotations

from rsscloud_broker.model import Subscription, SubscriptionOptions


class OutdatedSubscriptions:
    """Which subscriptions were stored or removed since a reading began."""

    def __init__(self) -> None:
        # By topic and callback URL; None for those that were removed.
        self._options: dict[tuple[str, str], SubscriptionOptions | None] = {}

    def add(self, topic: str, callback_url: str, options: SubscriptionOptions | None) -> None:
        """Note that a subscription was stored with some options, or removed if there are none."""
        self._options[topic, callback_url] = options

    def __contains__(self, subscription: Subscription) -> bool:
        """Whether a subscription, as it was read, may not be as it is in the store.

        Several can have the same callback URL and differ by procedure; when one of them is
        removed, all of them are outdated.
        """
        key = subscription.topic, subscription.callback.url
        return key in self._options and self._options[key] != subscription.options
