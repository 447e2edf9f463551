"""Reads the documents of Simplefeeds, and those of other people's archives (RFC 5005).

It accepts what others really send.  ICT4H's atomfeed writes the oldest entry first, and texts in
contents of the type ``application/vnd.atomfeed+xml``, sometimes with a CDATA section that was
escaped twice.  Blogs have the same id in several documents, when an entry was edited.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import pairwise
from typing import Final
from urllib.parse import urldefrag, urljoin
from xml.sax.saxutils import escape

from attrs import evolve, frozen
from lxml import etree

from rsscloud_broker.errors import DocumentFault
from rsscloud_broker.interfaces import Position
from rsscloud_broker.simplefeed.atom import ATOM, HISTORY
from rsscloud_broker.simplefeed.entries import (
    Category,
    Entry,
    EntryContent,
    EntryLink,
    Person,
    form_of,
    standing_alone,
)
from rsscloud_broker.util.urls import joined
from rsscloud_broker.wire import xml
from rsscloud_broker.wire.text import charset_of

#: How many entries a document may have, and how many links and categories of each are read.
MAX_ENTRIES, MAX_PARTS = 10_000, 100

#: How many links of a document are read, and how many characters of a URL.
MAX_LINKS, MAX_URL = 50, 4096

_IN_ATOM: Final = f"{{{ATOM}}}"
_LINK: Final = f"{_IN_ATOM}link"
_CATEGORY: Final = f"{_IN_ATOM}category"
_BASE: Final = "{http://www.w3.org/XML/1998/namespace}base"
_ATOMFEED: Final = "application/vnd.atomfeed+xml"
_CDATA: Final = re.compile(r"\s*<!\[CDATA\[(.*)\]\]>\s*", re.DOTALL)

#: The first second of the calendar, and its last.  Servers write the last one for "never", with
#: decimals (9999-12-31T23:59:59.9999999Z), which as a float are those of the year 10000.
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC).timestamp()
_LATEST: Final = datetime.max.replace(microsecond=0, tzinfo=UTC).timestamp()

#: The relations that are registered can also be written as URIs (RFC 4287, section 4.2.7.2).
_REGISTERED: Final = "http://www.iana.org/assignments/relation/"


class NotAFeed(DocumentFault):
    """A document is no Atom feed.  The text says why."""


@frozen(eq=False)
class AtomDocument:
    """A document of a feed.

    :ivar url: where it was read, after redirects.
    :ivar digest: a hash of its bytes.
    :ivar headers: those of the answer.
    :ivar links: the URLs of the first links of each relation, without fragments.
    :ivar is_archived: whether the document says that it is archived (RFC 5005, section 4).
    :ivar found: the entries as they stand there.
    """

    url: str
    digest: bytes
    headers: dict[str, str]
    links: dict[str, str]
    is_archived: bool
    found: tuple[Entry, ...]

    @property
    def permanent(self) -> str:
        """The permanent URL of the document; empty if it is unknown.

        The recent document names it as ``via``.
        """
        if self.links.get("next-archive") or self.is_archived:
            return self.url
        return self.links.get("via") or ""

    def has(self, position: Position) -> bool:
        """Whether the document has the entry of a position, with its time."""
        return any(
            each.id == position.entry and each.updated == position.updated for each in self.found
        )

    def has_id(self, identity: str) -> bool:
        """Whether an entry of the document has an id."""
        return any(each.id == identity for each in self.found)

    def entries(self, newest_first: bool) -> tuple[list[Entry], Order]:
        """The entries in their order.

        :param newest_first: whether to take the newest for the first one, if the times of the
            entries do not tell; the format of ICT4H's atomfeed has the oldest first.
        :returns: the entries, the oldest first, and what was found out about their order.
        """
        found = list(self.found)
        if any(each.content is not None and each.content.type == _ATOMFEED for each in found):
            newest_first = False
        order = _find_order(found, newest_first)
        if order.newest_first:
            found.reverse()
        return _drop_repeated(found, order)


@frozen
class Order:
    """The order of the entries in a document.

    :ivar newest_first: whether the newest comes first, as in a Simplefeed.
    :ivar known: whether the times of the entries tell that.
    :ivar mixed: whether some times are against that order.
    :ivar repeated: the id of an entry that is in the document more than once; empty if none is.
    """

    newest_first: bool
    known: bool
    mixed: bool = False
    repeated: str = ""


def parse(body: bytes, url: str, headers: dict[str, str]) -> AtomDocument:
    """Parse a document.  That of a stranger is one for ``interfaces.Parsing``.

    :param headers: those of the answer, by names in lower case.
    :raises NotAFeed: it is not well-formed XML, is too complex, or is something else.
    """
    charset = charset_of(headers.get("content-type", ""))
    try:
        root = xml.parse(body, charset, max_depth=xml.FEED_DEPTH, max_elements=xml.FEED_ELEMENTS)
    except xml.MalformedXML as error:
        raise NotAFeed(f"it is not XML that can be read: {error.reason}") from error
    if root.tag != f"{_IN_ATOM}feed":
        name = xml.local_name(root)[:60]
        raise NotAFeed(f"it is not an Atom feed: its root element is {name!r} and not atom:feed")
    number = sum(1 for _ in root.iterchildren(f"{_IN_ATOM}entry"))
    if number > MAX_ENTRIES:
        raise NotAFeed(f"it has {number:,} entries; {MAX_ENTRIES:,} are the most that are read")
    base = _base_in(root, url)
    return AtomDocument(
        url,
        blake2b(body, digest_size=16).digest(),
        headers,
        _read_links(root, url),
        root.find(f"{{{HISTORY}}}archive") is not None,
        tuple(_read_entry(each, base) for each in root.iterchildren(f"{_IN_ATOM}entry")),
    )


def _read_links(root: etree._Element, url: str) -> dict[str, str]:
    """The URLs of the first links of each relation, without fragments."""
    first: dict[str, str] = {}
    base = root.get(_BASE, "")[:MAX_URL]
    for element in root.iterchildren(_LINK):
        relation, target = _relation(element), element.get("href", "").strip()
        if not target or relation in first or len(first) == MAX_LINKS:
            continue
        try:
            within = urljoin(urljoin(url, base), element.get(_BASE, "")[:MAX_URL])
            first[relation] = urldefrag(urljoin(within, target[:MAX_URL])).url
        except ValueError:  # an invalid host in brackets
            first[relation] = ""
    return {relation: target for relation, target in first.items() if target}


def index_after(entries: Sequence[Entry], position: Position) -> int | None:
    """The index of the first entry after a position; None if its entry is not there.

    If several entries have its id, the one with its time counts, and of these the oldest: so none
    is missed.
    """
    same = [index for index, each in enumerate(entries) if each.id == position.entry]
    exact = [index for index in same if entries[index].updated == position.updated]
    return (exact or same)[0] + 1 if same else None


def _relation(element: etree._Element) -> str:
    """The relation of a link in its short form, in lower case."""
    return element.get("rel", "alternate").strip().removeprefix(_REGISTERED).lower()


def _find_order(entries: Sequence[Entry], newest_first: bool) -> Order:
    """The order of entries, by how often their times rise and fall; the given one if equally."""
    pairs = [(one.updated, other.updated) for one, other in pairwise(entries)]
    falling = sum(one > other for one, other in pairs)
    rising = sum(one < other for one, other in pairs)
    if falling == rising:
        return Order(newest_first, known=False, mixed=falling > 0)
    return Order(falling > rising, known=True, mixed=min(falling, rising) > 0)


def _drop_repeated(entries: list[Entry], order: Order) -> tuple[list[Entry], Order]:
    """Leave out entries that are in a document twice, with the same time; the order says of one."""
    kept: dict[tuple[str, float], Entry] = {}
    repeated = ""
    for each in entries:
        if kept.setdefault((each.id, each.updated), each) is not each:
            repeated = each.id
    return list(kept.values()), evolve(order, repeated=repeated)


def _read_entry(element: etree._Element, base: str) -> Entry:
    """An entry; what is missing or malformed is left empty.

    :param base: the URL to which the references in the feed are relative.
    """
    base = _base_in(element, base)
    first: dict[str, etree._Element] = {}
    links: list[EntryLink] = []
    categories: list[Category] = []
    for child in element:
        tag = child.tag
        if tag == _LINK:
            if len(links) < MAX_PARTS:
                links.append(_read_link(child, base))
        elif tag == _CATEGORY:
            if len(categories) < MAX_PARTS:
                term, scheme, label = (child.get(name, "") for name in ("term", "scheme", "label"))
                categories.append(Category(term, scheme, label))
        else:
            first.setdefault(tag, child)
    title = _text_of(first, "title")
    # Without an id the link has to do, since nothing else stays the same.
    identity = _text_of(first, "id") or (links[0].href if links else title)
    author, content = first.get(f"{_IN_ATOM}author"), first.get(f"{_IN_ATOM}content")
    published = _text_of(first, "published")
    return Entry(
        title=title,
        updated=_parse_time(_text_of(first, "updated") or published),
        id=identity,
        author=None if author is None else _read_person(author),
        links=tuple(links),
        content=None if content is None else _read_content(content, base),
        categories=tuple(categories),
        summary=_text_of(first, "summary"),
        published=_parse_time(published) if published else None,
    )


def _text_of(elements: Mapping[str, etree._Element], name: str) -> str:
    """The text of one of some elements of Atom; empty if it is not there.

    An xhtml construct loses its elements.
    """
    element = elements.get(_IN_ATOM + name)
    if element is None:
        return ""
    return ("".join(map(str, element.itertext())) if len(element) else element.text or "").strip()


def _read_link(element: etree._Element, base: str) -> EntryLink:
    """The link in an ``atom:link``, with its URL as ``_joined`` has it."""
    get = element.get
    href = _joined(element, base, get("href", ""))
    return EntryLink(href, _relation(element), get("type", ""), get("title", ""))


def _joined(element: etree._Element, base: str, reference: str) -> str:
    """A reference in an element as an absolute URL; as it is written if it cannot be one.

    :param base: the URL to which the references around the element are relative.
    """
    if reference.startswith(("https://", "http://")):
        return reference  # as nearly all; to take one apart takes long
    return joined(_base_in(element, base), reference.strip()) or reference


def _base_in(element: etree._Element, base: str) -> str:
    """The URL to which the references in an element are relative: its ``xml:base``, if it has one.

    What lxml calls ``base`` copies all that are around the element, for each link anew.

    :param base: the URL to which it is relative itself.
    """
    own = element.get(_BASE, "")[:MAX_URL]
    return joined(base, own) or base if own else base


def _read_person(element: etree._Element) -> Person:
    parts = (element.findtext(_IN_ATOM + name) or "" for name in ("name", "uri", "email"))
    return Person(*parts)


def _parse_time(text: str) -> float:
    """Seconds since the epoch; 0 if a text is not a date of RFC 3339.

    A time that is not within the years 1 to 9999 in UTC becomes the nearest one that is: nobody
    could write it again.
    """
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        return 0.0
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return min(max(seconds, _EARLIEST), _LATEST)


def _read_content(element: etree._Element, base: str) -> EntryContent:
    """The content of an entry, in any of the forms that feeds really have."""
    kind = element.get("type", "text").strip()
    if src := element.get("src", "").strip():
        return EntryContent(kind, src=_joined(element, base, src))
    if len(element):
        inner = (standing_alone(child) + escape(child.tail or "") for child in element)
        return EntryContent(kind, f"{element.text or ''}{''.join(inner)}".strip())
    text = element.text or ""
    if kind.lower() == _ATOMFEED and (escaped := _CDATA.fullmatch(text)):
        text = escaped[1]
    if form_of(kind) == "base64":
        try:
            return EntryContent(kind, data=b64decode("".join(text.split()), validate=True))
        except ValueError:
            pass  # some write JSON as it is
    return EntryContent(kind, text)
