"""Reads what an RSS or Atom feed says about itself, from its tree of elements.

``feed.read_feed`` calls it with the tree that ``feed_tree`` has parsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from urllib.parse import urljoin

from attrs import field, frozen
from lxml import etree

from rsscloud_broker.wire import cloud, xml
from rsscloud_broker.wire.cloud import Cloud
from rsscloud_broker.wire.feed_facts import (
    MAX_FEED_URL,
    MAX_LINKS,
    MAX_TEXT,
    FeedFacts,
    to_url,
    unique_ids,
)
from rsscloud_broker.wire.feed_hints import Hints, read_hints
from rsscloud_broker.wire.feed_tree import Tree, UnreadableFeed
from rsscloud_broker.wire.text import clean

#: The names of the root elements of feeds, in lower case.
ROOTS = frozenset({"rss", "rdf", "feed"})

_RSS_VERSIONS = frozenset({"0.90", "0.91", "0.92", "0.93", "0.94", "2.0"})
_ATOM_NAMESPACES = frozenset({"http://www.w3.org/2005/Atom", "http://purl.org/atom/ns#"})
_RSS_1_0 = "http://purl.org/rss/1.0/"
_RDF_ABOUT = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}about"

#: Elements whose children are about a part of the feed, such as an entry.
_PARTS = frozenset({"item", "entry", "image", "textinput", "source", "author", "contributor"})
#: Those of the syndication module; the ``updateFrequency`` of podcasts is a text for people.
_UPDATES = frozenset({"updateperiod", "updatefrequency", "updatebase"})
_HINTS = _UPDATES | {"ttl", "skiphours", "skipdays"}
#: The elements about the feed itself that are read, in lower case.
_WANTED = _HINTS | {"title", "link", "self", "cloud"}


@frozen
class _Head:
    """The elements about the feed itself, by their names in lower case, without prefixes.

    :ivar own: elements of the feed's own vocabulary.
    :ivar others: elements of other vocabularies, the modules of RSS.
    """

    own: dict[str, list[etree._Element]] = field(factory=dict)
    others: dict[str, list[etree._Element]] = field(factory=dict)

    def all_of(self, name: str) -> list[etree._Element]:
        """The elements of a name, the feed's own first."""
        return self.own.get(name, []) + self.others.get(name, [])

    def text(self, name: str) -> str | None:
        """The text of the first element of a name; None if there is none."""
        found = self.all_of(name)
        return _text(found[0]) if found else None


def read_xml(tree: Tree) -> FeedFacts:
    """Read what a feed says about itself.

    :raises UnreadableFeed: the tree is not that of a feed.
    """
    problems: list[str] = []
    if tree.complaint:
        problems.append(f"this is not well-formed, and read as well as may be: {tree.complaint}")
    holder = _find_holder(tree)
    vocabulary = xml.namespace(holder)
    head = _find_head(tree, holder, vocabulary)
    links = [link for link in head.all_of("link") if link.get("href")]
    pages = [to_url(_text(link)) for link in head.own.get("link", ()) if not link.get("href")]
    pages += _hrefs(links, "alternate")
    own_urls = _hrefs(links, "self") + [to_url(_text(link)) for link in head.others.get("self", ())]
    hints, ignored = _read_hints(head)
    return FeedFacts(
        format=_format_of(tree.root, vocabulary, problems),
        title=next((_text(title)[:MAX_TEXT] for title in head.own.get("title", ())), ""),
        link=next(filter(None, pages), ""),
        self_link=next(filter(None, own_urls), ""),
        hubs=tuple(dict.fromkeys(_hrefs(links, "hub")))[:MAX_LINKS],
        clouds=_clouds(head.all_of("cloud"), problems),
        entry_ids=unique_ids(_entry_ids(tree, vocabulary)),
        hints=hints,
        problems=tuple((problems + ignored)[:20]),  # nobody reads more
    )


def _find_holder(tree: Tree) -> etree._Element:
    """The element whose children are about the feed itself: ``channel`` or ``feed``.

    :raises UnreadableFeed: the tree is not that of a feed.
    """
    root = tree.root
    name = xml.local_name(root).lower()
    if name not in ROOTS:
        raise UnreadableFeed(f"it is neither RSS nor Atom: its root element is {name[:60]}")
    if name == "feed":
        return root
    candidates = root.iter("*") if tree.complaint else iter(root)
    for element in candidates:
        if xml.local_name(element).lower() == "channel":
            return element
    if name == "rdf":
        raise UnreadableFeed("it is RDF, but no RSS: it has no channel")
    return root


def _format_of(root: etree._Element, vocabulary: str, problems: list[str]) -> str:
    """The format of a feed, as ``FeedFacts`` has it; what is odd about it becomes a problem."""
    name = xml.local_name(root).lower()
    if name == "feed":
        if vocabulary not in _ATOM_NAMESPACES:
            problems.append("the feed element is not in the namespace of Atom")
        return "atom"
    if name == "rdf":
        return "rss 1.0" if vocabulary == _RSS_1_0 else "rss 0.90"
    version = root.get("version", "").strip()
    if version in _RSS_VERSIONS:
        return f"rss {version}"
    problems.append("the version of the rss element is missing or unknown; it is read as 2.0")
    return "rss 2.0"


def _find_head(tree: Tree, holder: etree._Element, vocabulary: str) -> _Head:
    """Find the elements that say something about the feed itself.

    :param holder: the element that has them, unless the feed is malformed.
    :param vocabulary: the namespace of the feed's own elements.
    """
    head = _Head()
    members = _scattered_elements(tree.root) if tree.complaint else iter(holder)
    for element in members:
        prefix, _, name = xml.local_name(element).lower().rpartition(":")
        if name not in _WANTED:
            continue
        space = xml.namespace(element)
        if name in _UPDATES and space not in ("", vocabulary) and "syndication" not in space:
            continue
        # An undeclared prefix is a part of the name.
        own = not prefix and space == vocabulary
        found = (head.own if own else head.others).setdefault(name, [])
        # Others than hubs may stand among the links, so more are kept than hubs are returned.
        if len(found) < MAX_LINKS * 2:
            found.append(element)
    return head


def _scattered_elements(root: etree._Element) -> Iterator[etree._Element]:
    """The elements of a malformed feed that may be about the feed itself, wherever they are.

    Elements inside of an entry or another part are left out, but hints are not: an entry that is
    never closed contains all that follows it, and entries have no hints of their own.
    """
    stack = [(iter(root), False)]
    while stack:
        elements, inside = stack[-1]
        element = next(elements, None)
        if element is None:
            stack.pop()
            continue
        name = xml.local_name(element).lower().rpartition(":")[2]
        if not inside or name in _HINTS:
            yield element
        stack.append((iter(element), inside or name in _PARTS))


def _read_hints(head: _Head) -> tuple[Hints, list[str]]:
    """The feed's hints for polling, and what is wrong with some."""

    def inside(name: str, member: str) -> list[str]:
        """The texts of the elements called ``member`` in those called ``name``."""
        return [
            _text(element)
            for holder in head.all_of(name)
            for element in islice(holder.iter("*"), 100)
            if xml.local_name(element).lower() == member
        ]

    return read_hints(
        ttl=head.text("ttl"),
        hours=inside("skiphours", "hour"),
        days=inside("skipdays", "day"),
        period=head.text("updateperiod"),
        frequency=head.text("updatefrequency"),
        base=head.text("updatebase"),
    )


def _hrefs(links: list[etree._Element], relation: str) -> list[str]:
    """The URLs of the links of a relation; a link without a relation is an alternate."""
    urls = []
    for link in links:
        relations = link.get("rel", "alternate").lower().split()
        if relation in {name.rpartition("/")[2] for name in relations}:
            urls.append(_href(link))
    return [url for url in urls if url]


def _href(link: etree._Element) -> str:
    """The URL of a link, within its ``xml:base`` if there is one; empty if it is none."""
    base, written = (link.base or "")[:MAX_FEED_URL], clean(link.get("href", ""))
    try:
        return to_url(urljoin(base, written)) if written else ""
    except ValueError:  # an invalid host in brackets
        return ""


def _clouds(elements: list[etree._Element], problems: list[str]) -> tuple[Cloud, ...]:
    """The clouds in some elements; none, and a problem more, if these are faulty."""
    if not elements:
        return ()
    for element in elements:
        if ":" in xml.local_name(element):  # the prefix of ``source:cloud`` is not declared
            element.tag = f"{{{cloud.SOURCE}}}cloud"
    written = b"".join(etree.tostring(element, with_tail=False) for element in elements[:MAX_LINKS])
    try:
        return tuple(cloud.clouds_of(b"<rss><channel>%s</channel></rss>" % written))
    except (cloud.InvalidCloud, xml.MalformedXML) as error:
        problems.append(clean(str(error))[:300])
        return ()


def _entry_ids(tree: Tree, vocabulary: str) -> Iterator[str]:
    """The id of each entry that has one: its guid, id or address."""
    space = f"{{{vocabulary}}}" if vocabulary else ""
    for entry in tree.root.iter(f"{space}item", f"{space}entry"):
        for name in ("guid", "id", _RDF_ABOUT, "link"):
            if found := _id(entry, name, space, malformed=bool(tree.complaint)):
                yield found
                break


def _id(entry: etree._Element, name: str, space: str, *, malformed: bool) -> str:
    """The id that an element or attribute of an entry gives; empty if it gives none."""
    if name == _RDF_ABOUT:
        return clean(entry.get(name, ""))[:MAX_TEXT]
    element = entry.find(space + name)
    if element is None and malformed:
        element = next(entry.iter(space + name), None)
    if element is None:
        return ""
    return (_text(element) or clean(element.get("href", "")))[:MAX_TEXT]


def _text(element: etree._Element) -> str:
    """The text of an element, cut to little more than the longest URL."""
    texts = (str(text) for text in islice(element.itertext(), 20))
    return clean("".join(texts)[: MAX_FEED_URL + 1])
