"""Reads a document of a feed: its title, its hubs and clouds, and its items.

``wire.feed_tree`` parses XML first, hardened against attacks.  feedparser gets what ``trimming``
leaves of that; it knows the many ways in which feeds write items.  Only then is HTML cleaned.
A JSON Feed is read here.  A document can still be made so that this takes long: a parser calls it,
which has limits.
"""

from __future__ import annotations

from calendar import timegm
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from io import BytesIO
from itertools import accumulate
from time import struct_time
from typing import Any, Final

import feedparser
import msgspec
from attrs import evolve
from lxml import etree

from rsscloud_broker.apps.river import cleaning
from rsscloud_broker.apps.river.model import Item, ItemEnclosure, Offer, ReadDocument, SubItem
from rsscloud_broker.apps.river.trimming import short_id, take_out_sub_items, trimmed
from rsscloud_broker.wire import links, xml
from rsscloud_broker.wire.feed import is_json
from rsscloud_broker.wire.feed_facts import FeedFacts
from rsscloud_broker.wire.feed_json import read_json
from rsscloud_broker.wire.feed_tree import read_tree
from rsscloud_broker.wire.feed_xml import ROOTS, read_xml
from rsscloud_broker.wire.text import clean

#: How many items of a document are read: half of them at its beginning, half at its end.
MAX_ENTRIES: Final = 500
#: How many characters of HTML are read of a document, which may become much longer than it was.
#: The oldest items beyond that are left out.
MAX_TEXT: Final = 10_000_000


def read_document(body: bytes, content_type: str, url: str) -> ReadDocument:
    """Read a document: its title, link, hubs and clouds, and as many items as fit, newest first.

    :param body, content_type: as its server or a hub sent them.
    :param url: the URL of the feed, against which links are resolved.
    :raises UnreadableFeed: it is no feed, or declares entities.
    """
    if is_json(body):
        facts, found = read_json(body), _read_json_items(body, url)
    else:
        tree = read_tree(body, content_type, ROOTS)
        facts, found = read_xml(tree), _read_xml_items(tree.root, url)
    return ReadDocument(
        title=facts.title[: cleaning.MAX_TITLE],
        link=cleaning.web_url(facts.link, url) if facts.link else "",
        offers=_offers(facts, url),
        entries=_fitting(_newest_first(_with_guids(found)), MAX_TEXT),
    )


def header_offers(link: str, url: str) -> tuple[Offer, ...]:
    """The hubs that a Link header names (section 4 of WebSub).

    :param url: the URL that gave the header.
    """
    found = links.parse_or_empty(link)
    own = links.targets(found, "self")
    topic = cleaning.web_url(own[0], url) if own else ""
    hubs = (cleaning.web_url(hub, url) for hub in links.targets(found, "hub"))
    return tuple(Offer("websub", hub, topic or url, in_header=True) for hub in hubs if hub)


def _offers(facts: FeedFacts, url: str) -> tuple[Offer, ...]:
    """The hubs of a feed, then its clouds, each in the order of the feed."""
    topic = cleaning.web_url(facts.self_link, url) if facts.self_link else ""
    hubs = [cleaning.web_url(hub, url) for hub in facts.hubs]
    return (
        *(Offer("websub", hub, topic or url) for hub in hubs if hub),
        *(Offer("rsscloud", cloud.url, url, cloud) for cloud in facts.clouds),
    )


def _newest_first(entries: list[Item]) -> tuple[Item, ...]:
    """Entries in the order of their dates if each has one, and each once."""
    if all(entry.published_at is not None for entry in entries):
        entries = sorted(entries, key=lambda entry: -(entry.published_at or 0.0))
    # Of several with one guid, the first counts.
    return tuple({entry.guid: entry for entry in reversed(entries)}.values())[::-1]


def _fitting(entries: tuple[Item, ...], characters: int) -> tuple[Item, ...]:
    """The first entries, as many as have at most ``characters`` of HTML together."""
    sizes = accumulate(len(entry.text_html) + _html_size(entry.items) for entry in entries)
    return tuple(entry for entry, size in zip(entries, sizes, strict=True) if size <= characters)


def _html_size(items: tuple[SubItem, ...]) -> int:
    """How many characters of HTML the items below an item have."""
    return sum(len(item.text_html) + _html_size(item.items) for item in items)


def _read_xml_items(root: etree._Element, url: str) -> list[Item]:
    """The items of a feed in RSS or Atom, as feedparser reads them."""
    elements = list(_item_elements(root))
    # Of too many, both ends are read, since the newest may be at either.
    half = MAX_ENTRIES // 2
    kept = elements if len(elements) <= MAX_ENTRIES else elements[:half] + elements[-half:]
    below = [take_out_sub_items(element, url) for element in kept]
    parsed = feedparser.parse(
        BytesIO(trimmed(root, kept)),
        response_headers={
            "content-location": url,
            "content-type": "application/xml; charset=utf-8",
        },
        sanitize_html=False,  # nh3 does that
        resolve_relative_uris=False,
    )
    if len(parsed.entries) != len(below):  # then nobody knows which belong together
        below = [()] * len(parsed.entries)
    is_atom = parsed.version.startswith("atom")
    return [
        _make_item(raw, items, url, is_atom=is_atom)
        for raw, items in zip(parsed.entries, below, strict=True)
    ]


def _item_elements(root: etree._Element) -> Iterator[etree._Element]:
    """The items of a feed, without those below them."""
    waiting = [root]
    while waiting:
        element = waiting.pop()
        if xml.local_name(element).lower() in {"item", "entry"}:
            yield element
        else:
            waiting += reversed(element)


def _make_item(
    raw: Mapping[str, Any], items: tuple[SubItem, ...], url: str, *, is_atom: bool
) -> Item:
    """An item, cleaned: ``raw`` is from feedparser, and ``items`` are those below it."""
    detail = next(iter(raw.get("content") or ()), None) or raw.get("summary_detail") or {}
    base = _text_member(detail, "base") or url
    text = _text_member(detail, "value")
    # Atom says what is text (RFC 4287, section 3.1.1).  RSS does not, and what has markup is HTML.
    as_text = _is_text(detail) and (is_atom or "<" not in text)
    html = cleaning.safe_text(text) if as_text else cleaning.safe_html(text, base)
    title, link = _text_member(raw, "title"), _text_member(raw, "link")
    title_as_text = is_atom and _is_text(raw.get("title_detail") or {})
    return Item(
        id=0,
        feed_id=0,
        guid=clean(_text_member(raw, "id")),
        title=clean(title)[: cleaning.MAX_TITLE] if title_as_text else cleaning.plain(title),
        text_html=html,
        link=cleaning.web_url(link, url) if link else "",
        enclosures=_enclosures(raw.get("enclosures") or (), ("href", "type", "length"), url),
        items=items,
        published_at=_seconds_of(raw.get("published_parsed") or raw.get("updated_parsed")),
    )


def _is_text(detail: Mapping[str, Any]) -> bool:
    """Whether the detail of a text, as feedparser has it, says that it is plain text."""
    return detail.get("type") == "text/plain"


def _seconds_of(parsed: struct_time | None) -> float | None:
    """A time of feedparser in seconds since the epoch; None if it cannot be."""
    try:
        return None if parsed is None else float(timegm(parsed))
    except (ValueError, OverflowError):
        return None


def _enclosures(
    found: Iterable[Mapping[str, Any]], names: tuple[str, str, str], url: str
) -> tuple[ItemEnclosure, ...]:
    """The usable enclosures of an item.

    :param names: what its URL, its media type and its length are called.
    """
    enclosures: list[ItemEnclosure] = []
    for each in found:
        href, media_type = (_text_member(each, name) for name in names[:2])
        absolute = cleaning.web_url(href, url) if href else ""
        # How many enclosures of an item are read.
        if absolute and len(enclosures) < 10:
            size = str(each.get(names[2]) or "")
            number = int(size) if size.isascii() and size.isdigit() and len(size) < 16 else None
            kind = clean(media_type).partition(";")[0].strip().lower()[:100]
            enclosures.append(ItemEnclosure(absolute, kind, number))
    return tuple(enclosures)


def _with_guids(entries: list[Item]) -> list[Item]:
    """Entries with what identifies each: its own id, or its link, or else a hash of its text.

    A link does not identify an entry if another one without an id has the same.
    """
    links = Counter(entry.link for entry in entries if not entry.guid)
    found: list[Item] = []
    for entry in entries:
        guid = entry.guid or (entry.link if links[entry.link] == 1 else "")
        if not guid:
            files = " ".join(each.url for each in entry.enclosures)
            text = f"{entry.title}\n{entry.text_html}\n{files}"
            guid = f"sha256:{sha256(text.encode()).hexdigest()}"
        found.append(evolve(entry, guid=short_id(guid)))
    return found


def _text_member(holder: Any, name: str) -> str:
    """A member of an object if it is a text; else an empty text."""
    value = holder.get(name)
    return value if isinstance(value, str) else ""


def _read_json_items(body: bytes, url: str) -> list[Item]:
    """The items of a JSON Feed, at most ``MAX_ENTRIES``; what is no object is left out."""
    feed = msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf"))
    items = _objects_in(feed, "items") if isinstance(feed, dict) else []
    return [_read_json_item(item, url) for item in items[:MAX_ENTRIES]]


def _objects_in(holder: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The objects in a member of an object that should be a list of such."""
    found = holder.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _read_json_item(raw: Mapping[str, Any], url: str) -> Item:
    """An item of a JSON Feed, cleaned; members of a wrong type count as missing."""
    link = _text_member(raw, "url") or _text_member(raw, "external_url")
    html = _text_member(raw, "content_html")
    text = _text_member(raw, "content_text") or _text_member(raw, "summary")
    number = raw.get("id")
    return Item(
        id=0,
        feed_id=0,
        guid=clean(str(number) if isinstance(number, str | int | float) else ""),
        title=clean(_text_member(raw, "title"))[: cleaning.MAX_TITLE],
        text_html=cleaning.safe_html(html, url) if html else cleaning.safe_text(text),
        link=cleaning.web_url(link, url) if link else "",
        enclosures=_enclosures(
            _objects_in(raw, "attachments"), ("url", "mime_type", "size_in_bytes"), url
        ),
        published_at=_json_time(
            _text_member(raw, "date_published") or _text_member(raw, "date_modified")
        ),
    )


def _json_time(text: str) -> float | None:
    """A time of a JSON Feed in seconds since the epoch; None if it is none or cannot be."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    # The latest time that an item may say it was published at: the end of the year 9999.
    return seconds if 0 <= seconds <= 253_402_300_799.0 else None
