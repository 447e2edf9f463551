"""The operations of administrators: what each takes, and what it does.

An operation takes an instance of an ``Asked`` class, calls the verbs of administrators, and returns
a JSON object of ``shapes``.  The API routes and checks requests by ``OPERATIONS``; the document at
``/api``, the commands ``rsscloud-broker admin`` and the forms of the console are made from it too.
So they cannot differ.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from rsscloud_broker.errors import Unadministrable
from rsscloud_broker.interfaces import IAdministration
from rsscloud_broker.model.administration import SubscriptionFilter
from rsscloud_broker.web.admin import account_operations, shapes
from rsscloud_broker.web.admin.api_operation import Operation, OperationForm, operation
from rsscloud_broker.web.admin.asked import (
    Announce,
    BlockPage,
    ById,
    ByIdWithReason,
    ByUrl,
    ByUrlWithReason,
    CloseBreaker,
    End,
    Find,
    LiftBlock,
    Move,
    NewBlock,
    Nothing,
    Page,
    PageByName,
)
from rsscloud_broker.web.admin.shapes import shape_of
from rsscloud_broker.wire.text import clean

#: Announcements begin and end between these times, which every database and program can write.
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9999, 1, 1, tzinfo=UTC)


# --- what they do

_FEED: Final = "http://feeds.example/rss.xml"


@operation("/state")
async def state(verbs: IAdministration, _: str, asked: Nothing, now: float) -> shapes.State:
    """Show how busy the broker is, and its processes."""
    return shapes.state(await verbs.state())


@operation("/subscriptions", topic=_FEED, state="active", limit=10)
async def subscriptions(
    verbs: IAdministration, _: str, asked: Find, now: float
) -> shapes.Subscriptions:
    """Find subscriptions by topic, host, protocol and state."""
    wanted = SubscriptionFilter(asked.topic, asked.host, clean(asked.protocol), asked.state)
    page = await verbs.find_subscriptions(wanted, asked.after, asked.limit)
    items = [shapes.subscription(one, now) for one in page.subscriptions]
    return shapes.Subscriptions(items=items, next=page.after)


@operation("/subscriptions/{id}", id=1)
async def subscription(
    verbs: IAdministration, _: str, asked: ById, now: float
) -> shapes.SubscriptionDetails:
    """Show a subscription with its last failures."""
    return shapes.details(await verbs.subscription(asked.id), now)


@operation(
    "/subscriptions/{id}/redeliver",
    OperationForm(
        "/admin/subscription",
        "Notify now",
        "The notification is due: the attempt follows within two seconds, unless something below "
        "holds it back.",
    ),
    id=1,
    reason="its server is back",
)
async def redeliver(
    verbs: IAdministration, account: str, asked: ByIdWithReason, now: float
) -> shapes.SubscriptionDetails:
    """Notify a subscriber now."""
    return shapes.details(await verbs.redeliver(account, asked.id, asked.reason), now)


@operation(
    "/subscriptions/{id}/mark",
    OperationForm(
        "/admin/subscription",
        "Remove within the hour",
        "The subscription is marked: it is removed at the next full hour.",
    ),
    id=1,
)
async def mark(
    verbs: IAdministration, account: str, asked: ByIdWithReason, now: float
) -> shapes.SubscriptionDetails:
    """Mark a subscription: the next sweep, at the top of the hour, removes it."""
    await verbs.mark(account, asked.id, asked.reason)
    return shapes.details(await verbs.subscription(asked.id), now)


@operation(
    "/subscriptions/{id}/unmark",
    OperationForm(
        "/admin/subscription", "Keep it", "The subscription stays, and its failures are forgotten."
    ),
    id=1,
)
async def unmark(
    verbs: IAdministration, account: str, asked: ByIdWithReason, now: float
) -> shapes.SubscriptionDetails:
    """Take the mark from a subscription, which then stays, and forget its failures."""
    await verbs.unmark(account, asked.id, asked.reason)
    return shapes.details(await verbs.subscription(asked.id), now)


@operation(
    "/subscriptions/{id}/remove",
    OperationForm(
        "/admin/subscription",
        "Remove",
        "The subscription has been removed.",
        "The subscription is removed, and the subscriber is not notified.",
    ),
    id=2,
    reason="a test",
)
async def remove(
    verbs: IAdministration, account: str, asked: ByIdWithReason, _: float
) -> shapes.Done:
    """Remove a subscription; the subscriber is not notified."""
    await verbs.remove_subscription(account, asked.id, asked.reason)
    return shapes.Done()


@operation("/topic", url=_FEED)
async def topic(verbs: IAdministration, _: str, asked: ByUrl, now: float) -> shapes.Topic:
    """Show a topic: its fetches, its polls and what its feed says."""
    return shapes.topic(await verbs.topic(asked.url))


@operation(
    "/topic/read",
    OperationForm("/admin/topic", "Fetch it now", "The topic has been fetched."),
    url=_FEED,
)
async def read(
    verbs: IAdministration, account: str, asked: ByUrlWithReason, _: float
) -> shapes.Reading:
    """Fetch a topic now; its subscribers are notified if it has changed."""
    found = await verbs.read_topic(account, asked.url, asked.reason)
    status = None if found.status is None else shapes.status(found.status)
    return shape_of(shapes.Reading, found, status=status)


@operation(
    "/topic/end",
    OperationForm(
        "/admin/topic",
        "End it",
        "The topic has ended, and its subscribers are notified.",
        "The topic ends: its subscribers are sent the reason and lose their subscriptions.",
    ),
    url="http://feeds.example/old.xml",
    reason="its site is gone",
)
async def end(verbs: IAdministration, account: str, asked: End, _: float) -> shapes.Topic:
    """End a topic: its subscribers are notified, with the reason, and it is fetched no more."""
    await verbs.end_topic(account, asked.url, asked.reason)
    return shapes.topic(await verbs.topic(asked.url))


@operation(
    "/topic/take-down",
    OperationForm(
        "/admin/topic",
        "Take it down",
        "It is taken down: it is deleted, and nobody can read it any more.",
        "What an account has published at this address is deleted, in all its versions. If it is "
        "a topic, its subscribers are sent the reason.",
    ),
    url="http://feeds.example/spam.xml",
    reason="it is spam",
)
async def take_down(verbs: IAdministration, account: str, asked: End, _: float) -> shapes.Done:
    """Delete what somebody has published with an application of this broker."""
    await verbs.take_down(account, asked.url, asked.reason)
    return shapes.Done()


@operation(
    "/topic/revive",
    OperationForm(
        "/admin/topic",
        "Revive it",
        "The topic is revived, and fetched soon if it has subscriptions.",
    ),
    url="http://feeds.example/ended.xml",
)
async def revive(
    verbs: IAdministration, account: str, asked: ByUrlWithReason, _: float
) -> shapes.Topic:
    """Revive an ended topic."""
    await verbs.revive_topic(account, asked.url, asked.reason)
    return shapes.topic(await verbs.topic(asked.url))


@operation(
    "/topic/move",
    OperationForm(
        "/admin/topic",
        "Move it",
        "The topic has moved, with its subscriptions.",
        "The topic moves from the first address to the second, with its subscriptions.",
    ),
    url="http://feeds.example/moving.xml",
    to="http://feeds.example/moved.xml",
)
async def move(verbs: IAdministration, account: str, asked: Move, _: float) -> shapes.Topic:
    """Move a topic with its subscriptions to another URL."""
    await verbs.move_topic(account, asked.url, asked.to, asked.reason)
    return shapes.topic(await verbs.topic(asked.to))


@operation("/hosts", limit=10)
async def hosts(verbs: IAdministration, _: str, asked: PageByName, now: float) -> shapes.Breakers:
    """List the hosts whose circuit breakers are open."""
    found = await verbs.hosts(clean(asked.after), asked.limit)
    following = found[-1].host if len(found) == asked.limit else None
    return shapes.Breakers(items=[shape_of(shapes.Breaker, one) for one in found], next=following)


@operation(
    "/hosts/close-breaker",
    OperationForm(
        "/admin/hosts", "Call it again", "The host is called again: what waits for it is due now."
    ),
    host="reader.example",
)
async def close_breaker(
    verbs: IAdministration, account: str, asked: CloseBreaker, _: float
) -> shapes.Done:
    """Call a host again at once, although it did not answer before."""
    await verbs.close_breaker(account, asked.host, asked.reason)
    return shapes.Done()


@operation("/blocks", kind="host")
async def blocks(verbs: IAdministration, _: str, asked: BlockPage, now: float) -> shapes.Blocks:
    """List the blocks."""
    kind, _space, name = clean(asked.after).partition(" ")
    found = await verbs.blocks(asked.kind, (kind, name), asked.limit)
    last = found[-1] if len(found) == asked.limit else None
    following = None if last is None else f"{last.kind} {last.object}"
    return shapes.Blocks(items=[shape_of(shapes.Block, one) for one in found], next=following)


@operation(
    "/blocks",
    OperationForm("/admin/blocks", "Block", "The block works."),
    kind="host",
    object="spam.example",
    reason="it sends spam",
)
async def block(verbs: IAdministration, account: str, asked: NewBlock, _: float) -> shapes.Block:
    """Block a host, a topic or a source, or replace the reason of a block."""
    return shape_of(
        shapes.Block, await verbs.block(account, asked.kind, asked.object, asked.reason)
    )


@operation(
    "/blocks/lift",
    OperationForm("/admin/blocks", "Lift", "The block is lifted."),
    kind="source",
    object="192.0.2.0/24",
)
async def unblock(verbs: IAdministration, account: str, asked: LiftBlock, _: float) -> shapes.Done:
    """Lift a block."""
    await verbs.unblock(account, asked.kind, asked.object, asked.reason)
    return shapes.Done()


@operation("/announcements")
async def announcements(
    verbs: IAdministration, _: str, asked: Page, now: float
) -> shapes.Announcements:
    """List the announcements."""
    found = await verbs.announcements(asked.after, asked.limit)
    following = found[-1].id if len(found) == asked.limit else None
    return shapes.Announcements(
        items=[shape_of(shapes.Announcement, one) for one in found], next=following
    )


@operation(
    "/announcements",
    OperationForm("/admin/announcements", "Announce", "The announcement is stored."),
    text="The broker moves on Sunday.",
    until="2099-11-22T10:30:00Z",
)
async def announce(
    verbs: IAdministration, account: str, asked: Announce, _: float
) -> shapes.Announcement:
    """Show a text on all pages."""
    times = (seconds_of(asked.since), seconds_of(asked.until))
    return shape_of(shapes.Announcement, await verbs.announce(account, asked.text, *times))


@operation(
    "/announcements/{id}/withdraw",
    OperationForm("/admin/announcements", "Withdraw", "The announcement is withdrawn."),
    id=1,
)
async def withdraw(
    verbs: IAdministration, account: str, asked: ByIdWithReason, _: float
) -> shapes.Done:
    """Remove an announcement."""
    await verbs.withdraw(account, asked.id, asked.reason)
    return shapes.Done()


@operation("/changes", limit=10)
async def changes(verbs: IAdministration, _: str, asked: Page, now: float) -> shapes.Changes:
    """List what administrators did, the newest first."""
    found = await verbs.changes(asked.after or None, asked.limit)
    following = found[-1].id if len(found) == asked.limit else None
    return shapes.Changes(items=[shape_of(shapes.Change, one) for one in found], next=following)


def seconds_of(when: datetime | None) -> float | None:
    """Seconds since the epoch for a time; one without a time zone is in UTC.

    :raises Unadministrable: it is too far in the past or in the future.
    """
    if when is None:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    if not _EPOCH <= when <= _LAST:
        raise Unadministrable("a time must be in the years 1970 to 9998")
    return when.timestamp()


#: All operations, in the order of this module and ``account_operations``.
OPERATIONS: Final = tuple(
    each
    for module in (globals().copy(), vars(account_operations))
    for each in module.values()
    if isinstance(each, Operation)
)
