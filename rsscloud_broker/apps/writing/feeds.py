"""Makes the feeds of an author: the same messages as RSS, as Atom and as JSON Feed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

from attrs import frozen

from rsscloud_broker.apps.writing.model import OutlineItem, Post
from rsscloud_broker.apps.writing.rows import Author
from rsscloud_broker.apps.writing.texts import outline_html, to_html
from rsscloud_broker.web.feed_answers import WrittenFeed
from rsscloud_broker.wire import atom_feed, cloud, json_feed, rss_feed
from rsscloud_broker.wire.feed_document import (
    FeedDocument,
    FeedEntry,
    FeedOutlineItem,
)
from rsscloud_broker.wire.links import HUB_PATHS, hub_and_self


@frozen
class FeedFormat:
    """A format of feeds.

    :ivar name: for people.
    """

    media_type: str
    encode: Callable[[FeedDocument], bytes]
    name: str


#: The formats, by the names of their files.  The first is the feed to advertise.
FORMATS: Final[dict[str, FeedFormat]] = {
    "rss.xml": FeedFormat(rss_feed.MEDIA_TYPE, rss_feed.encode, "RSS"),
    "atom.xml": FeedFormat(atom_feed.MEDIA_TYPE, atom_feed.encode, "Atom"),
    "feed.json": FeedFormat(json_feed.MEDIA_TYPE, json_feed.encode, "JSON Feed"),
}

#: Where rssCloud subscribers register at this broker.
_REGISTER: Final = "/rsscloud/pleaseNotify"


@frozen
class AccountFeeds:
    """Makes feeds.

    :param public_url: the broker's own URL, without a slash at the end.
    :param has_hub: whether the broker is a WebSub hub.
    :param has_cloud: whether the broker takes rssCloud registrations.
    """

    public_url: str
    has_hub: bool
    has_cloud: bool

    def home_url(self, name: str) -> str:
        """The page of an author."""
        return f"{self.public_url}/people/{name}"

    def url(self, name: str, file: str = "rss.xml") -> str:
        """A feed of an author.

        :param file: one of ``FORMATS``.
        """
        return f"{self.home_url(name)}/{file}"

    def page_url(self, post: Post) -> str:
        """The page of a message."""
        return f"{self.home_url(post.author)}/{post.id}"

    def link_header(self, name: str, file: str) -> str:
        """The value of the Link header of a feed; empty if the broker is no hub."""
        return hub_and_self(self.public_url, f"/people/{name}/{file}") if self.has_hub else ""

    def write(self, author: Author, posts: Sequence[Post]) -> dict[str, WrittenFeed]:
        """Write the feeds of an author, by their URLs, in the order of ``FORMATS``.  It takes a
        while: call it in a thread.

        :param posts: the newest first.
        """
        entries = tuple(map(self._entry, posts))
        return {
            self.url(author.name, file): WrittenFeed.of(
                each.encode(self._document(author, file, entries)), each.media_type
            )
            for file, each in FORMATS.items()
        }

    def write_rss(self, author: Author, posts: Sequence[Post]) -> bytes:
        """Messages as one RSS feed, not compressed, for their author.  Call it in a thread, too."""
        entries = tuple(map(self._entry, posts))
        return rss_feed.encode(self._document(author, "rss.xml", entries))

    def _document(self, author: Author, file: str, entries: tuple[FeedEntry, ...]) -> FeedDocument:
        """A feed without its format: what all formats write."""
        # The time of the last change of an entry, and not of the last change at all: so the feed
        # stays as it is if a message changes that is too old to be in it.
        updated = max((each.updated for each in entries), default=author.changed_at)
        register = f"{self.public_url}{_REGISTER}"
        return FeedDocument(
            id=author.base,
            title=author.name,
            description=f"Messages by {author.name}",
            url=self.home_url(author.name),
            self_url=self.url(author.name, file),
            author=author.name,
            service=urlsplit(self.public_url).netloc,
            updated=updated,
            hub=self.public_url + HUB_PATHS[0] if self.has_hub else "",
            cloud=cloud.from_url(register) if self.has_cloud else None,
            entries=entries,
        )

    def _entry(self, post: Post) -> FeedEntry:
        """A message as an entry; ``full_html`` has its outline, too."""
        html = to_html(post.text)
        return FeedEntry(
            id=post.guid,
            url=self.page_url(post),
            link=post.link,
            title=post.title,
            text=post.text,
            html=html,
            full_html=f"{html}{outline_html(post.items)}",
            published=post.created_at,
            updated=post.changed_at,
            categories=post.categories,
            enclosure=post.enclosure,
            items=tuple(map(_outline, post.items)),
        )


def _outline(item: OutlineItem) -> FeedOutlineItem:
    """An item of an outline, with all below it, as feeds write it."""
    below = tuple(map(_outline, item.items))
    return FeedOutlineItem(
        item.text, to_html(item.text or item.title), item.title, item.link, below
    )
