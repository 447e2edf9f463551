"""A feed to be written, whatever its format: its head, and its entries.

``rss_feed``, ``atom_feed`` and ``json_feed`` write it as RSS 2.0, Atom and JSON Feed.
"""

from __future__ import annotations

from attrs import frozen
from lxml import etree

from rsscloud_broker.wire.change_list import STYLE
from rsscloud_broker.wire.cloud import Cloud

#: What says in a feed which program has made it.
GENERATOR = "rsscloud-broker"


@frozen
class FeedEnclosure:
    """A file that belongs to an entry.

    :ivar media_type: such as ``audio/mpeg``.
    :ivar size: the number of its bytes; 0 if it is unknown.
    """

    url: str
    media_type: str
    size: int


@frozen
class FeedOutlineItem:
    """An item of the outline that an author writes below an entry, with the items below it.

    :ivar text: plain text; empty if it has a title alone.
    :ivar html: the text, or else the title, as HTML.
    :ivar title, link: empty for none.
    """

    text: str
    html: str
    title: str = ""
    link: str = ""
    items: tuple[FeedOutlineItem, ...] = ()


@frozen
class FeedEntry:
    """An entry.

    :ivar id: it never changes, and no other entry has it.
    :ivar url: the page of the entry.
    :ivar link: what the entry is about; empty for nothing else than itself.
    :ivar title: empty for none.
    :ivar text: plain text.
    :ivar html: the same as HTML.
    :ivar full_html: the text and the outline as HTML.
    :ivar published, updated: seconds since the epoch.
    """

    id: str
    url: str
    link: str
    title: str
    text: str
    html: str
    full_html: str
    published: float
    updated: float
    categories: tuple[str, ...] = ()
    enclosure: FeedEnclosure | None = None
    items: tuple[FeedOutlineItem, ...] = ()


@frozen
class FeedDocument:
    """A feed.

    :ivar id: an absolute URL that never changes.
    :ivar title, description: plain texts.
    :ivar url: the page that the feed belongs to.
    :ivar self_url: where this feed is, in this format.
    :ivar author: the name of the person who writes it.
    :ivar service: the name of the site where the author has an account of that name.
    :ivar updated: when it last changed, in seconds since the epoch.
    :ivar hub: the URL of its WebSub hub; empty for none.
    :ivar cloud: where rssCloud subscribers register; None for nowhere.
    :ivar entries: the newest first.
    :ivar ttl: for how many minutes readers need not ask again; 0 for no such hint.
    """

    id: str
    title: str
    description: str
    url: str
    self_url: str
    author: str
    service: str
    updated: float
    hub: str
    cloud: Cloud | None
    entries: tuple[FeedEntry, ...]
    ttl: int = 0


def write_xml(root: etree._Element, *, pretty: bool = True) -> bytes:
    """Write the elements of a feed, in UTF-8, with the style sheet for people who open it."""
    root.addprevious(etree.ProcessingInstruction("xml-stylesheet", STYLE))
    return etree.tostring(
        root.getroottree(), xml_declaration=True, encoding="utf-8", pretty_print=pretty
    )


def short_title(entry: FeedEntry) -> str:
    """A title for an entry that may have none: the beginning of its text, or its address."""
    text = entry.title or " ".join(entry.text.split()) or entry.link or entry.url
    return text if len(text) <= 80 else f"{text[:79].rstrip()}…"
