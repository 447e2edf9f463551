"""What is kept of a feed, whatever its format, and how much of it at most."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from attrs import field, frozen

from rsscloud_broker.wire.cloud import Cloud
from rsscloud_broker.wire.feed_hints import Hints

#: How many entries are named.
MAX_ENTRIES: Final = 500
#: Longer texts are cut.
MAX_TEXT: Final = 1000
#: Longer links in a feed are ignored.  A page that a feed links to may have a longer URL than a
#: topic may, since the broker stores no subscription of it.
MAX_FEED_URL: Final = 4000
#: How many links of a kind are looked at.
MAX_LINKS: Final = 10


@frozen
class FeedFacts:
    """What a feed says about itself; empty where it does not say.

    :ivar format: "rss 2.0" (or another version), "rss 1.0", "atom" or "json feed".
    :ivar link: the home page.
    :ivar self_link: the URL that the feed gives as its own.
    :ivar hubs: the hubs (WebSub) that it names.
    :ivar clouds: the clouds (rssCloud) that it names and that can be called.
    :ivar entry_ids: of its first ``MAX_ENTRIES`` entries, each once: what a feed
        has to tell them apart, or where they are.
    :ivar hints: for polling.
    :ivar problems: what is wrong, for its publisher; one sentence each, without
        the full stop.
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
    """A URL as it was given, if it may be one."""
    return text if len(text) <= MAX_FEED_URL and " " not in text else ""


def unique(ids: Iterator[str]) -> tuple[str, ...]:
    """The first ``MAX_ENTRIES`` of the ids of entries, each once."""
    return tuple(dict.fromkeys(islice(ids, MAX_ENTRIES)))
