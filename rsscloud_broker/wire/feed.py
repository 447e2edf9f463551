"""Reads what a feed says about itself: its title, links, entry ids and polling hints.

It reads RSS 0.90 to 2.0, RSS 1.0, Atom 1.0 and 0.3, and JSON Feed, in any encoding and even if
malformed, and ignores everything else in a feed.  It describes faults in sentences for the
publisher.

The URL of a feed may also lead to a redirect document, which says that the feed has moved, or,
with an empty element, that it is gone::

    <redirect><newLocation>http://new.example.org/rss.xml</newLocation></redirect>
"""

from __future__ import annotations

import re

from rsscloud_broker.wire import xml
from rsscloud_broker.wire.feed_facts import FeedFacts
from rsscloud_broker.wire.feed_json import read_json
from rsscloud_broker.wire.feed_tree import UnreadableFeed, read_tree
from rsscloud_broker.wire.feed_xml import ROOTS, read_xml
from rsscloud_broker.wire.text import clean

_JSON = re.compile(rb"(\xef\xbb\xbf)?\s*\{")

#: The largest redirect document, in bytes.
_REDIRECT_BYTES = 16 * 1024
_REDIRECT = re.compile(rb"<redirect[\s/>]")


def read_feed(body: bytes, content_type: str = "") -> FeedFacts:
    """Read what a feed says about itself.

    The largest and worst feeds take a second or two, so a server should call this in a thread.

    :param content_type: the Content-Type header that came with it, or empty.
    :raises UnreadableFeed: the body is not a feed, or declares entities.
    """
    if is_json(body):
        return read_json(body)
    return read_xml(read_tree(body, content_type, ROOTS))


def is_json(body: bytes) -> bool:
    """Whether a feed is to be read as a JSON Feed, whatever its server says that it is."""
    return _JSON.match(body) is not None


def xml_redirect(body: bytes) -> str | None:
    """The URL to which a redirect document says that the feed has moved.

    For any other document the answer is immediate.

    :returns: the URL as written, which may be invalid; empty if the feed is gone; None if the body
        is not a redirect document.  A malformed document is never taken to say that the feed is
        gone.
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
    """A document without the comments and processing instructions at its beginning."""
    rest = document.lstrip()
    while rest.startswith((b"<?", b"<!--")):
        _, _, rest = rest.partition(b"-->" if rest.startswith(b"<!--") else b">")
        rest = rest.lstrip()
    return rest


def _beginning(body: bytes) -> bytes:
    """The first bytes of a body as ASCII, without byte order mark."""
    # The root element of a redirect is at its beginning.
    beginning = body[:1024].lstrip(b"\xef\xbb\xbf\xff\xfe")
    return beginning.replace(b"\0", b"")  # UTF-16 has NULs between ASCII letters
