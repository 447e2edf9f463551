"""The interface of checks: the fetches of topics that the store knows to be wanted."""

from __future__ import annotations

from collections.abc import Awaitable, Collection

from zope.interface import Interface

from rsscloud_broker.model.work import CheckState, ClaimedChecks, Told, WantedChecks


class ICheckStore(Interface):
    """Stores which topics wait to be fetched, and which node fetches them.

    Every method raises ``Unavailable`` if the database cannot be used now.
    """

    def claim_checks(wanted: WantedChecks) -> Awaitable[ClaimedChecks]:
        """Claim topics that wait to be fetched and that no node has claimed."""

    def release_checks(held: Collection[str]) -> Awaitable[int]:
        """Release the claims of this process, so that any node may claim these checks.

        :param held: the URLs of topics whose checks it still handles.
        :returns: how many were released.
        """

    def join_check(url: str, at: float, pinged: bool) -> Awaitable[int | None]:
        """Request a fetch of a topic from another node that has claimed its check.

        When that node has fetched the topic, or has failed to, it sends the hint ``read``.

        :param at: when it was requested.
        :param pinged: whether somebody said that the topic changed.
        :returns: the key in the hint.  None if no other node has claimed the check, or if the
            topic could not be fetched the last time; then this process may fetch it.
        """

    def put_off_check(url: str, failures: int, until: float) -> Awaitable[None]:
        """Release a claimed check whose fetch has failed, and let it wait until a time.

        If somebody requests it again meanwhile, it waits a second at most.

        :param failures: how many attempts have failed.
        """

    def request_check(
        url: str,
        at: float,
        pinged: bool = ...,
        source: str = ...,
        claim: bool = ...,
        told: Told = ...,
    ) -> Awaitable[CheckState]:
        """Request a check of a topic that has a subscription.

        :param pinged: whether somebody said that the topic changed.  Then the check is
            requested for a topic without subscriptions too, even an unknown one.
        :param source: who requests it; see ``sources.bucket_of``.
        :param claim: whether this process claims the check, if it is free and not put off.
        :param told: why the topic may have changed.
        :returns: whether the check was requested, and who handles it.  It was not if the topic
            has no subscription and was not pinged, if it has ended, or if it is unknown and as
            many such topics as the store keeps wait to be fetched.
        """

    def request_content(url: str, at: float) -> Awaitable[bool]:
        """Request a check of a topic whose content a pending notification needs and the store
        does not have.  The store forgets the validators, so that the server sends the content.

        :returns: False if the topic has no subscription or has ended.
        """

    def drop_check(url: str, asked_until: float) -> Awaitable[None]:
        """Withdraw the check of a topic, unless it was requested again after a time.

        A check that stays is released, if this process has claimed it.
        """
