"""The operations of administrators: what each takes, and what it does.

An operation takes what ``asked`` describes, calls the verbs of administrators, and returns a JSON
object of ``shapes``, or nothing if there is nothing to say but that it is done.

The API routes and checks requests by ``OPERATIONS``; the document at ``/api``, the commands
``rsscloud-broker admin`` and the forms of the console are made from it too.  So they cannot differ.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Final

from rsscloud_broker.errors import Unadministrable
from rsscloud_broker.model.administration import SubscriptionFilter
from rsscloud_broker.web.admin import account_operations, asked, shapes
from rsscloud_broker.web.admin.api_operation import (
    Administrator,
    Operation,
    OperationForm,
    operation,
)
from rsscloud_broker.web.admin.shapes import shape_of
from rsscloud_broker.wire.text import clean

#: Announcements begin and end between these times, which every database and program can write.
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9999, 1, 1, tzinfo=UTC)


_on_subscription = partial(OperationForm, "/admin/subscription")
_on_topic = partial(OperationForm, "/admin/topic")

_FEED: Final = "http://feeds.example/rss.xml"


@operation("/state")
async def state(by: Administrator) -> shapes.State:
    """Show how busy the broker is, and its processes."""
    return shapes.state(await by.verbs.state())


@operation("/subscriptions", topic=_FEED, state="active", limit=10)
async def subscriptions(
    by: Administrator,
    topic: asked.Topic = "",
    host: asked.Host = "",
    protocol: asked.Protocol = "",
    state: asked.State = "",
    after: asked.After = 0,
    limit: asked.Limit = 50,
) -> shapes.Subscriptions:
    """Find subscriptions by topic, host, protocol and state."""
    wanted = SubscriptionFilter(topic, host, clean(protocol), state)
    page = await by.verbs.find_subscriptions(wanted, after, limit)
    items = [shapes.subscription(one, by.now) for one in page.subscriptions]
    return shapes.Subscriptions(items=items, next=page.after)


@operation("/subscriptions/{id}", id=1)
async def subscription(by: Administrator, id_: asked.Id) -> shapes.SubscriptionDetails:
    """Show a subscription with its last failures."""
    return shapes.details(await by.verbs.subscription(id_), by.now)


@operation(
    "/subscriptions/{id}/redeliver",
    _on_subscription(
        "Notify now",
        "The notification is due: the attempt follows within two seconds, unless something below "
        "holds it back.",
    ),
    id=1,
    reason="its server is back",
)
async def redeliver(
    by: Administrator, id_: asked.Id, reason: asked.Why = ""
) -> shapes.SubscriptionDetails:
    """Notify a subscriber now."""
    return shapes.details(await by.verbs.redeliver(by.name, id_, reason), by.now)


@operation(
    "/subscriptions/{id}/mark",
    _on_subscription(
        "Remove within the hour", "The subscription is marked: it is removed at the next full hour."
    ),
    id=1,
)
async def mark(
    by: Administrator, id_: asked.Id, reason: asked.Why = ""
) -> shapes.SubscriptionDetails:
    """Mark a subscription: the next sweep, at the top of the hour, removes it."""
    await by.verbs.mark(by.name, id_, reason)
    return shapes.details(await by.verbs.subscription(id_), by.now)


@operation(
    "/subscriptions/{id}/unmark",
    _on_subscription("Keep it", "The subscription stays, and its failures are forgotten."),
    id=1,
)
async def unmark(
    by: Administrator, id_: asked.Id, reason: asked.Why = ""
) -> shapes.SubscriptionDetails:
    """Take the mark from a subscription, which then stays, and forget its failures."""
    await by.verbs.unmark(by.name, id_, reason)
    return shapes.details(await by.verbs.subscription(id_), by.now)


@operation(
    "/subscriptions/{id}/remove",
    _on_subscription(
        "Remove",
        "The subscription has been removed.",
        "The subscription is removed, and the subscriber is not notified.",
    ),
    id=2,
    reason="a test",
)
async def remove(by: Administrator, id_: asked.Id, reason: asked.Why = "") -> None:
    """Remove a subscription; the subscriber is not notified."""
    await by.verbs.remove_subscription(by.name, id_, reason)


@operation("/topic", url=_FEED)
async def topic(by: Administrator, url: asked.Url) -> shapes.Topic:
    """Show a topic: its fetches, its polls and what its feed says."""
    return shapes.topic(await by.verbs.topic(url))


@operation(
    "/topic/read",
    _on_topic("Fetch it now", "The topic has been fetched."),
    url=_FEED,
)
async def read(by: Administrator, url: asked.Url, reason: asked.Why = "") -> shapes.Reading:
    """Fetch a topic now; its subscribers are notified if it has changed."""
    found = await by.verbs.read_topic(by.name, url, reason)
    status = None if found.status is None else shapes.status(found.status)
    return shape_of(shapes.Reading, found, status=status)


@operation(
    "/topic/end",
    _on_topic(
        "End it",
        "The topic has ended, and its subscribers are notified.",
        "The topic ends: its subscribers are sent the reason and lose their subscriptions.",
    ),
    url="http://feeds.example/old.xml",
    reason="its site is gone",
)
async def end(by: Administrator, url: asked.Url, reason: asked.PublicReason) -> shapes.Topic:
    """End a topic: its subscribers are notified, with the reason, and it is fetched no more."""
    await by.verbs.end_topic(by.name, url, reason)
    return shapes.topic(await by.verbs.topic(url))


@operation(
    "/topic/take-down",
    _on_topic(
        "Take it down",
        "It is taken down: it is deleted, and nobody can read it any more.",
        "What an account has published at this address is deleted, in all its versions. If it is "
        "a topic, its subscribers are sent the reason.",
    ),
    url="http://feeds.example/spam.xml",
    reason="it is spam",
)
async def take_down(by: Administrator, url: asked.Url, reason: asked.PublicReason) -> None:
    """Delete what somebody has published with an application of this broker."""
    await by.verbs.take_down(by.name, url, reason)


@operation(
    "/topic/revive",
    _on_topic("Revive it", "The topic is revived, and fetched soon if it has subscriptions."),
    url="http://feeds.example/ended.xml",
)
async def revive(by: Administrator, url: asked.Url, reason: asked.Why = "") -> shapes.Topic:
    """Revive an ended topic."""
    await by.verbs.revive_topic(by.name, url, reason)
    return shapes.topic(await by.verbs.topic(url))


@operation(
    "/topic/move",
    _on_topic(
        "Move it",
        "The topic has moved, with its subscriptions.",
        "The topic moves from the first address to the second, with its subscriptions.",
    ),
    url="http://feeds.example/moving.xml",
    to="http://feeds.example/moved.xml",
)
async def move(
    by: Administrator, url: asked.Url, to: asked.NewUrl, reason: asked.Why = ""
) -> shapes.Topic:
    """Move a topic with its subscriptions to another URL."""
    await by.verbs.move_topic(by.name, url, to, reason)
    return shapes.topic(await by.verbs.topic(to))


@operation("/hosts", limit=10)
async def hosts(
    by: Administrator, after: asked.AfterText = "", limit: asked.Limit = 50
) -> shapes.Breakers:
    """List the hosts whose circuit breakers are open."""
    found = await by.verbs.hosts(clean(after), limit)
    following = found[-1].host if len(found) == limit else None
    return shapes.Breakers(items=[shape_of(shapes.Breaker, one) for one in found], next=following)


@operation(
    "/hosts/close-breaker",
    OperationForm(
        "/admin/hosts", "Call it again", "The host is called again: what waits for it is due now."
    ),
    host="reader.example",
)
async def close_breaker(by: Administrator, host: asked.HostName, reason: asked.Why = "") -> None:
    """Call a host again at once, although it did not answer before."""
    await by.verbs.close_breaker(by.name, host, reason)


@operation("/blocks", kind="host")
async def blocks(
    by: Administrator,
    kind: asked.OnlyKind = "",
    after: asked.AfterText = "",
    limit: asked.Limit = 50,
) -> shapes.Blocks:
    """List the blocks."""
    kind_after, _, name = clean(after).partition(" ")
    found = await by.verbs.blocks(kind, (kind_after, name), limit)
    last = found[-1] if len(found) == limit else None
    following = None if last is None else f"{last.kind} {last.object}"
    return shapes.Blocks(items=[shape_of(shapes.Block, one) for one in found], next=following)


@operation(
    "/blocks",
    OperationForm("/admin/blocks", "Block", "The block works."),
    kind="host",
    object="spam.example",
    reason="it sends spam",
)
async def block(
    by: Administrator, kind: asked.Kind, object_: asked.Object, reason: asked.PublicReason
) -> shapes.Block:
    """Block a host, a topic or a source, or replace the reason of a block."""
    return shape_of(shapes.Block, await by.verbs.block(by.name, kind, object_, reason))


@operation(
    "/blocks/lift",
    OperationForm("/admin/blocks", "Lift", "The block is lifted."),
    kind="source",
    object="192.0.2.0/24",
)
async def unblock(
    by: Administrator, kind: asked.Kind, object_: asked.Object, reason: asked.Why = ""
) -> None:
    """Lift a block."""
    await by.verbs.unblock(by.name, kind, object_, reason)


@operation("/announcements")
async def announcements(
    by: Administrator, after: asked.After = 0, limit: asked.Limit = 50
) -> shapes.Announcements:
    """List the announcements."""
    found = await by.verbs.announcements(after, limit)
    following = found[-1].id if len(found) == limit else None
    items = [shape_of(shapes.Announcement, one) for one in found]
    return shapes.Announcements(items=items, next=following)


@operation(
    "/announcements",
    OperationForm("/admin/announcements", "Announce", "The announcement is stored."),
    text="The broker moves on Sunday.",
    until="2099-11-22T10:30:00Z",
)
async def announce(
    by: Administrator, text: asked.Text, since: asked.Since = None, until: asked.Until = None
) -> shapes.Announcement:
    """Show a text on all pages."""
    times = (seconds_of(since), seconds_of(until))
    return shape_of(shapes.Announcement, await by.verbs.announce(by.name, text, *times))


@operation(
    "/announcements/{id}/withdraw",
    OperationForm("/admin/announcements", "Withdraw", "The announcement is withdrawn."),
    id=1,
)
async def withdraw(by: Administrator, id_: asked.Id, reason: asked.Why = "") -> None:
    """Remove an announcement."""
    await by.verbs.withdraw(by.name, id_, reason)


@operation("/changes", limit=10)
async def changes(
    by: Administrator, after: asked.After = 0, limit: asked.Limit = 50
) -> shapes.Changes:
    """List what administrators did, the newest first."""
    found = await by.verbs.changes(after or None, limit)
    following = found[-1].id if len(found) == limit else None
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
