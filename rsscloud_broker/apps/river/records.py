"""What the river stores of a feed and what it reads in a document; ``model`` is what people see."""

from __future__ import annotations

from collections.abc import Mapping
from secrets import token_urlsafe
from typing import Literal

from attrs import field, frozen

from rsscloud_broker.apps.river.model import ItemEnclosure, SubItem
from rsscloud_broker.wire.cloud import Cloud


@frozen
class Offer:
    """A hub or a cloud that a feed names, which pushes the feed's changes.

    :ivar kind: its protocol.
    :ivar url: where to subscribe.
    :ivar topic: the URL by which it knows the feed.
    :ivar cloud: the cloud; None for a hub.
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
    """What is stored of a feed; ``schema`` says what each column means."""

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
class ReadItem:
    """An item as it is in a document; see ``model.Item``."""

    guid: str
    title: str = ""
    text_html: str = field(default="", repr=False)
    link: str = ""
    enclosures: tuple[ItemEnclosure, ...] = ()
    items: tuple[SubItem, ...] = ()
    published_at: float | None = None


@frozen
class ReadDocument:
    """What is read in a document of a feed.

    :ivar entries: its items, newest first.
    """

    title: str
    link: str
    offers: tuple[Offer, ...]
    entries: tuple[ReadItem, ...]


@frozen
class RiverBounds:
    """How much the river keeps.

    :ivar feeds: how many feeds an account may follow.
    :ivar items: how many items of a feed are kept, besides those in its present document.
    :ivar seconds: for how long.
    """

    feeds: int
    items: int
    seconds: float
