"""Cuts the items of a feed down to what is read of them, before a library meets them.

feedparser knows the many ways in which feeds write items, but it takes quadratic time for some
documents, for instance for a long name of an author.  So it gets a new, small document: of each
item only the elements that say what the river shows, each with nothing but a short text and the
few attributes that matter.  HTML that is not escaped becomes escaped HTML.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from html import escape
from typing import Final

from lxml import etree

from rsscloud_broker.apps.river import cleaning
from rsscloud_broker.apps.river.model import SubItem
from rsscloud_broker.wire import xml
from rsscloud_broker.wire.text import legal

#: How many elements of an item are read, and how many characters of what identifies it.
MAX_CHILDREN, MAX_ID = 100, 1000

#: How deep sub-items are read, how many of one item, and how much their HTML weighs.
MAX_DEPTH, MAX_NUMBER, MAX_WEIGHT = 20, 500, 100_000

_TEXTS: Final = (
    *("description", "summary", "abstract", "content", "encoded", "body", "fullitem", "div"),
    *("subtitle", "tagline", "info"),
)
_DATES: Final = (
    *("pubdate", "published", "issued", "created", "updated", "modified", "date", "available"),
)
_IDS: Final = ("id", "guid")
#: Titles are longer than what is shown of them, as they may have HTML in them.
_LENGTHS: Final = {
    **dict.fromkeys(_TEXTS, cleaning.MAX_HTML),
    **dict.fromkeys(_DATES, 100),
    **dict.fromkeys(("title", "link", *_IDS), 4 * cleaning.MAX_TITLE),
    "enclosure": 0,
}
_ATTRIBUTES: Final = frozenset(
    {"type", "mode", "rel", "href", "src", "url", "length", "isPermaLink", "ispermalink"}
)
_BASE: Final = "{http://www.w3.org/XML/1998/namespace}base"
_ABOUT: Final = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}about"
#: Elements that hold others that are read, such as Media RSS has for videos; how deep they nest.
_HOLDERS: Final = frozenset(
    f"{{http://search.yahoo.com/mrss/}}{name}" for name in ("group", "content")
)
#: What prefixes mean that a malformed feed does not declare.
_PREFIXES: Final = {
    "a10": "http://www.w3.org/2005/Atom",
    "atom": "http://www.w3.org/2005/Atom",
    "content": "http://purl.org/rss/1.0/modules/content/",
    "dc": "http://purl.org/dc/elements/1.1/",
    "dcterms": "http://purl.org/dc/terms/",
    "itunes": "http://www.itunes.com/dtds/podcast-1.0.dtd",
    "media": "http://search.yahoo.com/mrss/",
}
#: Elements of HTML that have no end.
_VOID: Final = frozenset({"area", "br", "col", "embed", "hr", "img", "input", "source", "wbr"})


def trimmed(root: etree._Element, items: Iterable[etree._Element]) -> bytes:
    """A feed that has nothing but some of its items, and of those only what is read.

    :returns: the feed as XML in UTF-8.
    """
    new = etree.Element(_writable(str(root.tag)), _kept_attributes(root))
    if version := root.get("version"):
        new.set("version", version[:10])
    holder = new
    if xml.local_name(root).lower() == "rss":
        channel = root.find("{*}channel")
        holder = etree.SubElement(
            new, "channel", {} if channel is None else _kept_attributes(channel)
        )
    for item in items:
        tag = _writable(str(item.tag))
        _copy_parts(etree.SubElement(holder, tag, _kept_attributes(item)), item)
    return etree.tostring(new, encoding="utf-8", xml_declaration=True)


def _copy_parts(new: etree._Element, item: etree._Element, depth: int = 1) -> None:
    """Add to an element what is read of an item, or of an element that holds parts of it."""
    for child in item:
        tag = _usable_tag(child)
        name = tag.rpartition("}")[2].lower()
        if not (tag in _HOLDERS or name in _LENGTHS):
            continue
        if len(new) == MAX_CHILDREN:
            break
        added = etree.SubElement(new, tag, _kept_attributes(child))
        if tag in _HOLDERS:
            # Media RSS nests a group, contents and what is in them.
            if depth < 3:
                _copy_parts(added, child, depth + 1)
            continue
        length = _LENGTHS[name]
        text = child.text or ""
        if name in _IDS:
            text = short_id(text)
        elif len(child):
            text = markup(child, length)
            added.set("type", "html")
        # feedparser takes twice as long for text with references.
        added.text = etree.CDATA(text[:length])


def _usable_tag(element: etree._Element) -> str:
    """The tag of an element as a new document can have it; empty if none can."""
    tag = str(element.tag)
    # Longer names of elements, with their namespaces, mean nothing.
    if len(tag) > 200:
        return ""
    if tag.startswith("{") or ":" not in tag:
        return _writable(tag)
    prefix, _, name = tag.partition(":")
    namespace = _PREFIXES.get(prefix.lower())
    return f"{{{namespace}}}{name}" if namespace and ":" not in name else ""


def _writable(tag: str) -> str:
    """A tag without white space around its namespace, or without a namespace that is no URI.

    A parser that is lenient takes any namespace, but no new document can have such ones.
    """
    namespace, _, name = tag.rpartition("}")
    wanted = f"{{{namespace[1:].strip()}}}{name}" if namespace else tag
    try:
        etree.Element(wanted)
    except ValueError:
        return name
    return wanted


def short_id(text: str) -> str:
    """An id, or its hash if it is too long."""
    return text if len(text) <= MAX_ID else f"sha256:{sha256(text.encode()).hexdigest()}"


def _kept_attributes(element: etree._Element) -> dict[str, str]:
    """The attributes of an element that are read, without those that are too long."""
    wanted = {*_ATTRIBUTES, _BASE, _ABOUT}
    found = ((str(name), str(value)) for name, value in element.attrib.items())
    return {
        name: value for name, value in found if name in wanted and len(value) <= cleaning.MAX_URL
    }


def markup(element: etree._Element, length: int) -> str:
    """What is in an element as HTML, cut after about ``length`` characters."""
    parts = [escape(element.text or "")]
    left = length - len(parts[0])
    for event, each in etree.iterwalk(element, ("start", "end")):
        if each is element:
            continue
        name = xml.local_name(each)
        if event == "start":
            attributes = "".join(
                f' {attribute}="{escape(str(value))}"'
                for attribute, value in each.attrib.items()
                if not str(attribute).startswith("{")
            )
            part = f"<{name}{attributes}>{escape(each.text or '')}"
        else:
            end = "" if name.lower() in _VOID else f"</{name}>"
            part = f"{end}{escape(each.tail or '')}"
        parts.append(part)
        left -= len(part)
        if left <= 0:
            break
    return legal("".join(parts)[:length])


class _SubItemReader:
    """Reads the sub-items of one item, within the bounds."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._left = MAX_NUMBER
        self._left_weight = MAX_WEIGHT

    def read_below(self, element: etree._Element, depth: int = 1) -> tuple[SubItem, ...]:
        """The sub-items directly below an element, with all below them, while there is room."""
        found: list[SubItem] = []
        for child in _sub_items(element) if depth <= MAX_DEPTH else ():
            if self._left == 0 or self._left_weight <= 0:
                break
            self._left -= 1
            texts = {xml.local_name(each): each.text or "" for each in reversed(child)}
            html = cleaning.safe_html(texts.get("description", ""), self._base)
            self._left_weight -= cleaning.weight(html)
            link = cleaning.web_url(texts["link"], self._base) if texts.get("link") else ""
            below = self.read_below(child, depth + 1)
            found.append(SubItem(cleaning.plain(texts.get("title", "")), html, link, below))
        return tuple(found)


def take_out_sub_items(element: etree._Element, base: str) -> tuple[SubItem, ...]:
    """The items below an item, ``<rssCloud:item>``, which may nest; they are removed from it.

    Source: the rssCloud implementor's guide, "How rssCloud uses RSS".

    :param base: the URL against which relative links are resolved.
    """
    found = _SubItemReader(base).read_below(element)
    for child in _sub_items(element):
        element.remove(child)
    return found


def _sub_items(element: etree._Element) -> list[etree._Element]:
    return [child for child in element if xml.local_name(child) == "item"]
