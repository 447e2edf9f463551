"""The interface of administration: what pages, the API and commands of administrators call.

``IAdministration`` has one method for each thing that an administrator may see or do.  A method
that changes something takes the name of the account first, and the reason last.  It returns when
the change is on disk and works in this process; other processes on the same database follow within
seconds.  Then ``events.Administered`` is published, once in all processes, so that the event log
has an entry under the name of the account.

Callers check who may call: a method itself asks nobody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from zope.interface import Attribute, Interface

from rsscloud_broker.model.administration import (
    AccountSummary,
    Announcement,
    Block,
    BrokerState,
    Change,
    Invitation,
    PublishedWork,
    SubscriptionDetails,
    SubscriptionFilter,
    SubscriptionPage,
    TopicDetails,
    TopicReading,
)
from rsscloud_broker.model.work import HostState


class IAccountAdministration(Interface):
    """The verbs of administrators about accounts, each given the name of the account that it
    concerns.

    They raise what those of ``IAdministration`` raise, also for what would leave nobody as an
    administrator.
    """

    def accounts(after: str = ..., limit: int = ...) -> Awaitable[Sequence[AccountSummary]]:
        """The accounts, by name.

        :param after: the name of the last one of the page before; empty at first.
        """

    def account(name: str) -> Awaitable[AccountSummary]:
        """The account with a name."""

    def invite(account: str, name: str, is_admin: bool, reason: str = ...) -> Awaitable[Invitation]:
        """Make an account without a password, and an invitation to it, which works for a week."""

    def reset(account: str, name: str, reason: str = ...) -> Awaitable[Invitation]:
        """Make an invitation to an account that is there already.

        Its password is forgotten, it is signed out everywhere, and its API tokens are removed.
        """

    def disable(account: str, name: str, reason: str) -> Awaitable[None]:
        """Keep everybody out of an account.  What it has published stays.

        :param reason: why, for its owner; not empty.
        """

    def enable(account: str, name: str, reason: str = ...) -> Awaitable[None]:
        """Let the owner of a disabled account in again."""

    def set_role(account: str, name: str, is_admin: bool, reason: str = ...) -> Awaitable[None]:
        """Make an account an administrator's, or no administrator's."""

    def set_limit(
        account: str, name: str, max_bytes: int | None, reason: str = ...
    ) -> Awaitable[None]:
        """Set how many bytes each application may store for an account.

        :param max_bytes: None for what the options of the applications say.
        """

    def remove(account: str, name: str, reason: str = ...) -> Awaitable[None]:
        """Remove an account; applications delete what it has published, within seconds."""


class IAdministration(Interface):
    """The verbs of administrators.

    Every method raises ``Unavailable`` if the store cannot be used now, and ``Unadministrable``
    if its arguments make no sense, with a sentence for people.  ``Unadministrable.missing`` says
    that what it concerns does not exist.
    """

    accounts = Attribute("The verbs about accounts: ``IAccountAdministration``.")

    # subscriptions

    def find_subscriptions(
        wanted: SubscriptionFilter, after: int = ..., limit: int = ...
    ) -> Awaitable[SubscriptionPage]:
        """The subscriptions that pass a filter, in the order of their ids.

        One call looks through a limited number of subscriptions, so it is quick however many
        there are; see ``SubscriptionPage``.

        :param after: ``SubscriptionPage.after`` of the page before; 0 at first.
        :param limit: the most subscriptions to return, from 1 to 500.
        """

    def subscription(key: int) -> Awaitable[SubscriptionDetails]:
        """One subscription, with its pending notification and its last failures.

        :param key: ``Subscription.id``.
        """

    def redeliver(account: str, key: int, reason: str = ...) -> Awaitable[SubscriptionDetails]:
        """Notify a subscriber now.

        Its pending notification becomes due at once, with all its attempts before it; without
        one, a new notification with the newest content is made.  The attempt follows within two
        seconds, unless a process works on the notification already, the breaker of the host is
        open, or the host is blocked: see what is returned.

        :returns: the subscription as it is then.
        """

    def remove_subscription(account: str, key: int, reason: str = ...) -> Awaitable[None]:
        """Remove a subscription.  The subscriber is not notified."""

    def mark(account: str, key: int, reason: str = ...) -> Awaitable[None]:
        """Mark a subscription for dropping: the next sweep, at the top of the hour, removes it."""

    def unmark(account: str, key: int, reason: str = ...) -> Awaitable[None]:
        """Take the mark for dropping from a subscription, and forget its failures in a row."""

    # topics

    def topic(url: str) -> Awaitable[TopicDetails]:
        """One topic.

        :param url: its URL in any spelling, or an earlier URL if it has moved.
        """

    def read_topic(account: str, url: str, reason: str = ...) -> Awaitable[TopicReading]:
        """Fetch a topic now, and wait for the result.

        No limit on pings applies.  A failed fetch is no error: see ``TopicReading.problem``.
        """

    def revive_topic(account: str, url: str, reason: str = ...) -> Awaitable[None]:
        """Revive an ended topic, and have it fetched soon if it has subscriptions."""

    def end_topic(account: str, url: str, reason: str) -> Awaitable[None]:
        """End a topic: the broker notifies its subscribers of the reason, and fetches it no more.

        :param reason: why, for the subscribers; not empty.
        """

    def is_published(url: str) -> bool:
        """Whether an application of this broker may have published something at a URL."""

    def published(name: str, limit: int = ...) -> Awaitable[Sequence[PublishedWork]]:
        """What an account publishes with the applications of this broker, of each application the
        newest first.

        :param name: the name of the account.
        :param limit: the most works to return of each application.
        """

    def taken_down(name: str, since: float) -> Awaitable[Sequence[Change]]:
        """What was taken down of an account, newest first, each with the reason.

        :param name: the name of the account.
        :param since: when it was made, since another one may have had the name before.
        """

    def take_down(account: str, url: str, reason: str) -> Awaitable[None]:
        """Delete what an application of this broker has published at a URL; nobody can undo that.

        If it is a topic, the topic ends.

        :param reason: why, for the subscribers; not empty.
        """

    def move_topic(account: str, url: str, to: str, reason: str = ...) -> Awaitable[None]:
        """Move a topic with its subscriptions to another URL, at which it is fetched soon."""

    # hosts

    def hosts(after: str = ..., limit: int = ...) -> Awaitable[Sequence[HostState]]:
        """The hosts, and ports of hosts, whose circuit breakers are open, by name.

        The broker stores the state of a breaker about a second after it opens.

        :param after: the name of the last one of the page before; empty at first.
        """

    def close_breaker(account: str, host: str, reason: str = ...) -> Awaitable[None]:
        """Close the circuit breakers of a host and of all its ports.

        The notifications that wait for the host are due at once.

        :param host: the name of the host, with or without a port.
        """

    # blocks

    def blocks(
        kind: str = ..., after: tuple[str, str] = ..., limit: int = ...
    ) -> Awaitable[Sequence[Block]]:
        """The blocks, by kind and object.

        :param kind: one of ``BLOCK_KINDS``, or empty for all.
        :param after: kind and object of the last one of the page before; empty at first.
        """

    def block(account: str, kind: str, what: str, reason: str) -> Awaitable[Block]:
        """Block a host, a topic or a source, or replace the reason of a block.

        :param kind, what: see ``Block``; any spelling of a URL, a host or a network.
        :param reason: why, for those who are refused; not empty.
        """

    def unblock(account: str, kind: str, what: str, reason: str = ...) -> Awaitable[None]:
        """Lift a block.  Notifications that waited for a host are due at once."""

    # the broker

    def state() -> Awaitable[BrokerState]:
        """How busy this process is, and which processes work on the database."""

    def announcements(after: int = ..., limit: int = ...) -> Awaitable[Sequence[Announcement]]:
        """The announcements that are shown, will be or were, by id."""

    def announce(
        account: str, text: str, since: float | None = ..., until: float | None = ...
    ) -> Awaitable[Announcement]:
        """Show a text on all pages.

        :param text: plain text of at most 1000 characters.
        :param since: when to begin; None for now.
        :param until: when to end; None for no end.
        """

    def withdraw(account: str, key: int, reason: str = ...) -> Awaitable[None]:
        """Remove an announcement.

        :param key: ``Announcement.id``.
        """

    def changes(before: int | None = ..., limit: int = ...) -> Awaitable[Sequence[Change]]:
        """What administrators did, newest first.  The last thousand changes are kept.

        :param before: ``Change.id`` of the last one of the page before; None at first.
        """
