"""Makes entries of pings and of changes of topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from attrs import evolve, frozen

from rsscloud_broker.apps.events.names import HOST, TOPIC, recent_path
from rsscloud_broker.model import Ping, host_of
from rsscloud_broker.model.ways import Way
from rsscloud_broker.model.work import KeptChange
from rsscloud_broker.simplefeed.atom import MEDIA_TYPE
from rsscloud_broker.simplefeed.entries import Category, Entry, EntryContent, EntryLink, new_id
from rsscloud_broker.simplefeed.pings import entry_of

_SENTENCES: Final = {
    Way.RSSCLOUD: "It has changed, as a ping by rssCloud had said.",
    Way.WEBSUB: "It has changed, as its publisher had notified the WebSub hub.",
    Way.WEBLOG_UPDATES: "It has changed, as a ping by weblogUpdates had said.",
    Way.PAGE: "It has changed, as somebody found who had it fetched.",
    Way.LIST: "It has changed, as the list of another server had said.",
    Way.PING: "It has changed, as a ping had said.",
    Way.FETCH: "It has changed, as the broker found when it fetched it.",
    Way.PUSH: "Its publisher pushed a new content.",
    Way.PUBLISHED: "It was published at this broker.",
}


@frozen
class Cut:
    """The entries that a change becomes.

    :ivar id: the id of the change in the store.
    :ivar entry: the entry in the feed of all changes, and in that of the host.
    :ivar of_topic: the entry with the content, in the feed of the topic; None if its contents are
        not kept.
    """

    id: int
    url: str
    entry: Entry
    of_topic: Entry | None = None

    @property
    def host(self) -> str:
        """The host of the topic, as the name of its log has it."""
        return host_of(self.url)[:255]


def make_ping_entries(pings: Sequence[Ping], is_shown: Callable[[str], bool]) -> list[Entry]:
    """Make entries of pings, but of none that names a URL which may not be shown."""
    return [entry_of(each) for each in pings if all(map(is_shown, each.named_urls))]


def make_change_entries(public_url: str, change: KeptChange, content: EntryContent | None) -> Cut:
    """Make the entries of a change.

    :param content: what the topic has now; None if that is not kept.
    """
    url = change.url
    of_host = public_url + recent_path(HOST + host_of(url)[:255])
    links = [EntryLink(url), EntryLink(of_host, "related", MEDIA_TYPE)]
    said = _SENTENCES[change.way]
    entry = Entry(
        url,
        change.at,
        new_id(),
        links=tuple(links),
        categories=(Category(change.way, f"{public_url}/events#way"),),
        summary=f"{said} The ping came from {change.origin}." if change.origin else said,
    )
    if content is None:
        return Cut(change.id, url, entry)
    of_topic = public_url + recent_path(TOPIC + url)
    links.append(EntryLink(of_topic, "related", MEDIA_TYPE))
    whole = evolve(entry, content=content, id=new_id())
    return Cut(change.id, url, evolve(entry, links=tuple(links)), whole)
