"""Writes pings as entries of a feed, and reads them again.

Brokers follow each other's feeds of pings, so an entry says all that a ping says, by Atom::

    <entry>
      <id>urn:uuid:8a2c...</id>
      <title>A Site</title>
      <published>2026-09-29T11:57:41.250000Z</published>
      <updated>2026-09-29T11:57:43.000000Z</updated>
      <link rel="alternate" href="https://example.org/"/>
      <link rel="related" title="feed" href="https://example.org/rss.xml"/>
      <link rel="related" title="changed page" href="https://example.org/today.html"/>
      <link rel="via" href="https://first.example"/>
      <category term="weblogs"/>
    </entry>

``published`` is the time at which the ping was made; ``updated`` may be later, as the times in a
feed never go back.  The links ``via`` name the brokers that the ping has passed, in their order.

An entry of another feed can be read, too: it counts as a ping of the page that it links to.
"""

from __future__ import annotations

from collections.abc import Iterator

from rsscloud_broker.model import Ping
from rsscloud_broker.simplefeed.entries import Category, Entry, EntryLink
from rsscloud_broker.wire.origin import BadOrigin, extended, read_origin
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.web_address import MAX_URL, fault_of

#: The titles of the links to a feed and to a page that has changed.
FEED, CHANGED_PAGE = "feed", "changed page"


class NotAPing(ValueError):
    """An entry cannot be read as a ping.  The text says why, as a clause."""


def entry_of(ping: Ping) -> Entry:
    """Write a ping as an entry with a new id."""
    links = [EntryLink(ping.url)]
    for url, title in ((ping.rss_url, FEED), (ping.changes_url, CHANGED_PAGE)):
        if url:
            links.append(EntryLink(url, "related", title=title))
    links += [EntryLink(broker, "via") for broker in ping.origin.split()]
    return Entry(
        ping.name,
        ping.received_at,
        links=tuple(links),
        categories=tuple(map(Category, ping.tags)),
        summary=f"The ping came from {ping.origin}." if ping.origin else "",
        published=ping.received_at,
    )


def ping_of(entry: Entry, source: str) -> Ping:
    """Read an entry as a ping.

    :param source: the URL that names the server of the feed; it becomes the end of the origin.
    :raises NotAPing: it has no link to a page, or a faulty one.
    """
    url = next(_links(entry, "alternate"), "")
    if not url:
        raise NotAPing("the entry has no link to a page")
    feed = next(_links(entry, "related", FEED), "")
    changed = next(_links(entry, "related", CHANGED_PAGE), "")
    for each in filter(None, (url, feed, changed)):
        if fault := fault_of(each):
            raise NotAPing(fault)
    try:
        passed = read_origin(" ".join(_links(entry, "via")))
    except BadOrigin as error:
        raise NotAPing(str(error)) from None
    return Ping(
        clean(entry.title)[:MAX_URL] or url,
        url,
        entry.updated if entry.published is None else entry.published,
        changes_url=changed,
        rss_url=feed,
        # How many tags are read.
        tags=tuple(each.term for each in entry.categories if not each.scheme)[:50],
        origin=extended(passed, source),
    )


def _links(entry: Entry, relation: str, title: str | None = None) -> Iterator[str]:
    """The URLs of the links of a relation; with a title, only of those that have it."""
    for link in entry.links:
        if link.rel == relation and title in (None, link.title):
            yield link.href
