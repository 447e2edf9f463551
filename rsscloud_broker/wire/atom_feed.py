"""Writes feeds as Atom (RFC 4287).

The outline below an entry is a nested list in its content, as Atom has no element for it.
"""

from __future__ import annotations

from typing import Any, Final

from lxml import etree

from rsscloud_broker.wire import feed_document
from rsscloud_broker.wire.times import iso_time

MEDIA_TYPE: Final = "application/atom+xml; charset=utf-8"

_ATOM: Final = "http://www.w3.org/2005/Atom"


def encode(feed: feed_document.FeedDocument) -> bytes:
    """Write a feed as Atom, in UTF-8."""
    default: Any = {None: _ATOM}  # the stubs of lxml know no default namespace
    root = etree.Element(f"{{{_ATOM}}}feed", nsmap=default)
    _add(root, "id", feed.id)
    _add(root, "title", feed.title)
    _add(root, "subtitle", feed.description)
    _add(root, "updated", iso_time(feed.updated))
    author = etree.SubElement(root, f"{{{_ATOM}}}author")
    _add(author, "name", feed.author)
    _add(author, "uri", feed.url)
    _link(root, "self", feed.self_url, type="application/atom+xml")
    _link(root, "alternate", feed.url, type="text/html")
    if feed.hub:
        _link(root, "hub", feed.hub)
    _add(root, "generator", feed_document.GENERATOR)
    for entry in feed.entries:
        _add_entry(root, entry)
    return feed_document.write_xml(root)


def _add_entry(root: etree._Element, entry: feed_document.FeedEntry) -> None:
    """Add an entry with its links, file and categories; its outline is in the content."""
    made = etree.SubElement(root, f"{{{_ATOM}}}entry")
    _add(made, "id", entry.id)
    _add(made, "title", feed_document.short_title(entry))
    _add(made, "published", iso_time(entry.published))
    _add(made, "updated", iso_time(entry.updated))
    _link(made, "alternate", entry.url, type="text/html")
    if entry.link:
        _link(made, "related", entry.link)
    if file := entry.enclosure:
        size = {"length": str(file.size)} if file.size else {}
        _link(made, "enclosure", file.url, type=file.media_type, **size)
    for category in entry.categories:
        etree.SubElement(made, f"{{{_ATOM}}}category", {"term": category})
    _add(made, "content", entry.full_html).set("type", "html")


def _add(parent: etree._Element, name: str, text: str) -> etree._Element:
    """Add an Atom element with a text, and return it."""
    element = etree.SubElement(parent, f"{{{_ATOM}}}{name}")
    element.text = text
    return element


def _link(parent: etree._Element, relation: str, url: str, **more: str) -> None:
    etree.SubElement(parent, f"{{{_ATOM}}}link", {"rel": relation, "href": url, **more})
