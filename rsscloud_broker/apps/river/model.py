"""The values of the river: feeds, items, documents, and what an import of OPML did.

Times are seconds since the epoch (UTC) as floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from secrets import token_urlsafe
from typing import Literal, TypeAlias

from attrs import field, frozen

from rsscloud_broker.errors import DocumentFault, Refused
from rsscloud_broker.wire.cloud import Cloud

#: How the river learns of new items of a feed: from a WebSub hub, from an rssCloud server, from
#: this broker because the feed is its own, or by polling.
How: TypeAlias = Literal["websub", "rsscloud", "own", "polled"]

#: How an item reached the river first.
Way: TypeAlias = Literal["pushed", "polled"]


class InvalidFeed(Refused, DocumentFault):
    """What somebody wants to follow cannot be followed; the text says why.  Nothing was stored."""


@frozen
class Feed:
    """A feed, as somebody who follows it sees it.

    :ivar id: a number that no other feed ever has.
    :ivar url: the URL at which the broker reads the feed.
    :ivar title: its title; its URL if it has none.
    :ivar link: the URL of the site that it belongs to; empty if it names none.
    :ivar how: how the river learns of new items now.
    :ivar hub: the URL of the hub or of the cloud that the river subscribes at; empty if none.
    :ivar renew_at: when the river next subscribes there anew; None if it does not subscribe.
    :ivar verified_at: when the hub or the cloud last confirmed the subscription; None if it has
        not.
    :ivar pushed: how many of its items reached the river by a push first.
    :ivar found_by_poll: how many of its items a poll found first although the feed has a
        subscription at a hub or a cloud.
    :ivar status: all this in a sentence for people.
    :ivar added_at: when the account began to follow it.
    :ivar is_muted: whether the river of the account leaves its items out.
    :ivar is_waiting: whether the broker has not fetched it yet.
    :ivar is_new: whether the account has just begun to follow it.
    """

    id: int
    url: str
    title: str
    link: str = ""
    how: How = "polled"
    hub: str = ""
    renew_at: float | None = None
    verified_at: float | None = None
    pushed: int = 0
    found_by_poll: int = 0
    status: str = ""
    added_at: float = 0.0
    is_muted: bool = False
    is_waiting: bool = False
    is_new: bool = False


@frozen
class Offer:
    """A hub or a cloud that a feed names, which pushes the feed's changes.

    :ivar kind: its protocol.
    :ivar url: where to subscribe.
    :ivar topic: the URL by which it knows the feed.
    :ivar in_header: whether a Link header names it, and not the document.
    """

    kind: Literal["websub", "rsscloud"]
    url: str
    topic: str
    cloud: Cloud | None = None
    in_header: bool = False


def new_keys() -> Mapping[str, str]:
    """A key for the paths of the callbacks of a feed, and a secret for signatures."""
    return {"key": token_urlsafe(24), "secret": token_urlsafe(32)}


@frozen
class FeedRecord:
    """What is stored of a feed.

    :ivar url: in normal form.
    :ivar is_found: whether the URL has been found to be that of a feed, and not that of a page.
    :ivar offers: the hubs and clouds of the feed.
    :ivar offer: the position of the one in use.
    :ivar key: the last segment of the callbacks' paths, which only the hub knows.
    :ivar secret: that with which the hub signs.
    :ivar asked_at: when the river last asked the hub or the cloud.
    :ivar verified_at: when that last confirmed.
    :ivar pushes_until: until when it will push.
    :ivar push_due_at: when the river has to do something about it next.
    :ivar pinged_at: when it last said that the feed changed.
    :ivar pushed: how many items came by a push first.
    :ivar found_by_poll: how many a poll found although there should have been a push.
    :ivar missed: how many times in a row that happened.
    :ivar reads_until: until when the broker reads the feed for the river; None if it does not.
    :ivar read_due_at: when the river subscribes to it anew.
    :ivar failures: how many attempts to begin that failed in a row.
    :ivar problem: why, for people.
    :ivar push_problem: why nothing is pushed, for people.
    :ivar turn: how many documents of the feed were stored.
    """

    id: int
    url: str
    title: str
    link: str
    is_found: bool
    offers: tuple[Offer, ...]
    offer: int
    key: str = field(repr=False)
    secret: str = field(repr=False)
    asked_at: float | None
    verified_at: float | None
    pushes_until: float | None
    push_due_at: float | None
    pinged_at: float | None
    pushed: int
    found_by_poll: int
    missed: int
    reads_until: float | None
    read_due_at: float
    failures: int
    problem: str
    push_problem: str
    turn: int

    @property
    def current(self) -> Offer | None:
        """The hub or the cloud in use; None if the feed names none."""
        return self.offers[self.offer % len(self.offers)] if self.offers else None

    def is_pushed(self, now: float) -> bool:
        """Whether a hub or a cloud has said that it will push changes now."""
        return self.pushes_until is not None and self.pushes_until > now


@frozen
class ItemEnclosure:
    """A file that belongs to an item.

    :ivar url: http or https.
    :ivar media_type: its media type, in lower case; empty if the feed does not say.
    :ivar size: bytes, as the feed says; None if it does not.
    """

    url: str
    media_type: str = ""
    size: int | None = None


@frozen
class SubItem:
    """An item below another one: ``rssCloud:item``.

    :ivar title: its title as plain text; perhaps empty.
    :ivar text_html: its text, as ``Item.text_html``.
    :ivar link: http or https; perhaps empty.
    :ivar items: the items below it.
    """

    title: str
    text_html: str = field(default="", repr=False)
    link: str = ""
    items: tuple[SubItem, ...] = ()


@frozen
class Item:
    """An item of a feed.

    :ivar id: a number; items that arrived later have greater ones.  0 in a document.
    :ivar feed_id: the feed that it is in; 0 in a document.
    :ivar guid: what identifies it within the feed.
    :ivar title: its title as plain text; empty if it has none.
    :ivar text_html: its text as HTML that is safe to show: without scripts, styles and forms, and
        with links and images by http and https only.
    :ivar link: the URL of its page, http or https; empty if it has none.
    :ivar published_at: when it was published, as the feed says; None if it does not.
    """

    id: int
    feed_id: int
    guid: str
    title: str
    text_html: str = field(default="", repr=False)
    link: str = ""
    enclosures: tuple[ItemEnclosure, ...] = ()
    items: tuple[SubItem, ...] = ()
    published_at: float | None = None
    arrived_at: float = 0.0
    how: Way = "polled"


@frozen
class ReadDocument:
    """What is read in a document of a feed.

    :ivar entries: its items, newest first.
    """

    title: str
    link: str
    offers: tuple[Offer, ...]
    entries: tuple[Item, ...]


@frozen
class Arrival:
    """A new item, for the browsers that show a river.

    :ivar title, link: the title of its feed, and the URL of the site that the feed belongs to.
    :ivar accounts: the ids of the accounts that follow the feed.
    """

    item: Item
    title: str
    link: str
    accounts: frozenset[int]


@frozen
class ImportedFeeds:
    """What an import of OPML did.

    :ivar added: how many feeds the account follows that it did not follow before.
    :ivar failed: the URLs that it cannot follow, with the reason of each, in sentences.
    """

    added: int
    failed: tuple[tuple[str, str], ...] = ()
