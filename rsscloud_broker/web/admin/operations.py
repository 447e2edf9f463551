"""The operations of the administration API: what each takes, and what it does.

An operation takes an instance of an ``Asked`` class, calls the verbs of administrators, and returns
a JSON object of ``shapes``.  The API routes and checks requests by ``OPERATIONS``, ``openapi``
makes the document at ``/api`` from it, and the commands ``rsscloud-broker admin`` are made from it
too.  So they cannot differ.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import msgspec

from rsscloud_broker.errors import Unadministrable
from rsscloud_broker.interfaces import IAdministration
from rsscloud_broker.model.administration import SubscriptionFilter
from rsscloud_broker.web.admin import shapes
from rsscloud_broker.web.admin.api_operation import Asked, Operation, operation
from rsscloud_broker.wire.text import clean

#: The largest id that the databases can store.
MAX_ID: Final = 2**63 - 1

#: Announcements begin and end between these times, which every database and program can write.
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9999, 1, 1, tzinfo=UTC)


def _says(description: str, **more: Any) -> msgspec.Meta:
    return msgspec.Meta(description=description, **more)


_Id = Annotated[int, _says("The id.", ge=0, le=MAX_ID)]
_After = Annotated[int, _says("The `next` of the page before.", ge=0, le=MAX_ID)]
_AfterText = Annotated[str, _says("The `next` of the page before.", max_length=4096)]
_Limit = Annotated[int, _says("The most items of the page.", ge=1, le=500)]
_Why = Annotated[str, _says("Why, for the event log.", max_length=500)]
_Told = Annotated[str, _says("Why, for those who are told.", min_length=1, max_length=500)]
_Url = Annotated[
    str, _says("The URL of the topic, also an earlier one.", min_length=1, max_length=2048)
]
_Kind = Annotated[Literal["host", "topic", "source"], _says("What is blocked.")]
_Object = Annotated[
    str,
    _says(
        "A host such as `spam.example` or `*.spam.example`, the URL of a topic or the beginning "
        "of URLs with a `*` at its end, or an address or a network such as `192.0.2.0/24`.",
        min_length=1,
        max_length=2048,
    ),
]


class Nothing(Asked, frozen=True):
    """Nothing."""


class ById(Asked, frozen=True):
    """An id."""

    id: _Id


class ByIdWithReason(Asked, frozen=True):
    """An id, and why."""

    id: _Id
    reason: _Why = ""


class Find(Asked, frozen=True):
    """A filter of subscriptions, and which page."""

    topic: Annotated[str, _says("The URL of a topic.", max_length=2048)] = ""
    host: Annotated[str, _says("The host of the callbacks.", max_length=2048)] = ""
    protocol: Annotated[str, _says("A protocol, such as `websub`.", max_length=64)] = ""
    state: Annotated[
        Literal["", "active", "failing", "dropping", "waiting", "expired"], _says("A state.")
    ] = ""
    after: _After = 0
    limit: _Limit = 50


class ByUrl(Asked, frozen=True):
    """A topic."""

    url: _Url


class ByUrlWithReason(Asked, frozen=True):
    """A topic, and why."""

    url: _Url
    reason: _Why = ""


class End(Asked, frozen=True):
    """A topic, and what its subscribers are told."""

    url: _Url
    reason: _Told


class Move(Asked, frozen=True):
    """A topic, and where it moves to."""

    url: _Url
    to: Annotated[str, _says("Its new URL.", min_length=1, max_length=2048)]
    reason: _Why = ""


class Page(Asked, frozen=True):
    """Which page of a list by id."""

    after: _After = 0
    limit: _Limit = 50


class HostPage(Asked, frozen=True):
    """Which page of the breakers."""

    after: _AfterText = ""
    limit: _Limit = 50


class CloseBreaker(Asked, frozen=True):
    """A host, and why."""

    host: Annotated[str, _says("Its name, with or without a port.", min_length=1, max_length=2048)]
    reason: _Why = ""


class BlockPage(Asked, frozen=True):
    """Which blocks, and which page."""

    kind: Annotated[Literal["", "host", "topic", "source"], _says("Only blocks of a kind.")] = ""
    after: _AfterText = ""
    limit: _Limit = 50


class Shut(Asked, frozen=True):
    """What to block, and why."""

    kind: _Kind
    object: _Object
    reason: _Told


class Open(Asked, frozen=True):
    """Which block to lift, and why."""

    kind: _Kind
    object: _Object
    reason: _Why = ""


class Announce(Asked, frozen=True):
    """A text, and when it is shown."""

    text: Annotated[str, _says("Plain text.", min_length=1, max_length=1000)]
    since: Annotated[
        datetime | None, _says("When to begin, such as `2026-11-22T10:30:00Z`; null for now.")
    ] = None
    until: Annotated[datetime | None, _says("When to end; null for no end.")] = None


# --- what they do

_FEED: Final = "http://feeds.example/rss.xml"


@operation("GET", "/state")
async def state(verbs: IAdministration, _: str, asked: Nothing, now: float) -> shapes.State:
    """Show how busy the broker is, and its processes."""
    return shapes.state(await verbs.state())


@operation("GET", "/subscriptions", topic=_FEED, state="active", limit=10)
async def subscriptions(
    verbs: IAdministration, _: str, asked: Find, now: float
) -> shapes.Subscriptions:
    """Find subscriptions by topic, host, protocol and state."""
    wanted = SubscriptionFilter(asked.topic, asked.host, clean(asked.protocol), asked.state)
    page = await verbs.find_subscriptions(wanted, asked.after, asked.limit)
    items = [shapes.subscription(one, now) for one in page.subscriptions]
    return shapes.Subscriptions(items=items, next=page.after)


@operation("GET", "/subscriptions/{id}", id=1)
async def subscription(
    verbs: IAdministration, _: str, asked: ById, now: float
) -> shapes.SubscriptionDetails:
    """Show a subscription with its last failures."""
    return shapes.details(await verbs.subscription(asked.id), now)


@operation("POST", "/subscriptions/{id}/redeliver", id=1, reason="its server is back")
async def redeliver(
    verbs: IAdministration, account: str, asked: ByIdWithReason, now: float
) -> shapes.SubscriptionDetails:
    """Notify a subscriber now."""
    return shapes.details(await verbs.redeliver(account, asked.id, asked.reason), now)


@operation("POST", "/subscriptions/{id}/mark", id=1)
async def mark(
    verbs: IAdministration, account: str, asked: ByIdWithReason, now: float
) -> shapes.SubscriptionDetails:
    """Mark a subscription: the next sweep, at the top of the hour, drops it."""
    await verbs.mark(account, asked.id, asked.reason)
    return shapes.details(await verbs.subscription(asked.id), now)


@operation("POST", "/subscriptions/{id}/unmark", id=1)
async def unmark(
    verbs: IAdministration, account: str, asked: ByIdWithReason, now: float
) -> shapes.SubscriptionDetails:
    """Take the mark for dropping from a subscription, and forget its failures."""
    await verbs.unmark(account, asked.id, asked.reason)
    return shapes.details(await verbs.subscription(asked.id), now)


@operation("POST", "/subscriptions/{id}/remove", final=True, id=2, reason="a test")
async def remove(
    verbs: IAdministration, account: str, asked: ByIdWithReason, _: float
) -> shapes.Done:
    """Remove a subscription; the subscriber is not told."""
    await verbs.remove_subscription(account, asked.id, asked.reason)
    return shapes.Done()


@operation("GET", "/topic", url=_FEED)
async def topic(verbs: IAdministration, _: str, asked: ByUrl, now: float) -> shapes.Topic:
    """Show a topic: its fetches, its polls and what its feed says."""
    return shapes.topic(await verbs.topic(asked.url))


@operation("POST", "/topic/read", url=_FEED)
async def read(
    verbs: IAdministration, account: str, asked: ByUrlWithReason, _: float
) -> shapes.Reading:
    """Fetch a topic now; its subscribers are notified if it has changed."""
    found = await verbs.read_topic(account, asked.url, asked.reason)
    status = None if found.status is None else shapes.status(found.status)
    return shapes.Reading(changed=found.changed, problem=found.problem, status=status)


@operation(
    "POST", "/topic/end", final=True, url="http://feeds.example/old.xml", reason="its site is gone"
)
async def end(verbs: IAdministration, account: str, asked: End, _: float) -> shapes.Topic:
    """End a topic: its subscribers are told why, and it is fetched no more."""
    await verbs.end_topic(account, asked.url, asked.reason)
    return shapes.topic(await verbs.topic(asked.url))


@operation(
    "POST", "/topic/take-down", final=True, url="http://feeds.example/spam.xml", reason="it is spam"
)
async def take_down(verbs: IAdministration, account: str, asked: End, _: float) -> shapes.Done:
    """Delete what somebody has published with an application of this broker."""
    await verbs.take_down(account, asked.url, asked.reason)
    return shapes.Done()


@operation("POST", "/topic/revive", url="http://feeds.example/ended.xml")
async def revive(
    verbs: IAdministration, account: str, asked: ByUrlWithReason, _: float
) -> shapes.Topic:
    """Revive an ended topic."""
    await verbs.revive_topic(account, asked.url, asked.reason)
    return shapes.topic(await verbs.topic(asked.url))


@operation(
    "POST",
    "/topic/move",
    final=True,
    url="http://feeds.example/moving.xml",
    to="http://feeds.example/moved.xml",
)
async def move(verbs: IAdministration, account: str, asked: Move, _: float) -> shapes.Topic:
    """Move a topic with its subscriptions to another URL."""
    await verbs.move_topic(account, asked.url, asked.to, asked.reason)
    return shapes.topic(await verbs.topic(asked.to))


@operation("GET", "/hosts", limit=10)
async def hosts(verbs: IAdministration, _: str, asked: HostPage, now: float) -> shapes.Breakers:
    """List the hosts whose circuit breakers are open."""
    found = await verbs.hosts(clean(asked.after), asked.limit)
    following = found[-1].host if len(found) == asked.limit else None
    return shapes.Breakers(items=[shapes.breaker(one) for one in found], next=following)


@operation("POST", "/hosts/close-breaker", host="reader.example")
async def close_breaker(
    verbs: IAdministration, account: str, asked: CloseBreaker, _: float
) -> shapes.Done:
    """Close the circuit breakers of a host, so that it is called at once."""
    await verbs.close_breaker(account, asked.host, asked.reason)
    return shapes.Done()


@operation("GET", "/blocks", kind="host")
async def blocks(verbs: IAdministration, _: str, asked: BlockPage, now: float) -> shapes.Blocks:
    """List the blocks."""
    kind, _space, name = clean(asked.after).partition(" ")
    found = await verbs.blocks(asked.kind, (kind, name), asked.limit)
    last = found[-1] if len(found) == asked.limit else None
    following = None if last is None else f"{last.kind} {last.object}"
    return shapes.Blocks(items=[shapes.block(one) for one in found], next=following)


@operation("POST", "/blocks", kind="host", object="spam.example", reason="it sends spam")
async def block(verbs: IAdministration, account: str, asked: Shut, _: float) -> shapes.Block:
    """Block a host, a topic or a source, or replace the reason of a block."""
    return shapes.block(await verbs.block(account, asked.kind, asked.object, asked.reason))


@operation("POST", "/blocks/lift", kind="source", object="192.0.2.0/24")
async def unblock(verbs: IAdministration, account: str, asked: Open, _: float) -> shapes.Done:
    """Lift a block."""
    await verbs.unblock(account, asked.kind, asked.object, asked.reason)
    return shapes.Done()


@operation("GET", "/announcements")
async def announcements(
    verbs: IAdministration, _: str, asked: Page, now: float
) -> shapes.Announcements:
    """List the announcements."""
    found = await verbs.announcements(asked.after, asked.limit)
    following = found[-1].id if len(found) == asked.limit else None
    return shapes.Announcements(items=[shapes.announcement(one) for one in found], next=following)


@operation(
    "POST", "/announcements", text="The broker moves on Sunday.", until="2099-11-22T10:30:00Z"
)
async def announce(
    verbs: IAdministration, account: str, asked: Announce, _: float
) -> shapes.Announcement:
    """Show a text on all pages."""
    times = (seconds_of(asked.since), seconds_of(asked.until))
    return shapes.announcement(await verbs.announce(account, asked.text, *times))


@operation("POST", "/announcements/{id}/withdraw", id=1)
async def withdraw(
    verbs: IAdministration, account: str, asked: ByIdWithReason, _: float
) -> shapes.Done:
    """Remove an announcement."""
    await verbs.withdraw(account, asked.id, asked.reason)
    return shapes.Done()


@operation("GET", "/changes", limit=10)
async def changes(verbs: IAdministration, _: str, asked: Page, now: float) -> shapes.Changes:
    """List what administrators did, the newest first."""
    found = await verbs.changes(asked.after or None, asked.limit)
    following = found[-1].id if len(found) == asked.limit else None
    return shapes.Changes(items=[shapes.change(one) for one in found], next=following)


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


#: All operations, in the order of this module.
OPERATIONS: Final = tuple(each for each in globals().copy().values() if isinstance(each, Operation))
