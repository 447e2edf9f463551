"""Writes the test feed as RSS 2.0 (https://www.rssboard.org/rss-specification).

Beside RSS itself the feed has ``atom:link`` with ``rel="self"`` and ``rel="hub"``, by which WebSub
finds the hub.  The same items always make the same bytes.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import formatdate
from hashlib import sha256
from typing import Final

from attrs import frozen
from lxml import etree

from rsscloud_broker.apps.test_feed.items import Item
from rsscloud_broker.wire.cloud import Cloud

MEDIA_TYPE: Final = "application/rss+xml; charset=utf-8"

_ATOM: Final = "http://www.w3.org/2005/Atom"


@frozen
class About:
    """What the test feed says about itself.

    :ivar url: the URL of the feed.
    :ivar page: the URL of the page about it.
    :ivar every: seconds between two items.
    :ivar hub: the URL of the WebSub hub; empty if the broker is none.
    :ivar cloud: where subscribers register by rssCloud; None if they cannot.
    """

    url: str
    page: str
    every: int
    hub: str = ""
    cloud: Cloud | None = None


@frozen
class Document:
    """The feed as it is served.

    :ivar gzipped: the same bytes, compressed.
    :ivar tag: identifies this version: a part of its ETag.
    :ivar modified: its Last-Modified header.
    """

    body: bytes
    gzipped: bytes
    tag: str
    modified: str


def document_of(about: About, items: Sequence[Item]) -> Document:
    """The feed with some items, the newest first; at least one."""
    body = encode(about, items)
    tag = sha256(body).hexdigest()[:16]
    modified = formatdate(items[0].slot, usegmt=True)
    return Document(body, gzip.compress(body, mtime=0), tag, modified)


def encode(about: About, items: Sequence[Item]) -> bytes:
    """Write the feed, in UTF-8."""
    root = etree.Element("rss", {"version": "2.0"}, nsmap={"atom": _ATOM})
    channel = etree.SubElement(root, "channel")
    _add(channel, "title", "Test feed of rsscloud-broker")
    _add(channel, "link", about.page)
    _add(channel, "description", f"A new item {in_words(about.every)}, to test subscribers with.")
    _add(channel, "language", "en")
    _add(channel, "lastBuildDate", formatdate(items[0].slot, usegmt=True))
    _add(channel, "generator", "rsscloud-broker")
    _add(channel, "ttl", str(max(1, about.every // 60)))  # minutes
    _link(channel, rel="self", type="application/rss+xml", href=about.url)
    if about.hub:
        _link(channel, rel="hub", href=about.hub)
    if about.cloud is not None:
        _add_cloud(channel, about.cloud)
    for item in items:
        _add_item(channel, item, about.page)
    return etree.tostring(root, xml_declaration=True, encoding="UTF-8", pretty_print=True)


def _add_cloud(channel: etree._Element, cloud: Cloud) -> None:
    etree.SubElement(
        channel,
        "cloud",
        {
            "domain": cloud.domain,
            "port": str(cloud.port),
            "path": cloud.path,
            "registerProcedure": cloud.register_procedure,
            "protocol": cloud.protocol,
        },
    )


def _add_item(channel: etree._Element, item: Item, page: str) -> None:
    made = etree.SubElement(channel, "item")
    _add(made, "title", title_of(item))
    _add(made, "link", page)
    text = f"This item was due at {clock_of(item.slot)} UTC. A subscriber sees it within a second."
    _add(made, "description", text)
    _add(made, "pubDate", formatdate(item.slot, usegmt=True))
    _add(made, "guid", item.guid).set("isPermaLink", "false")


def title_of(item: Item) -> str:
    """The title of an item, such as "12:15:00 UTC on 22 November 2026"."""
    day = datetime.fromtimestamp(item.slot, UTC)
    return f"{clock_of(item.slot)} UTC on {day.day} {day:%B %Y}"


def clock_of(slot: int) -> str:
    """The time of day of a slot, such as "12:15:00"."""
    return f"{datetime.fromtimestamp(slot, UTC):%H:%M:%S}"


def in_words(every: int) -> str:
    """How often there is an item: "every 15 minutes"."""
    for unit, name in ((3600, "hour"), (60, "minute"), (1, "second")):
        if every % unit == 0:
            number = every // unit
            return f"every {name}" if number == 1 else f"every {number} {name}s"
    raise AssertionError("every whole number of seconds is a multiple of one second")


def _add(parent: etree._Element, name: str, text: str) -> etree._Element:
    element = etree.SubElement(parent, name)
    element.text = text
    return element


def _link(channel: etree._Element, **attributes: str) -> None:
    etree.SubElement(channel, f"{{{_ATOM}}}link", attributes)
