"""Reads and writes ResourceSync documents: sitemaps of what a source has, and of what changed.

Each document is a ``urlset`` with one ``rs:md`` at the top that names the document's capability,
with ``rs:ln`` links, and with a ``url`` for each entry.  A framework notification announces changes
of the other documents of a source; the source pushes it to a hub::

    <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
            xmlns:rs="http://www.openarchives.org/rs/terms/">
    <rs:ln rel="up" href="http://source.example/capabilitylist.xml"/>
    <rs:md capability="framework-notification"/>
    <url>
    <loc>http://source.example/changelist.xml</loc>
    <rs:md change="updated" capability="changelist"/>
    </url>
    </urlset>

A change notification announces changes of the resources themselves in the same way.
:func:`decode_notification` checks the rules for both; :func:`decode` reads any document.

Sources: the ResourceSync Framework Specification, and its parts Framework Notification
(sections 2, 3 and 5) and Change Notification.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from attrs import frozen
from lxml import etree

from rsscloud_broker.wire import xml
from rsscloud_broker.wire.links import is_absolute

SITEMAP: Final = "http://www.sitemaps.org/schemas/sitemap/0.9"
TERMS: Final = "http://www.openarchives.org/rs/terms/"

FRAMEWORK: Final = "framework-notification"
CHANGE: Final = "change-notification"

CHANGES: Final = ("created", "updated", "deleted")

#: The documents that a framework notification may announce, and the usual changes of each: a dump
#: is only created, a list is also updated, and only the other two are ever deleted.
USUAL_CHANGES: Final[Mapping[str, tuple[str, ...]]] = {
    "resourcelist": ("created", "updated"),
    "resourcedump": ("created",),
    "changelist": ("created", "updated"),
    "changedump": ("created", "updated"),
    "capabilitylist": CHANGES,
    "description": CHANGES,
}

# lxml names the default namespace None, which its stubs do not know.
_PREFIXES: Final[dict[Any, str]] = {None: SITEMAP, "rs": TERMS}
_LENGTH: Final = re.compile(r"[0-9]{1,15}")


class InvalidDocument(Exception):
    """A document breaks a rule of ResourceSync.  The text names the rule."""


@frozen
class Ln:
    """A link of a document, or of one of its entries.

    :ivar href: an absolute URL.
    """

    rel: str
    href: str


@frozen
class ResourceEntry:
    """What a document says about one URL.  Times are W3C datetimes, as written.

    :ivar loc: the URL, absolute.
    :ivar capability: the capability of the document at that URL; empty for a resource.
    :ivar change: one of ``CHANGES``, or empty.
    :ivar datetime: when the change happened.
    :ivar lastmod: when the resource was last modified.
    :ivar hash: the hash of the resource, such as ``sha-256:`` and hexadecimal digits.
    :ivar length: the length of the resource, in bytes.
    :ivar type: the media type of the resource.
    """

    loc: str
    capability: str = ""
    change: str = ""
    datetime: str = ""
    lastmod: str = ""
    hash: str = ""
    length: int | None = None
    type: str = ""
    links: tuple[Ln, ...] = ()


@frozen
class ResourceDocument:
    """A document of ResourceSync, of any capability.  Times are W3C datetimes, as written.

    :ivar at: the time for which a resource list is accurate.
    :ivar since: the ``from`` of a change list: it has all changes since then.
    """

    capability: str
    entries: tuple[ResourceEntry, ...] = ()
    links: tuple[Ln, ...] = ()
    at: str = ""
    since: str = ""


def first_link(links: Iterable[Ln], rel: str) -> str:
    """The URL of the first link of a relation; empty if there is none."""
    return next((link.href for link in links if link.rel == rel), "")


# --- writing ------------------------------------------------------------------------


def encode(document: ResourceDocument) -> bytes:
    """Write a document in UTF-8, with each child of the ``urlset`` on a line of its own."""
    root = etree.Element(f"{{{SITEMAP}}}urlset", nsmap=_PREFIXES)
    _add_links(root, document.links)
    _add(root, "md", capability=document.capability, at=document.at, **{"from": document.since})
    for entry in document.entries:
        url = etree.SubElement(root, f"{{{SITEMAP}}}url")
        etree.SubElement(url, f"{{{SITEMAP}}}loc").text = entry.loc
        if entry.lastmod:
            etree.SubElement(url, f"{{{SITEMAP}}}lastmod").text = entry.lastmod
        _add(
            url,
            "md",
            change=entry.change,
            datetime=entry.datetime,
            capability=entry.capability,
            hash=entry.hash,
            length="" if entry.length is None else str(entry.length),
            type=entry.type,
        )
        _add_links(url, entry.links)
    root.text = "\n"
    for child in root:
        child.tail = "\n"
    return etree.tostring(root, xml_declaration=True, encoding="UTF-8")


def _add_links(parent: etree._Element, links: Iterable[Ln]) -> None:
    for link in links:
        _add(parent, "ln", rel=link.rel, href=link.href)


def _add(parent: etree._Element, name: str, **attributes: str) -> None:
    """Add an ``rs:`` element with the attributes that are not empty; none if all are empty."""
    present = {key: value for key, value in attributes.items() if value}
    if present:
        etree.SubElement(parent, f"{{{TERMS}}}{name}", present)


# --- reading ------------------------------------------------------------------------


def decode(
    document: bytes, charset: str | None = None, *, max_elements: int = xml.MAX_ELEMENTS
) -> ResourceDocument:
    """Read any document that is a ``urlset``.

    Unknown elements and attributes are ignored, as sitemaps may be extended.

    :param charset: the charset parameter of its Content-Type.
    :param max_elements: the largest number of elements that is accepted.
    :raises InvalidDocument: the document is not a ``urlset``, or breaks a rule for all documents.
    """
    try:
        root = xml.parse(document, charset, max_elements=max_elements)
    except xml.MalformedXML as error:
        raise InvalidDocument(f"the document is not acceptable XML: {error}") from None
    _require_urlset(root)
    top = _one_md(root, "the top of the document")
    return ResourceDocument(
        capability=_capability(root, top),
        entries=tuple(_read_entry(url) for url in root.findall(f"{{{SITEMAP}}}url")),
        links=_read_links(root),
        at=top.get("at", ""),
        since=top.get("from", ""),
    )


def decode_notification(document: bytes, charset: str | None = None) -> ResourceDocument:
    """Read a framework notification or a change notification.

    :param charset: the charset parameter of its Content-Type.
    :raises InvalidDocument: the document breaks a rule.
    """
    notification = decode(document, charset)
    if notification.capability not in {FRAMEWORK, CHANGE}:
        raise InvalidDocument(
            f"the capability of the rs:md at the top is {notification.capability!r}; "
            f"that of a notification must be {FRAMEWORK} or {CHANGE}"
        )
    if not notification.entries:
        raise InvalidDocument("a notification must have a url for each change; there is none")
    for entry in notification.entries:
        _require_one_of("change", entry.change, CHANGES, entry)
        if notification.capability == FRAMEWORK:
            _require_one_of("capability", entry.capability, USUAL_CHANGES, entry)
    return notification


def warnings(notification: ResourceDocument) -> list[str]:
    """What is odd about a notification that breaks no rule: a list of sentences.

    A sentence about each entry of a framework notification whose document seldom changes in that
    way.  Source: table 2 of Framework Notification.
    """
    if notification.capability != FRAMEWORK:
        return []
    return [
        f"{entry.loc}: a {entry.capability} that was {entry.change} is unusual; "
        f"such a document is {' or '.join(USUAL_CHANGES[entry.capability])}."
        for entry in notification.entries
        if entry.change not in USUAL_CHANGES[entry.capability]
    ]


def _require_urlset(root: etree._Element) -> None:
    """Raise InvalidDocument unless the root is a ``urlset``."""
    name, space = xml.local_name(root), xml.namespace(root)
    if name == "sitemapindex":
        raise InvalidDocument(
            "the root element is sitemapindex; it must be urlset, as sitemap indexes are not read"
        )
    if (name, space) != ("urlset", SITEMAP):
        raise InvalidDocument(
            f"the root element is {name[:60]!r} in the namespace {space[:80]!r}; "
            f"it must be urlset in {SITEMAP}"
        )


def _one_md(parent: etree._Element, where: str) -> etree._Element:
    """The one ``rs:md`` of an element; InvalidDocument if there is none, or several."""
    found = parent.findall(f"{{{TERMS}}}md")
    if len(found) != 1:
        raise InvalidDocument(
            f"line {parent.sourceline}: {where} has {len(found)} rs:md elements; "
            f"it must have exactly one, in the namespace {TERMS}"
        )
    return found[0]


def _capability(root: etree._Element, md: etree._Element) -> str:
    """The capability of a document; InvalidDocument if it has none."""
    capability = md.get("capability", "")
    if not capability:
        raise InvalidDocument(
            f"line {root.sourceline}: the rs:md at the top must have a capability"
        )
    return capability


def _read_entry(url: etree._Element) -> ResourceEntry:
    """The entry in a ``url`` element; InvalidDocument if that breaks a rule."""
    locs = url.findall(f"{{{SITEMAP}}}loc")
    if len(locs) != 1:
        raise InvalidDocument(
            f"{xml.describe(url)} has {len(locs)} loc elements; it must have exactly one"
        )
    loc = (locs[0].text or "").strip()
    if not is_absolute(loc):
        raise InvalidDocument(
            f"{xml.describe(locs[0])} is {loc[:100]!r}; it must be an absolute http or https URL"
        )
    md = _one_md(url, f"the url {loc[:200]}")
    length = md.get("length", "")
    return ResourceEntry(
        loc=loc,
        capability=md.get("capability", ""),
        change=md.get("change", ""),
        datetime=md.get("datetime", ""),
        lastmod=(url.findtext(f"{{{SITEMAP}}}lastmod") or "").strip(),
        hash=md.get("hash", ""),
        length=int(length) if _LENGTH.fullmatch(length) else None,
        type=md.get("type", ""),
        links=_read_links(url),
    )


def _read_links(parent: etree._Element) -> tuple[Ln, ...]:
    return tuple(_read_link(element) for element in parent.findall(f"{{{TERMS}}}ln"))


def _read_link(element: etree._Element) -> Ln:
    """The link in an ``rs:ln``; InvalidDocument if that breaks a rule."""
    rel, href = element.get("rel", ""), element.get("href", "").strip()
    if not rel or not is_absolute(href):
        raise InvalidDocument(
            f"{xml.describe(element)} has rel {rel[:60]!r} and href {href[:100]!r}; "
            "an rs:ln must have a rel, and an absolute http or https URL as its href"
        )
    return Ln(rel, href)


def _require_one_of(name: str, value: str, allowed: Iterable[str], entry: ResourceEntry) -> None:
    """Raise InvalidDocument if an attribute of an entry has a value that is not allowed."""
    if value not in allowed:
        raise InvalidDocument(
            f"the url {entry.loc[:200]} has the {name} {value[:60]!r}; "
            f"it must be one of {', '.join(allowed)}"
        )
