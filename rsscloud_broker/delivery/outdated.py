"""Subscriptions that changed after they were read from the store.

``Walk`` and ``Retries`` read subscriptions some time before they use them.  A subscriber who
unsubscribed or changed its options in between must not be notified as it was read.
"""

from __future__ import annotations

from rsscloud_broker.model import Callback, Subscription, SubscriptionOptions


class OutdatedSubscriptions:
    """The subscriptions that were stored or removed since a read of the store began."""

    def __init__(self) -> None:
        # By topic and callback; None for a subscription that was removed.
        self._options: dict[tuple[str, Callback], SubscriptionOptions | None] = {}

    def add(self, topic: str, callback: Callback, options: SubscriptionOptions | None) -> None:
        """Note that a subscription was stored with some options, or removed (None)."""
        self._options[topic, callback] = options

    def __contains__(self, subscription: Subscription) -> bool:
        """Whether a subscription may differ from the store since it was read."""
        if not self._options:  # as nearly always, and each notification asks
            return False
        key = subscription.topic, subscription.callback
        return key in self._options and self._options[key] != subscription.options
