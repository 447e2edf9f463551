"""Reads lists of feeds in OPML 1.0 to 2.0.

Outlines nest: readers keep feeds in folders.  An outline that includes another list is not
followed, since a list may include itself.  An outline that is commented out does not count, nor do
those below it.  ``wire.opml`` writes such lists.

Source: OPML 2.0 (2007), "What is an <outline>?", "Subscription lists" and "Inclusion".
"""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import Final

from attrs import frozen
from lxml import etree

from rsscloud_broker.apps.river.cleaning import MAX_TITLE
from rsscloud_broker.apps.river.model import InvalidFeed
from rsscloud_broker.wire import xml
from rsscloud_broker.wire.text import clean

#: The largest list in bytes, and how deep and how many its outlines may be.
MAX_BYTES, MAX_DEPTH, MAX_OUTLINES = 5 * 1024 * 1024, 100, 20_000

_INCLUDES: Final = frozenset({"include", "link"})


@frozen
class FeedList:
    """What a list names.

    :ivar feeds: the URLs as written, each once, with their titles.
    :ivar included: the URLs of further lists, which are not read.
    """

    feeds: dict[str, str]
    included: tuple[str, ...]


def pasted(text: bytes) -> bytes:
    """A list that came as a text, which browsers send in UTF-8, whatever the list declares."""
    try:
        text.decode()
    except UnicodeDecodeError:  # some programs send the bytes of a file
        return text
    return text if text.isascii() or text.startswith(BOM_UTF8) else BOM_UTF8 + text


def read_list(data: bytes, charset: str | None = None) -> FeedList:
    """Read a list of feeds.

    :param charset: of the Content-Type with which it came, for a list that declares none.
    :raises InvalidFeed: it is no OPML, or too large.
    """
    if len(data) > MAX_BYTES:
        raise InvalidFeed(
            f"the list has more than {MAX_BYTES} bytes; split it, and import the parts"
        )
    try:
        root = xml.parse(data, charset, max_depth=MAX_DEPTH, max_elements=MAX_OUTLINES)
    except xml.MalformedXML as error:
        raise InvalidFeed(
            f"the list cannot be read: {error.reason}; split it if it is long, or else send OPML, "
            "as feed readers export it"
        ) from None
    if xml.local_name(root).lower() != "opml":
        raise InvalidFeed(
            f"the document is no OPML, since its root element is {xml.local_name(root)[:60]}; "
            "send a list as feed readers export it"
        )
    return _read_outlines(root)


def _read_outlines(root: etree._Element) -> FeedList:
    """The feeds that the outlines of a list name, in any depth, and the lists that it includes."""
    feeds: dict[str, str] = {}
    included: dict[str, None] = {}
    comments: set[etree._Element] = set()
    for outline in root.iter("*"):
        if xml.local_name(outline).lower() != "outline":
            continue
        given = {
            # How many characters of an attribute are read: more than a URL may have.
            str(name).lower(): clean(str(value)[:4096])
            for name, value in outline.attrib.items()
        }
        if given.get("iscomment", "").lower() == "true" or outline.getparent() in comments:
            comments.add(outline)  # so are those below it
            continue
        kind = given.get("type", "").lower()
        url = given.get("xmlurl") or (given.get("url", "") if kind in {"rss", "atom"} else "")
        if url:
            feeds.setdefault(url, (given.get("title") or given.get("text", ""))[:MAX_TITLE])
        elif kind in _INCLUDES and given.get("url"):
            included[given["url"]] = None
    return FeedList(feeds, tuple(included))
