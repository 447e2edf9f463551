"""What a feed says about itself: its name, its links, its entries, its hints.

RSS 0.90 to 2.0, RSS 1.0, Atom 1.0 and 0.3, and JSON Feed are read, in any
encoding and however malformed; whatever else there is in a feed is left alone.
What is wrong with it is said in words for its publisher.

A document that is none can also stand at the URL of a feed, to say that it has
moved (or, with an empty element, that it is gone)::

    <redirect><newLocation>http://new.example.org/rss.xml</newLocation></redirect>
"""

from __future__ import annotations

import re

from rsscloud_broker.wire import xml
from rsscloud_broker.wire.feed_facts import MAX_ENTRIES, FeedFacts
from rsscloud_broker.wire.feed_hints import Hints
from rsscloud_broker.wire.feed_json import read_json
from rsscloud_broker.wire.feed_tree import MAX_BYTES, UnreadableFeed, read_tree
from rsscloud_broker.wire.feed_xml import ROOTS, read_xml
from rsscloud_broker.wire.text import clean

__all__ = [
    "MAX_BYTES",
    "MAX_ENTRIES",
    "FeedFacts",
    "Hints",
    "UnreadableFeed",
    "read_feed",
    "xml_redirect",
]

_JSON = re.compile(rb"(\xef\xbb\xbf)?\s*\{")

#: A redirect document is short, and says so soon.
_REDIRECT_BYTES = 16 * 1024
_REDIRECT_BEGINNING = 1024
_REDIRECT = re.compile(rb"<redirect[\s/>]")


def read_feed(body: bytes, content_type: str = "") -> FeedFacts:
    """Read what a feed says about itself.

    This takes a second or two for the largest and worst of feeds: call it in a
    thread where others wait.

    :param content_type: the HTTP header that came with it, or empty.
    :raises UnreadableFeed: it is no feed, or brings entities of its own.
    """
    if not body.strip():
        raise UnreadableFeed("it is empty")
    if _JSON.match(body):
        return read_json(body)
    return read_xml(read_tree(body, content_type, ROOTS))


def xml_redirect(body: bytes) -> str | None:
    """Where a document says that the feed has moved to.

    For anything else than such a document this takes no time.

    :returns: the URL as it was given; empty if the feed is gone; None if this
        is no redirect document.  One that is malformed never says that the feed
        is gone, and its URL may be the wrong one as any URL may.
    """
    if len(body) > _REDIRECT_BYTES or not _REDIRECT.match(_first_element(_beginning(body))):
        return None
    try:
        tree = read_tree(body, "", frozenset({"redirect"}))
    except UnreadableFeed:
        return None
    elements = [
        element for element in tree.root.iter("*") if xml.local_name(element) == "newLocation"
    ]
    if not elements:
        return None
    url = clean(elements[0].text or "")
    if url or not (tree.complaint or len(elements[0])):
        return url
    return None


def _first_element(document: bytes) -> bytes:
    """A document from its first element on, or from what is not well-formed before it."""
    rest = document.lstrip()
    while rest.startswith((b"<?", b"<!--")):
        _, _, rest = rest.partition(b"-->" if rest.startswith(b"<!--") else b">")
        rest = rest.lstrip()
    return rest


def _beginning(body: bytes) -> bytes:
    """How a body begins, without what tells its encoding."""
    beginning = body[:_REDIRECT_BEGINNING].lstrip(b"\xef\xbb\xbf\xff\xfe")
    return beginning.replace(b"\0", b"")  # between the letters in UTF-16
