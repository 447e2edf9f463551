"""Writes feeds as RSS 2.0 (https://www.rssboard.org/rss-specification).

Beside RSS itself a feed has these elements:

- ``atom:link`` with ``rel="self"`` and ``rel="hub"``, by which WebSub finds the hub.
- ``source:self``, ``source:cloud`` and ``source:account`` of the head, and ``source:outline`` of an
  item (http://source.scripting.com/).  An outline is what OPML has.
- ``content:encoded`` of an item with an outline: the whole of it as HTML, for readers that show
  no outlines.
- ``rssCloud:item``, the sub-items of an item.  The implementor's guide to rssCloud (2009) defined
  it: an item as in RSS, which may contain further ones.  No copy of the page survives that gave the
  URI of its namespace, so this module uses `RSSCLOUD`::

    <item>
      <description>Three things about boats</description>
      <rssCloud:item>
        <description>They float</description>
        <rssCloud:item><description>Most of them</description></rssCloud:item>
      </rssCloud:item>
    </item>
"""

from __future__ import annotations

from email.utils import formatdate
from typing import Final

from lxml import etree

from rsscloud_broker.wire import feed_document

__all__ = ["MEDIA_TYPE", "RSSCLOUD", "encode"]

MEDIA_TYPE: Final = "application/rss+xml; charset=utf-8"

ATOM: Final = "http://www.w3.org/2005/Atom"
CONTENT: Final = "http://purl.org/rss/1.0/modules/content/"
SOURCE: Final = "http://source.scripting.com/"

#: The namespace of ``rssCloud:item``.
RSSCLOUD: Final = "http://rsscloud.org/namespace"

_NAMESPACES: Final = {"atom": ATOM, "content": CONTENT, "rssCloud": RSSCLOUD, "source": SOURCE}


def encode(feed: feed_document.FeedDocument) -> bytes:
    """Write a feed as RSS 2.0, in UTF-8."""
    root = etree.Element("rss", {"version": "2.0"}, nsmap=_NAMESPACES)
    channel = etree.SubElement(root, "channel")
    _add(channel, "title", feed.title)
    _add(channel, "link", feed.url)
    _add(channel, "description", feed.description)
    _add(channel, "pubDate", _date(feed.updated))
    _add(channel, "lastBuildDate", _date(feed.updated))
    _add(channel, "generator", feed_document.GENERATOR)
    _add(channel, "docs", "https://www.rssboard.org/rss-specification")
    if feed.ttl:
        _add(channel, "ttl", str(feed.ttl))
    _link(channel, "self", feed.self_url, "application/rss+xml")
    if feed.hub:
        _link(channel, "hub", feed.hub)
    if feed.cloud is not None:
        etree.SubElement(channel, "cloud", feed.cloud.attributes)
        _add(channel, f"{{{SOURCE}}}cloud", feed.cloud.url)
    _add(channel, f"{{{SOURCE}}}self", feed.self_url)
    account = _add(channel, f"{{{SOURCE}}}account", feed.author)
    account.set("service", feed.service)
    for entry in feed.entries:
        _add_entry(channel, entry)
    return feed_document.write_xml(root)


def _add_entry(channel: etree._Element, entry: feed_document.FeedEntry) -> None:
    """Add an entry as an ``item``; its outline as HTML, ``source:outline`` and sub-items."""
    item = etree.SubElement(channel, "item")
    if entry.title:
        _add(item, "title", entry.title)
    if entry.text:
        _add(item, "description", entry.html)
    elif not entry.title:  # an item has a title or a description (RSS 2.0, "Elements of item")
        _add(item, "title", feed_document.short_title(entry))
    if entry.items:
        _add(item, f"{{{CONTENT}}}encoded", entry.full_html)
    _add(item, "pubDate", _date(entry.published))
    guid = _add(item, "guid", entry.id)
    guid.set("isPermaLink", "true" if entry.id == entry.url else "false")
    for category in entry.categories:
        _add(item, "category", category)
    if file := entry.enclosure:
        attributes = {"url": file.url, "length": str(file.size), "type": file.media_type}
        etree.SubElement(item, "enclosure", attributes)
    if entry.items:
        _add_outline(item, entry)
        _add_sub_items(item, entry.items)
    # Last: some readers, such as feedparser, take the last link inside of an item for its own, even
    # if it is that of a sub-item.
    _add(item, "link", entry.link or entry.url)


def _add_outline(item: etree._Element, entry: feed_document.FeedEntry) -> None:
    """Add ``source:outline``, with everything below the entry.  It does not recurse."""
    created = {"created": _date(entry.published)}
    top = etree.SubElement(item, f"{{{SOURCE}}}outline", {"text": entry.html, **created})
    waiting = [(top, entry.items)]
    while waiting:
        parent, items = waiting.pop()
        for each in items:
            attributes = {"text": each.html}
            if each.link:
                attributes |= {"type": "link", "url": each.link}
            waiting.append(
                (etree.SubElement(parent, f"{{{SOURCE}}}outline", attributes), each.items)
            )


def _add_sub_items(item: etree._Element, items: tuple[feed_document.FeedOutlineItem, ...]) -> None:
    """Add ``rssCloud:item`` elements for all items below an entry.  It does not recurse."""
    waiting = [(item, items)]
    while waiting:
        parent, below = waiting.pop()
        for each in below:
            made = etree.SubElement(parent, f"{{{RSSCLOUD}}}item")
            if each.title:
                _add(made, "title", each.title)
            if each.link:
                _add(made, "link", each.link)
            if each.text:
                _add(made, "description", each.html)
            waiting.append((made, each.items))


def _add(parent: etree._Element, name: str, text: str) -> etree._Element:
    """Add an element with a text, and return it."""
    element = etree.SubElement(parent, name)
    element.text = text
    return element


def _link(channel: etree._Element, relation: str, url: str, media_type: str = "") -> None:
    attributes = {"rel": relation, "href": url}
    etree.SubElement(
        channel, f"{{{ATOM}}}link", attributes | ({"type": media_type} if media_type else {})
    )


def _date(seconds: float) -> str:
    """A time as RFC 822 writes it, with a year of four digits."""
    return formatdate(int(seconds), usegmt=True)
