"""The record of what a feed says about itself, in any format, with limits on its size."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from attrs import field, frozen

from rsscloud_broker.wire.cloud import Cloud
from rsscloud_broker.wire.feed_hints import Hints

#: Longer texts are cut to this many characters.
MAX_TEXT: Final = 1000
#: Longer links in a feed are ignored.  A page that a feed links to may have a longer URL than a
#: topic may, since the broker stores no subscription of it.
MAX_FEED_URL: Final = 4000
#: The largest number of links of one kind that are read.
MAX_LINKS: Final = 10


@frozen
class FeedFacts:
    """What a feed says about itself; a field is empty if the feed does not give it.

    :ivar format: "rss 2.0" (or another version), "rss 1.0", "atom" or "json feed".
    :ivar link: the URL of the home page.
    :ivar self_link: the URL that the feed gives as its own.
    :ivar hubs: the URLs of the WebSub hubs that the feed names.
    :ivar clouds: the valid clouds (rssCloud) that the feed names.
    :ivar entry_ids: the ids of its first 500 entries, or their URLs, each once.
    :ivar hints: the feed's hints for polling.
    :ivar problems: what is wrong with the feed, for its publisher; one sentence each, without the
        full stop.
    """

    format: str
    title: str = ""
    link: str = ""
    self_link: str = ""
    hubs: tuple[str, ...] = ()
    clouds: tuple[Cloud, ...] = ()
    entry_ids: tuple[str, ...] = field(default=(), repr=False)
    hints: Hints = field(factory=Hints)
    problems: tuple[str, ...] = ()


def to_url(text: str) -> str:
    """A URL as written; empty if the text cannot be a URL."""
    return text if len(text) <= MAX_FEED_URL and " " not in text else ""


def unique_ids(ids: Iterator[str]) -> tuple[str, ...]:
    """The first 500 ids of entries, each once."""
    return tuple(dict.fromkeys(islice(ids, 500)))
